"""Whoever cleans up after a dead process gives hooks and releases the `ctx` that they rely on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest

from jackline import ctx, event_loop
from jackline.clock import VirtualClock
from jackline.errors import UsageError
from jackline.flows.cleanup.action_runner import CLEANUP_SCOPE, CleanupScope, OwnerlessRun
from jackline.flows.cleanup.ledger import Reaped, is_overdue, reap
from jackline.flows.lifecycle import module_of
from jackline.flows.records import NoteRecord, RunRecord
from jackline.flows.store import open_run_store, run_store_url
from jackline.flows.store.run_store import Claim, RunStore
from tests.flows import dying_clean_up
from tests.flows.dying_clean_up import DIES, LEDGER
from tests.flows.world import EPOCH, played

T = TypeVar("T")


def later() -> VirtualClock:
    """A clock by which the lease of the dead is long over."""
    return VirtualClock(datetime.now(UTC) + timedelta(days=1))


def on_store(path: Path, story: Callable[[RunStore], Awaitable[T]]) -> T:
    async def told() -> T:
        engine = open_run_store(run_store_url(path.parent))
        try:
            return await story(engine)
        finally:
            await engine.close()

    return event_loop.run(told())


def died_in_its_clean_up(folder: Path) -> Path:
    store = folder / "flows.db"
    process = subprocess.run(
        [sys.executable, "-m", dying_clean_up.__name__, str(store)],
        env={**os.environ, LEDGER: str(folder / "ledger"), DIES: "yes"},
        cwd=Path(__file__).parents[2],
        timeout=300,
        check=False,
    )
    assert process.returncode == -signal.SIGKILL
    assert (folder / "ledger").read_text() == "the process dies\n"
    return store


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_after_a_kill_in_the_clean_up_hooks_and_releases_know_whom_they_clean_up_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = died_in_its_clean_up(tmp_path)
    monkeypatch.setenv(LEDGER, str(tmp_path / "ledger"))

    async def story(engine: RunStore) -> tuple[list[Reaped], list[NoteRecord], bool]:
        clock = later()
        assert await is_overdue(engine, clock.wall())

        def take(run: RunRecord, lease: float) -> Awaitable[Claim | None]:
            # The store's own clock is not a day ahead: to it, the dead one still holds the run.
            name = run.run_id
            return engine.claim(name, owner="me", lease=lease, instead_of=run.owner)

        done = await reap(engine, clock, module_of, take)
        again = await is_overdue(engine, clock.wall())
        assert await engine.resources() == []
        return done, list(await engine.notes("r1")), again

    done, notes, again = on_store(store, story)
    assert [(one.what, one.trouble) for one in done] == [
        ("hook function after_agent", ""),
        ("hook function after_run", ""),
        ("release gpu", ""),
        ("release room for a last message", ""),
    ]
    assert not again
    # Hooks first: what they save may be on what is given back then.
    assert (tmp_path / "ledger").read_text().splitlines()[1:] == [
        "agent worker completion of r1 True work",
        "run completion of r1 itself -",
        "release gpu of r1 taken by the run",
        "release room for a last message of r1 taken by the run",
    ]
    said = [note.detail for note in notes if note.what == "note"]
    assert {"says": "saved", "where": "on disk"} in said
    assert {"says": "gpu was given back"} in said


def test_what_is_not_known_without_a_live_run_is_said_with_what_to_use_instead() -> None:
    async def test() -> None:
        clock = VirtualClock(EPOCH)
        left = OwnerlessRun(
            "r1", open_run_store("sqlite:///:memory:", wall=clock.wall), clock, lambda: None
        )
        token = CLEANUP_SCOPE.set(CleanupScope("r1", "", left))
        try:
            with pytest.raises(UsageError) as told:
                _ = ctx.budget
        finally:
            CLEANUP_SCOPE.reset(token)
        assert "no process runs" in told.value.message
        assert "it has usage and cost" in (told.value.hint or "")

    played(test)
