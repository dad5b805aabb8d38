"""Whatever befalls the disk: an error with a way out, no promise that is not kept, no hang."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from jackline import event_loop
from jackline.errors import JournalError, LeaseLostError
from jackline.flows.store.run_store import Claim, RunStore
from jackline.flows.store.sqlite import SqliteRunStore, store_file
from tests.flows.store import made
from tests.flows.store.made import LEASE, World

PAGES = 100
moving_open_files = pytest.mark.skipif(
    os.name != "posix", reason="Windows does not move a file that is open"
)


async def _begun(engine: RunStore, run_id: str = "run-1") -> Claim:
    return await engine.create(made.run(run_id), owner="me", lease=LEASE)


def test_a_full_disk_refuses_what_does_not_fit_and_loses_nothing_else(tmp_path: Path) -> None:
    limits = [PAGES]

    def connect(path: Path, lock_seconds: float) -> sqlite3.Connection:
        connection = store_file.connect(path, lock_seconds)
        connection.execute(f"PRAGMA max_page_count = {limits[-1]}")
        return connection

    async def story() -> None:
        engine = SqliteRunStore(tmp_path / "flows.db", connect=connect)
        claim = await _begun(engine)
        calls = [made.done(f"{number}", b"x" * 5000) for number in range(PAGES)]
        told = await asyncio.gather(
            *(engine.end_call(claim, call) for call in calls), return_exceptions=True
        )
        kept = [call for call, one in zip(calls, told, strict=True) if one is None]
        refused = [one for one in told if one is not None]
        assert kept
        assert refused
        for one in refused:
            assert isinstance(one, JournalError)
            assert "the disk is full" in one.message
            assert "Free some space" in one.hint
        assert await engine.calls("run-1") == kept
        limits.append(PAGES * 100)
        await engine.end_call(claim, calls[-1])
        assert await engine.calls("run-1") == [*kept, calls[-1]]
        await engine.close()

    event_loop.run(story())


def test_a_locked_file_is_waited_for_and_then_told(disk: World) -> None:
    async def story(first: RunStore) -> None:
        claim = await _begun(first)
        engine = SqliteRunStore(disk.path, lock_seconds=0.05)
        with closing(sqlite3.connect(disk.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            told = await asyncio.gather(
                *(engine.begin_call(claim, made.call(f"{number}")) for number in range(20)),
                return_exceptions=True,
            )
            assert await engine.calls("run-1") == []  # reading needs no lock
            other.execute("ROLLBACK")
        for one in told:
            assert isinstance(one, JournalError)
            assert "another program has locked it" in one.message
            assert one.hint
        await engine.begin_call(claim, made.call("later"))
        assert [call.key for call in await engine.calls("run-1")] == ["later"]
        await engine.close()

    disk.run(story)


def test_a_damaged_file_is_told_and_left_where_it_is(disk: World) -> None:
    disk.path.parent.mkdir()
    disk.path.write_bytes(b"no database at all " * 1000)
    before = disk.path.read_bytes()

    async def story(engine: RunStore) -> None:
        for attempt in (_begun(engine), engine.runs()):
            with pytest.raises(JournalError, match="it is damaged") as caught:
                await attempt
            assert ".recover" in caught.value.hint

    disk.run(story)
    assert disk.path.read_bytes() == before
    assert [file.name for file in disk.path.parent.iterdir()] == ["flows.db"]


def test_a_file_that_cannot_be_made_is_told(disk: World) -> None:
    disk.path.parent.write_text("a file where the folder should be")

    async def story(engine: RunStore) -> None:
        for attempt in (_begun(engine), engine.runs()):
            with pytest.raises(JournalError, match="cannot be opened at its path") as caught:
                await attempt
            assert "--state" in caught.value.hint

    disk.run(story)


@moving_open_files
def test_nothing_is_promised_into_a_file_that_was_taken_away(disk: World) -> None:
    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        assert await engine.run("run-1") is not None
        for file in list(disk.path.parent.iterdir()):
            file.rename(disk.path.parent.parent / file.name)
        with pytest.raises(LeaseLostError, match="no longer in the store"):
            await engine.begin_call(claim, made.call())
        assert await engine.runs() == []

    disk.run(story)


@moving_open_files
def test_a_file_taken_away_during_the_commit_is_told(tmp_path: Path) -> None:
    path = tmp_path / "flows.db"
    armed: list[bool] = []

    def take_away(said: str) -> None:
        if armed and said == "COMMIT":
            armed.clear()
            path.rename(tmp_path / "elsewhere.db")

    def connect(path: Path, lock_seconds: float) -> sqlite3.Connection:
        connection = store_file.connect(path, lock_seconds)
        connection.set_trace_callback(take_away)
        return connection

    async def story() -> None:
        engine = SqliteRunStore(path, connect=connect)
        claim = await _begun(engine)
        armed.append(True)
        with pytest.raises(JournalError, match="moved or deleted") as caught:
            await engine.begin_call(claim, made.call())
        assert "Put it back" in caught.value.hint
        await engine.close()

    event_loop.run(story())


def test_a_mistake_in_our_own_work_reaches_its_caller_and_no_other(disk: World) -> None:
    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        nonsense = made.done("b", cost=None)
        told = await asyncio.gather(
            engine.end_call(claim, made.done("a")),
            engine.end_call(claim, nonsense),
            engine.end_call(claim, made.done("c")),
            return_exceptions=True,
        )
        assert told[0] is told[2] is None
        assert isinstance(told[1], Exception)
        assert [call.key for call in await engine.calls("run-1")] == ["a", "c"]

    disk.run(story)
