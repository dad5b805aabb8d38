"""A store is opened by its URL, makes nothing before it is used, and says when it was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from jackline.errors import BadArgumentError, JournalError
from jackline.flows.records import RunState
from jackline.flows.store import open_run_store, run_store_exists, run_store_url
from jackline.flows.store.run_store import RunStore
from tests.flows.store import made
from tests.flows.store.made import LEASE, World


def test_the_change_mark_differs_after_a_write_and_is_none_before_the_first(world: World) -> None:
    async def story(engine: RunStore) -> None:
        assert await engine.change_mark() is None
        await engine.create(made.run(), owner="me", lease=LEASE)
        first = await engine.change_mark()
        assert first is not None
        await engine.runs()
        assert await engine.change_mark() == first
        await engine.note("run-1", 1.0, "more", "", {"long": "x" * 10_000})
        assert await engine.change_mark() not in (None, first)

    world.run(story)


def test_runs_are_counted_by_state_and_those_without_a_time_to_wake(world: World) -> None:
    async def story(engine: RunStore) -> None:
        assert await engine.count_runs() == {}
        for number, wake_at in enumerate((None, 5.0)):
            claim = await engine.create(made.run(f"run-{number}"), owner="me", lease=LEASE)
            parked = made.run(f"run-{number}", RunState.PARKED, wake_at=wake_at)
            await engine.let_go(claim, parked)
        await engine.create(made.run("run-2", wake_at=1.0), owner="me", lease=LEASE)
        assert await engine.count_runs() == {RunState.PARKED: (2, 1), RunState.RUNNING: (1, 0)}

    world.run(story)


def test_a_closed_store_refuses_everything(shared: World) -> None:
    async def story(engine: RunStore) -> None:
        await engine.create(made.run(), owner="me", lease=LEASE)
        assert await engine.size() > 0
        await engine.close()
        with pytest.raises(JournalError, match="was closed"):
            await engine.runs()
        with pytest.raises(JournalError, match="was closed"):
            await engine.request_stop("run-1", "stop")

    shared.run(story)
    assert run_store_exists(shared.url)


def test_stores_in_memory_share_nothing_and_leave_nothing(tmp_path: Path) -> None:
    url = "sqlite:///:memory:"

    async def story(engine: RunStore) -> None:
        await engine.create(made.run(), owner="me", lease=LEASE)
        other = open_run_store(url)
        assert await other.runs() == []
        await other.close()

    World("memory", tmp_path).run(story)
    assert not run_store_exists(url)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_any_name_has_a_store(tmp_path: Path) -> None:
    folder = tmp_path / "50% of ?a #b ü;"

    async def story(engine: RunStore) -> None:
        await engine.create(made.run(), owner="me", lease=LEASE)

    assert not run_store_exists(run_store_url(folder))
    world = World("file", tmp_path)
    world.url = run_store_url(folder)
    world.run(story)
    assert run_store_exists(run_store_url(folder))
    assert (folder / "flows.db").is_file()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:secret@host/runs",
        "flows.db",
        "/state/flows.db",
        "",
        "sqlite://",
        "sqlite:///",
        "sqlite://host/flows.db",
        "sqlite:///flows.db?mode=ro",
    ],
)
def test_an_unknown_url_is_refused_with_the_forms_there_are(url: str) -> None:
    for use in (open_run_store, run_store_exists):
        with pytest.raises(BadArgumentError) as refusal:
            use(url)
        assert refusal.value.hint is not None
        assert "sqlite:///PATH" in refusal.value.hint
        assert "secret" not in refusal.value.message + refusal.value.hint
