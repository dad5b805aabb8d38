"""`rm` and `purge` delete runs for good: from the lists, the files, and the bytes of the disk."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jackline import event_loop
from jackline.agents.process.child import start_files_root
from jackline.clock import SystemClock
from jackline.events import ServiceNoted
from jackline.flows.records import HookRecord, ResourceRecord, ResourceState, RunRecord, RunState
from jackline.flows.store import open_run_store, run_store_url
from jackline.journal import Journal
from jackline.simulator.reply_script import Say
from jackline.testing import Rule
from tests.attacks.planting import add_run
from tests.cli.commands import Answer, jackline
from tests.cli.flow_world import World, flow_world

PROMPT = "the prompt that must be gone"
ANSWER = "the answer that must be gone"
FLOW = f"""
from jackline import agent, ctx, flow

@flow
async def secretive(padding: str = "") -> str:
    return await agent({PROMPT!r} + padding, label="one")
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with flow_world(tmp_path) as there:
        (tmp_path / "secretive.py").write_text(FLOW)
        there.provider.says(Rule(lambda _asked: Say(ANSWER), prompt=PROMPT))
        yield there


def bytes_of(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


def test_a_removed_run_leaves_no_byte_in_any_file(world: World) -> None:
    state = world.folder / "state"
    padding = "x" * 100_000  # a long value lies in a place of its own
    for arguments in ((), ("--padding", padding)):
        assert world.jackline("run", "secretive.py", *arguments)[0] == 0
    assert world.jackline("run", "flow.py", "--count", "1")[0] == 0
    left, *gone = [run["run"] for run in world.json("ls")["runs"]]
    assert PROMPT.encode() in bytes_of(state)
    assert ANSWER.encode() in bytes_of(state)
    (state / "woken-runs.log").write_text(f"run {gone[0]} finished\nrun {left} finished\n")
    (state / "woken-runs.log").chmod(0o600)
    (state / "journal.db.damaged-1").write_text("as it was")
    size = (state / "woken-runs.log").stat().st_size
    reported = world.json("rm", *gone, "--yes")
    assert sorted(reported["removed"]) == sorted(gone)
    assert reported["bytes_freed"] > 50_000
    data = bytes_of(state)
    assert PROMPT.encode() not in data
    assert ANSWER.encode() not in data
    log = (state / "woken-runs.log").read_text()
    assert log.split() == ["run", left, "finished"]
    assert len(log) == size, "others append to it: no line of theirs is moved, or cut off"
    assert any("journal.db.damaged-1" in note for note in reported["notes"])
    with closing(sqlite3.connect(state / "journal.db")) as journal:
        tags = {tag for (tag,) in journal.execute("SELECT DISTINCT tag FROM calls")}
    assert tags == {left}
    assert [run["run"] for run in world.json("ls")["runs"]] == [left]
    assert world.json("show", left)["calls"][0]["state"] == "done"


def test_what_a_fork_shares_stays_with_the_fork(world: World) -> None:
    world.jackline("run", "flow.py", "--count", "2")
    (first,) = [run["run"] for run in world.json("ls")["runs"]]
    assert world.jackline("fork", first, "--from", "part 1")[0] == 0
    assert world.jackline("rm", first, "--yes")[0] == 0
    (fork,) = world.json("ls")["runs"]
    assert fork["forked_from"] == first
    code, out, _err = world.jackline("resume", fork["run"])
    assert (code, out.partition(":")[0]) == (0, "2 of 2 ok")


# --- without a gateway --------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder / "flows.db"


def keep(store: Path, *runs: tuple[str, RunState, float]) -> None:
    async def main() -> None:
        engine = open_run_store(run_store_url(store.parent))
        for run_id, state, at in runs:
            record = RunRecord(run_id, "f", "", b"{}", created_at=at, updated_at=at)
            claim = await engine.create(record, owner="elsewhere:1:x", lease=30)
            ended = at if state in ("finished", "failed", "cancelled") else None
            await engine.let_go(claim, replace(record, state=state, ended_at=ended))
        await engine.close()

    event_loop.run(main())


def reported(*words: str, store: Path) -> Answer:
    return jackline(*words, "--state", str(store.parent))


def listed(store: Path) -> set[str]:
    return {run["run"] for run in json.loads(reported("ls", "--json", store=store).out)["runs"]}


def test_of_several_runs_those_that_may_go_do_and_the_others_are_reported(store: Path) -> None:
    keep(store, ("aa1", RunState.FINISHED, 1.0), ("bb1", RunState.PARKED, 1.0))
    keep(store, ("cc1", RunState.FAILED, 1.0))
    answer = reported("rm", "aa1", "bb1", "cc", "--yes", store=store)
    assert answer.code == 1
    assert "2 runs deleted" in answer.err
    assert "bb1 is not deleted" in answer.err
    assert "jackline cancel bb1" in answer.err
    assert listed(store) == {"bb1"}


@pytest.mark.parametrize("bad", ["zz", "aa"])
def test_a_name_that_means_no_run_or_several_deletes_nothing(bad: str, store: Path) -> None:
    keep(store, ("aa1", RunState.FINISHED, 1.0), ("aa2", RunState.FINISHED, 1.0))
    answer = reported("rm", "aa1", bad, "--yes", store=store)
    assert answer.code == 2
    assert listed(store) == {"aa1", "aa2"}


def test_nobody_is_prompted_where_there_is_no_terminal(store: Path) -> None:
    keep(store, ("aa1", RunState.FINISHED, 1.0))
    for words in (("rm", "aa1"), ("purge", "--older", "0s"), ("rm", "aa1", "--json")):
        answer = reported(*words, store=store)
        assert answer.code == 2, answer
        assert "--yes" in answer.err + answer.out
    assert listed(store) == {"aa1"}


def test_a_dry_run_shows_and_deletes_nothing(store: Path) -> None:
    keep(store, ("aa1", RunState.FINISHED, 1.0), ("bb1", RunState.PARKED, 1.0))
    answer = reported("rm", "aa1", "bb1", "--dry-run", store=store)
    assert (answer.code, answer.out) == (1, "aa1\n")
    assert "bb1 is not deleted" in answer.err
    assert reported("purge", "--dry-run", store=store).out == "aa1\n"
    assert listed(store) == {"aa1", "bb1"}


def test_what_is_held_or_owed_is_not_forgotten_without_force(store: Path) -> None:
    keep(store, ("aa1", RunState.FINISHED, 1.0), ("bb1", RunState.FINISHED, 1.0))

    async def add() -> None:
        engine = open_run_store(run_store_url(store.parent))
        await engine.save_resource(
            ResourceRecord("aa1", "gpu", "", "false", False, None, ResourceState.HELD, 1.0)
        )
        await engine.end_hook(HookRecord("bb1", "bb1/1", "false", b"{}", "failed", 1))
        await engine.close()

    event_loop.run(add())
    answer = reported("rm", "aa1", "bb1", "--yes", store=store)
    assert answer.code == 1
    assert "still holds gpu" in answer.err
    assert "still owes its clean-up" in answer.err
    assert "jackline resources --retry" in answer.err
    assert listed(store) == {"aa1", "bb1"}
    assert reported("rm", "aa1", "bb1", "--yes", "--force", store=store).code == 0
    assert listed(store) == set()
    assert json.loads(reported("resources", "--json", store=store).out)["resources"] == []


@pytest.mark.skipif(os.name != "posix", reason="a live owner cannot be recognised on Windows")
def test_a_run_with_a_live_process_is_not_deleted_even_by_force(store: Path) -> None:
    async def add() -> None:
        engine = open_run_store(run_store_url(store.parent))
        await add_run(engine, "aa1", RunState.FINISHED)
        assert await engine.claim("aa1", owner="elsewhere:1:y", lease=3600)
        await add_run(engine, "bb1", RunState.RUNNING)
        await engine.close()

    event_loop.run(add())
    answer = reported("rm", "aa1", "--yes", "--force", store=store)
    assert answer.code == 1
    assert "process 1 on elsewhere" in answer.err
    assert listed(store) == {"aa1", "bb1"}


@pytest.mark.parametrize("words", [("rm", "aa1", "--yes"), ("purge", "--yes")])
def test_what_a_killed_agent_was_started_with_goes_too(words: tuple[str, ...], store: Path) -> None:
    keep(store, ("aa1", RunState.FINISHED, SystemClock.wall()))
    left = start_files_root() / "0123"
    left.mkdir(mode=0o700, parents=True)
    (left / "mcp.json").write_text("SECRET")
    assert reported(*words, store=store).code == 0
    assert not left.exists()


def test_purge_takes_what_ended_long_ago_and_the_waiting_only_with_parked(store: Path) -> None:
    lately = 4e9  # far in the future: whatever the clock says, not long ago
    keep(store, ("old", RunState.FINISHED, 1.0), ("new", RunState.FINISHED, lately))
    keep(store, ("waits", RunState.PARKED, 1.0), ("waits-new", RunState.PARKED, lately))
    answer = reported("purge", "--older", "30d", "--yes", store=store)
    assert answer.code == 0, answer
    assert "1 run deleted" in answer.err
    assert listed(store) == {"new", "waits", "waits-new"}
    assert reported("purge", "--parked", "--yes", store=store).code == 0
    assert listed(store) == {"new", "waits-new"}
    again = reported("purge", "--yes", store=store)
    assert (again.code, "0 runs deleted" in again.err) == (0, True)


def _journal_until(store: Path, at: float) -> None:
    with Journal(store.parent / "journal.db", wall=lambda: at) as journal:
        journal.announce(ServiceNoted(at, "started"))
        assert journal.flush()


def test_purge_believes_no_clock_by_which_nothing_is_new(store: Path) -> None:
    """As on a machine whose clock is 40 days ahead, where a timer runs `purge --yes`."""
    ended = SystemClock.wall() - 40 * 86_400
    keep(store, ("just", RunState.FINISHED, ended), ("old", RunState.FINISHED, ended - 1e7))
    _journal_until(store, ended)
    today = f"{SystemClock().now():%Y-%m-%d}"
    newest = f"{SystemClock().in_host_zone(datetime.fromtimestamp(ended, UTC)):%Y-%m-%d}"
    for words in (("--yes",), ("--yes", "--today", newest), ("--yes", "--json")):
        answer = reported("purge", *words, store=store)
        assert answer.code == 2, answer
        assert f"the clock says {today}" in answer.err + answer.out
        assert f"newest run or record is of {newest}" in answer.err + answer.out
        assert f"--today {today}" in answer.err + answer.out
    assert listed(store) == {"just", "old"}
    assert "if the clock is wrong" in reported("purge", "--dry-run", store=store).err
    assert reported("purge", "--yes", "--older", "60d", store=store).code == 0
    assert listed(store) == {"just"}, "what is old beside the newest goes without a question"
    assert reported("purge", "--yes", "--today", today, store=store).code == 0
    assert listed(store) == set()


def test_a_new_record_of_the_gateway_shows_that_the_clock_is_right(store: Path) -> None:
    keep(store, ("old", RunState.FINISHED, 1.0))
    _journal_until(store, SystemClock.wall() - 60)
    assert reported("purge", "--yes", store=store).code == 0
    assert listed(store) == set()


def test_purge_without_a_store_and_with_a_bad_time(store: Path) -> None:
    assert reported("purge", "--yes", store=store).code == 0
    assert not store.exists()
    assert reported("purge", "--older", "soon", "--yes", store=store).code == 2
