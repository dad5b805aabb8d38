"""The file of runs: private, shared, one sync for many writes, long values once."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from jackline import event_loop
from jackline.errors import JournalError, LeaseLostError
from jackline.flows.records import AgentOrder, CallState, RunState
from jackline.flows.store.run_store import Claim, RunStore
from jackline.flows.store.sqlite import SqliteRunStore, row_checks, store_file
from jackline.flows.store.sqlite.call_rows import INLINE_BYTES
from jackline.journal import Journal
from tests.flows.store import made
from tests.flows.store.made import LEASE, LONG, NOON, World


async def _begun(engine: RunStore, run_id: str = "run-1") -> Claim:
    return await engine.create(made.run(run_id), owner="me", lease=LEASE)


def _asked(path: Path, question: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as file:
        return file.execute(question).fetchall()


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Another program holds the file locked."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_file_and_folder_are_their_owners_alone(disk: World) -> None:
    async def story(engine: RunStore) -> list[tuple[str, int]]:
        await _begun(engine)
        await engine.runs()
        files = [disk.path.parent, *disk.path.parent.iterdir()]
        return [(file.name, stat.S_IMODE(file.stat().st_mode)) for file in files]

    modes = dict(disk.run(story))
    assert set(modes) == {"state", "flows.db", "flows.db-wal", "flows.db-shm"}
    if os.name == "posix":
        assert modes.pop("state") == 0o700
        assert set(modes.values()) == {0o600}


def test_nothing_is_made_before_it_is_needed(disk: World) -> None:
    async def story(_engine: RunStore) -> None:
        assert not disk.path.parent.exists()

    disk.run(story)
    assert not disk.path.parent.exists()


def test_commits_reach_the_disk_before_they_count(tmp_path: Path) -> None:
    opened: list[sqlite3.Connection] = []

    def connect(path: Path, lock_seconds: float) -> sqlite3.Connection:
        opened.append(store_file.connect(path, lock_seconds))
        return opened[-1]

    async def story() -> list[tuple[object, object]]:
        engine = SqliteRunStore(tmp_path / "flows.db", connect=connect)
        await _begun(engine)
        modes = [
            (
                one.execute("PRAGMA journal_mode").fetchone()[0],
                one.execute("PRAGMA synchronous").fetchone()[0],
            )
            for one in opened
        ]
        await engine.close()
        return modes

    full = 2
    assert event_loop.run(story()) == [("wal", full)]


def test_writes_that_wait_together_share_one_commit(tmp_path: Path) -> None:
    path = tmp_path / "flows.db"
    said: list[str] = []

    def connect(path: Path, lock_seconds: float) -> sqlite3.Connection:
        connection = store_file.connect(path, lock_seconds)
        connection.set_trace_callback(said.append)
        return connection

    async def story() -> None:
        engine = SqliteRunStore(path, connect=connect)
        claim = await _begun(engine)
        said.clear()
        with _held(path):
            writes = [
                asyncio.create_task(engine.end_call(claim, made.done(f"{number}")))
                for number in range(900)
            ]
            await asyncio.sleep(0)
        await asyncio.gather(*writes)
        assert len(await engine.calls("run-1")) == 900
        await engine.close()

    event_loop.run(story())
    # One for those that came before the thread awoke, one for all others.
    assert said.count("COMMIT") <= 2


def test_a_write_whose_caller_was_cancelled_is_made_in_its_order(disk: World) -> None:
    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        with _held(disk.path):
            writes = [
                asyncio.create_task(engine.write_entry(claim, made.entry(number)))
                for number in (1, 2, 3)
            ]
            await asyncio.sleep(0)
            writes[1].cancel()
        await asyncio.gather(*writes, return_exceptions=True)
        assert writes[1].cancelled()
        assert len(await engine.entries("run-1/a/0")) == 3

    disk.run(story)


def test_a_claim_fences_what_was_asked_for_after_it_in_the_same_commit(disk: World) -> None:
    async def story(engine: RunStore) -> None:
        old = await _begun(engine)
        disk.now += LEASE
        with _held(disk.path):
            asked = [
                asyncio.ensure_future(work)
                for work in (
                    engine.note("run-1", disk.now, "wakes the thread", "", {}),
                    engine.begin_call(old, made.call("a")),
                    engine.claim("run-1", owner="other", lease=LEASE),
                    engine.begin_call(old, made.call("b")),
                    engine.begin_call(Claim("run-1", "other", 2), made.call("c")),
                )
            ]
            await asyncio.sleep(0)
        told = await asyncio.gather(*asked, return_exceptions=True)
        assert told[:3] == [None, None, Claim("run-1", "other", 2)]
        assert isinstance(told[3], LeaseLostError)
        assert [call.key for call in await engine.calls("run-1")] == ["a", "c"]

    disk.run(story)


def test_closing_writes_what_waits_and_then_refuses(disk: World) -> None:
    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        writes = [
            asyncio.create_task(engine.end_call(claim, made.done(f"{number}")))
            for number in range(50)
        ]
        await asyncio.sleep(0)
        await engine.close()
        await engine.close()
        await asyncio.gather(*writes)
        with pytest.raises(JournalError, match="closed"):
            await engine.begin_call(claim, made.call("late"))
        with pytest.raises(JournalError, match="closed"):
            await engine.runs()

    disk.run(story)
    assert len(disk.run(lambda engine: engine.calls("run-1"))) == 50
    assert [file.name for file in disk.path.parent.iterdir()] == ["flows.db"]


def test_a_record_that_cannot_be_kept_costs_no_other(disk: World) -> None:
    impossible = [made.done("b", label="\udc80"), made.done("c", tokens=2**63)]

    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        calls = [made.done("a"), *impossible, made.done("d")]
        with _held(disk.path):
            writes = [asyncio.create_task(engine.end_call(claim, one)) for one in calls]
            await asyncio.sleep(0)
        told = await asyncio.gather(*writes, return_exceptions=True)
        assert [type(one) for one in told] == [type(None), JournalError, JournalError, type(None)]
        assert [one.key for one in await engine.calls("run-1")] == ["a", "d"]

    disk.run(story)


def test_several_engines_share_one_file(disk: World) -> None:
    async def story(one: RunStore) -> None:
        other = disk.engine()
        claims = await asyncio.gather(
            *(_begun(engine, f"{n}") for n, engine in enumerate((one, other)))
        )
        await asyncio.gather(
            *(
                engine.end_call(claim, made.done(f"{number}", run_id=claim.run_id))
                for number in range(100)
                for engine, claim in zip((other, one), claims, strict=True)
            )
        )
        for run_id in ("0", "1"):
            assert len(await one.calls(run_id)) == len(await other.calls(run_id)) == 100
        await other.close()

    disk.run(story)


def test_a_long_value_lies_in_the_file_once_and_goes_with_its_last_name(disk: World) -> None:
    short, other = b"s" * INLINE_BYTES, b"o" * (INLINE_BYTES + 1)

    def blobs() -> set[int]:
        return {int(str(size)) for (size,) in _asked(disk.path, "SELECT length(data) FROM blobs")}

    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        await engine.end_call(claim, made.done("short", short, outcome=short))
        assert blobs() == set()
        for key in ("a", "b"):
            await engine.end_call(claim, made.done(key, LONG, outcome=LONG))
            await engine.write_entry(claim, made.entry(1, f"run-1/{key}/0", data=LONG))
        await engine.end_call(claim, made.call("c", CallState.FAILED, outcome=other))
        await engine.fork("run-1", made.run("run-2"), owner="f", lease=LEASE, without=[])
        assert blobs() == {len(LONG), len(other)}
        assert _asked(disk.path, "SELECT count(*) FROM blobs") == [(2,)]
        await engine.begin_call(claim, made.call("c"))
        assert blobs() == {len(LONG)}
        await engine.forget_calls(claim, [("a", 0), ("b", 0)])
        assert blobs() == {len(LONG)}
        await engine.change(claim, made.run(outcome=other))
        await engine.change(claim, made.run(outcome=other, why="again"))
        assert blobs() == {len(LONG), len(other)}
        await engine.let_go(claim, made.run(state=RunState.FINISHED, outcome=other))
        await engine.delete_run("run-1")
        assert blobs() == {len(LONG)}
        assert [call.value for call in await engine.calls("run-2")] == [short, LONG, LONG]
        fork = await engine.claim("run-2", owner="f", lease=LEASE)
        assert fork is not None
        await engine.let_go(fork, made.run("run-2", RunState.CANCELLED))
        await engine.delete_run("run-2")
        assert blobs() == set()

    disk.run(story)
    tables = ("runs", "calls", "agent_logs", "entries", "sessions", "notes", "hooks", "resources")
    for table in (*tables, "agent_orders"):
        assert _asked(disk.path, f"SELECT count(*) FROM {table}") == [(0,)]  # noqa: S608


def test_a_newer_file_and_a_foreign_one_are_left_alone(disk: World, tmp_path: Path) -> None:
    disk.run(_begun)
    newer = store_file.FILE.version + 1
    with closing(sqlite3.connect(disk.path)) as file:
        file.execute(f"PRAGMA user_version = {newer}")
    with Journal(tmp_path / "journal.db"):
        pass
    for path, said in ((disk.path, "newer Jackline"), (tmp_path / "journal.db", "another program")):
        before = _asked(path, "SELECT sql FROM sqlite_master")

        async def story(path: Path = path, said: str = said) -> None:
            engine = SqliteRunStore(path)
            with pytest.raises(JournalError, match=said) as caught:
                await _begun(engine, "run-2")
            assert caught.value.hint
            with pytest.raises(JournalError, match=said):
                await engine.runs()
            await engine.close()

        event_loop.run(story())
        assert _asked(path, "SELECT sql FROM sqlite_master") == before


def test_a_migration_happens_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "flows.db"
    good, bad = ("CREATE TABLE news (what TEXT)",), ("CREATE TABLE more (x)", "CREATE NONSENSE")
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        store_file.FILE.migrate(file)
        with pytest.raises(sqlite3.OperationalError):
            replace(store_file.FILE, steps=(*store_file.MIGRATIONS, good, bad)).migrate(file)
        assert store_file.FILE.version_of(file) == store_file.FILE.version
        newer = replace(store_file.FILE, steps=(*store_file.MIGRATIONS, good))
        newer.migrate(file)
        assert newer.version_of(file) == store_file.FILE.version + 1
        names = {name for (name,) in file.execute("SELECT name FROM sqlite_master")}
    assert "news" in names
    assert "more" not in names


@pytest.mark.parametrize("moment", [0, 1, 2])
def test_a_file_that_another_process_makes_at_this_moment_is_no_foreign_one(
    tmp_path: Path, moment: int
) -> None:
    path = tmp_path / "flows.db"
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as one,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        other.execute("PRAGMA journal_mode = WAL")
        asked: list[str] = []

        def make_it_now(question: str) -> None:
            asked.append(question)
            if len(asked) == moment + 1:
                store_file.FILE.migrate(other)

        one.set_trace_callback(make_it_now)
        assert store_file.FILE.version_of(one) in (0, store_file.FILE.version)
        store_file.FILE.migrate(one)
        assert len(asked) > moment
        assert store_file.FILE.version_of(one) == store_file.FILE.version


def test_a_store_of_the_first_version_is_opened_and_can_take_orders(disk: World) -> None:
    disk.path.parent.mkdir()
    order = AgentOrder("run-1", "search 7", NOON)
    with closing(sqlite3.connect(disk.path, isolation_level=None)) as file:
        replace(store_file.FILE, steps=store_file.MIGRATIONS[:1]).migrate(file)
        file.execute(
            """INSERT INTO runs VALUES ('run-1', 'f', '/f.py', x'7b7d', x'7b7d', '/', 'stopped', 1,
            1, NULL, '', NULL, NULL, NULL, NULL, '', 0, 0, 1, 0, 0, 0, '')"""
        )

    async def story(engine: RunStore) -> None:
        run = await engine.run("run-1")
        assert run is not None
        assert not run.trusted, "nothing tells it from one that somebody else wrote"
        await engine.order_end(order)
        assert await engine.ordered_ends("run-1") == [order]

    disk.run(story)
    with closing(sqlite3.connect(disk.path)) as file:
        assert store_file.FILE.version_of(file) == store_file.FILE.version > 1


# The third version's columns of each record, and what its signatures covered.
_THIRD = {
    "runs": (
        """run_id, flow, source, arguments, settings, cwd, state, created_at, updated_at, why,
        owner, lease_until, lease_seconds, epoch, tokens, cost, confirmed, asked""",
        """'run-1', 'f', '/f.py', x'7b7d', x'7b7d', '/', 'stopped', 1.0, 1.0, '', '', 0.0, 30.0, 1,
        0, 0.0, 0, 'stop'""",
        """'run', run_id, flow, source, arguments, settings, cwd, forked_from, state, wake_at,
        confirmed""",
    ),
    "calls": (
        """run_id, key, occurrence, kind, label, phase, task_id, state, value, attempts,
        started_at, tokens, cost, terminated_by""",
        "'run-1', 'a', 0, 'agent', 'a', '', 't1', 'done', x'31', 1, 1.0, 0, 0.0, 'completion'",
        """'call', run_id, key, occurrence, kind, label, phase, task_id, state,
        coalesce(value, (SELECT data FROM blobs WHERE sha = value_blob)),
        coalesce(calls.outcome, (SELECT data FROM blobs WHERE sha = outcome_blob)),
        attempts, terminated_by""",
    ),
    "entries": (
        "notebook, number, kind, data, at",
        "1, 1, 'session', x'7b7d', 1.0",
        """'entry', (SELECT task_id FROM notebooks WHERE id = notebook),
        (SELECT run_id FROM notebooks WHERE id = notebook), number, kind,
        coalesce(entries.data, (SELECT blobs.data FROM blobs WHERE sha = data_blob))""",
    ),
    "resources": (
        "run_id, name, task_id, release, release_on_park, state, taken_at, tries, trouble",
        "'run-1', 'gpu', 't1', 'free it', 1, 'held', 1.0, 0, ''",
        "'resource', run_id, name, task_id, release, release_on_park, lease_until, state",
    ),
    "hooks": (
        "run_id, end_id, hook, told, state, tries, trouble, at",
        "'run-1', 't1#1', 'tidy', x'7b7d', 'due', 0, '', 1.0",
        "'hook', run_id, end_id, hook, told, state",
    ),
}


def _third_version(path: Path) -> None:
    """A store as the third version wrote it, with a signed record in each table."""
    path.parent.mkdir()
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        replace(store_file.FILE, steps=store_file.MIGRATIONS[:3]).migrate(file)
        row_checks.prepare(file, None)
        file.execute("INSERT INTO notebooks (task_id, run_id) VALUES ('t1', 'run-1')")
        file.execute("INSERT INTO sessions (session_id, notebook) VALUES ('s1', 1)")
        for table, (columns, values, signed) in _THIRD.items():
            file.execute(f"INSERT INTO {table} ({columns}) VALUES ({values})")  # noqa: S608
            file.execute(f"UPDATE {table} SET signature = jackline_signature({signed})")  # noqa: S608


async def _trusted(engine: RunStore) -> dict[str, bool]:
    run = await engine.run("run-1")
    assert run is not None
    (call,), (line,) = await engine.calls("run-1"), await engine.entries("t1")
    (resource,), (hook,) = await engine.resources(), await engine.hooks("run-1")
    assert hook.outcome == b"{}"
    assert await engine.stop_request("run-1") == "stop"
    found = await engine.find_session("s1")
    assert found is not None
    assert found.task_id == "t1"
    return {
        "runs": run.trusted,
        "calls": call.trusted,
        "entries": line.trusted,
        "resources": resource.trusted,
        "hooks": hook.trusted,
    }


def test_a_signature_of_the_third_version_is_valid_after_the_migration(disk: World) -> None:
    _third_version(disk.path)
    assert disk.run(_trusted) == dict.fromkeys(_THIRD, True)


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("runs", "source = '/evil.py'"),
        ("calls", "value = x'32'"),
        ("entries", "data = x'7b202020207d'"),
        ("resources", "release = 'evil'"),
        ("hooks", "hook = 'evil'"),
        ("hooks", "signature = NULL"),
    ],
)
def test_a_migration_signs_nothing(disk: World, table: str, change: str) -> None:
    _third_version(disk.path)
    with closing(sqlite3.connect(disk.path, isolation_level=None)) as file:
        file.execute(f"UPDATE {table} SET {change}")  # noqa: S608
    assert disk.run(_trusted) == {each: each != table for each in _THIRD}
