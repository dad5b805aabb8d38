"""A store of runs that somebody else wrote: its commands and its flow files are listed, not run."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from jackline import event_loop
from jackline.clock import SystemClock
from jackline.errors import JournalError
from jackline.flows.host import FlowHost
from jackline.flows.records import CallKind, CallRecord, CallState, EntryRecord, RunRecord, RunState
from jackline.flows.run_processes import Waker
from jackline.flows.store import open_run_store, run_store_url
from jackline.flows.store.sqlite import store_file
from jackline.journal import Journal
from jackline.journal.store import JournalReader, forget_runs
from jackline.mcp_server.agent_manager import AgentManager
from jackline.mcp_server.flow.started_agents import started_agents
from jackline.testing.scripted_agents import ScriptedRunner
from tests.attacks.planting import (
    add_run,
    another_installation,
    flow_file,
    marking,
    overdue,
    plant_everything,
)
from tests.cli.commands import Answer, jackline
from tests.cli.gateways import Place, until

NOT_OURS = "not written by this installation"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("JACKLINE_PORT", "0")
    yield folder / "flows.db"
    if (folder / "gateway.json").exists():
        jackline("down", "--state", folder)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "mark"


def told(*words: str, store: Path) -> Answer:
    return jackline(*words, "--state", str(store.parent))


def test_overdue_releases_and_hooks_of_a_planted_store_are_not_run(
    store: Path, mark: Path, tmp_path: Path
) -> None:
    plant_everything(store, tmp_path / "repo", mark)
    answer = told("resources", "--retry", store=store)
    assert not mark.exists(), "a command of the planted store was run"
    assert answer.out.count(NOT_OURS) == 3, answer
    shown = json.loads(told("resources", "--json", store=store).out)["resources"]
    assert [each["trusted"] for each in shown] == [False] * 3


def test_a_service_neither_wakes_nor_cleans_up_after_planted_runs(
    store: Path, mark: Path, tmp_path: Path
) -> None:
    plant_everything(store, tmp_path / "repo", mark)
    started: list[str] = []

    async def main() -> None:
        waker = Waker(
            store.parent,
            run_store_url(store.parent),
            SystemClock(),
            start=lambda run: started.append(run.run_id),
            clean_up=lambda: started.append("clean-up"),
        )
        await waker.look()
        await waker.look()

    event_loop.run(main())
    assert started == []


def test_a_running_gateway_runs_nothing_of_a_planted_store(
    store: Path, mark: Path, tmp_path: Path
) -> None:
    plant_everything(store, tmp_path / "repo", mark)
    place = Place(tmp_path, "http://127.0.0.1:9")
    with place.up() as gateway:
        until(lambda: NOT_OURS in gateway.output, "a word about the planted runs")
        until(lambda: NOT_OURS in place.jackline("status").out, "a word of `status` about them")
        assert not (store.parent / "woken-runs.log").exists()
    assert not mark.exists()


@pytest.mark.parametrize("planted", [False, True])
def test_agents_of_a_planted_store_are_not_taken_up_by_the_service(
    planted: bool, store: Path, tmp_path: Path
) -> None:
    order = {"prompt": "evil", "label": "a", "runner": "scripted", "cwd": str(tmp_path)}
    arguments = json.dumps({"orders": [order]}).encode()

    async def plant() -> None:
        engine = open_run_store(run_store_url(store.parent))
        for run_id, state in (("cut", RunState.RUNNING), ("asleep", RunState.PARKED)):
            await add_run(
                engine,
                run_id,
                state,
                source=started_agents.source,
                cwd=str(tmp_path),
                flow=started_agents.name,
                arguments=arguments,
                wake_at=1.0,
            )
        await engine.close()

    async def serve() -> set[str]:
        engine, runner = (
            open_run_store(run_store_url(store.parent)),
            ScriptedRunner(name="scripted"),
        )
        host = FlowHost(engine, lambda _run_id: {runner.name: runner})

        async def opened() -> FlowHost:
            return host

        desk = AgentManager(opened, SystemClock())
        await desk.look_after()
        await Waker(
            store.parent,
            run_store_url(store.parent),
            SystemClock(),
            start=lambda _run: None,
            here=desk.wakes,
        ).look()
        waking = [t for t in asyncio.all_tasks() if t.get_name().startswith("waking")]
        if waking:
            await asyncio.wait(waking)
        await desk.close()
        await engine.close()
        return set(runner.begun)

    if planted:
        with another_installation(tmp_path / "attacker"):
            event_loop.run(plant())
    else:
        event_loop.run(plant())
    assert event_loop.run(serve()) == (set() if planted else {"a"})


@pytest.mark.parametrize(
    "verb", [("resume",), ("resume", "--woken"), ("resume", "--failed"), ("resume", "--now")]
)
@pytest.mark.parametrize("run_id", ["asleep", "cut", "rented"])
def test_no_verb_loads_the_flow_file_of_a_planted_run(
    verb: tuple[str, ...], run_id: str, store: Path, mark: Path, tmp_path: Path
) -> None:
    plant_everything(store, tmp_path / "repo", mark)
    answer = told(*verb, run_id, store=store)
    assert not mark.exists(), "the planted flow file was loaded"
    if verb != ("resume", "--woken"):
        assert answer.code == 2, answer
        assert NOT_OURS in answer.err
        assert f"jackline show {run_id} --trust" in answer.err


@pytest.mark.parametrize("run_id", ["asleep", "cut"])
def test_cancelling_a_planted_run_runs_nothing(
    run_id: str, store: Path, mark: Path, tmp_path: Path
) -> None:
    plant_everything(store, tmp_path / "repo", mark)

    async def add_more() -> None:
        engine = open_run_store(run_store_url(store.parent))
        await engine.save_resource(overdue(run_id, "function main"))
        await engine.close()

    with another_installation(tmp_path / "repo" / "attacker"):
        event_loop.run(add_more())
    assert told("cancel", run_id, store=store).code == 0
    assert not mark.exists()
    for words in ((), ("--failed",)):
        told("resume", run_id, *words, store=store)
    assert not mark.exists(), "our own writing has signed somebody else's run"


def test_every_list_says_which_runs_are_not_ours(store: Path, mark: Path, tmp_path: Path) -> None:
    plant_everything(store, tmp_path / "repo", mark)
    assert told("ls", store=store).out.count(NOT_OURS) == 6
    assert NOT_OURS in told("ls", "--parked", store=store).out
    assert NOT_OURS in told("show", "asleep", store=store).out
    listed = json.loads(told("ls", "--json", store=store).out)["runs"]
    assert [run["trusted"] for run in listed] == [False] * 6


def test_a_person_may_accept_a_run_after_having_seen_it(
    store: Path, mark: Path, tmp_path: Path
) -> None:
    plant_everything(store, tmp_path / "repo", mark)
    asked = told("show", "rented", "--trust", store=store)
    assert asked.code == 2, "without a terminal nobody has said yes"
    assert "--yes" in asked.err
    assert marking(mark) in asked.out
    assert "planted_flow.py" in asked.out
    told("resources", "--retry", store=store)
    assert not mark.exists()
    assert told("show", "rented", "--trust", "--yes", store=store).code == 0
    told("resources", "--retry", store=store)
    assert mark.read_text() == "it ran"


def wants(command: str, call_id: str = "c1") -> tuple[str, object]:
    """The line of an answer in which the model has asked for a command."""
    call = {"type": "tool_use", "id": call_id, "name": "shell", "input": {"command": command}}
    return "answer", {"content": [call], "stop_reason": "tool_use", "usage": [1, 1, 0, 0]}


def plant_notebooks(store: Path, folder: Path, books: dict[str, list[tuple[str, object]]]) -> None:
    """A run of somebody else with these notebooks; only agent `t1` has a call."""

    async def write() -> None:
        engine = open_run_store(run_store_url(store.parent))
        record = RunRecord("r1", "work", str(folder / "own.py"), b"{}")
        claim = await engine.create(record, owner="elsewhere:1:x", lease=30)
        call = CallRecord("r1", "k", 0, CallKind.AGENT, "a", "", "t1", CallState.RUNNING)
        await engine.begin_call(claim, call)
        for task, lines in books.items():
            for number, (kind, data) in enumerate(lines, 1):
                line = EntryRecord(task, number, kind, json.dumps(data).encode(), 1.0)
                await engine.write_entry(claim, line)
        await engine.let_go(claim, replace(record, state=RunState.STOPPED))
        await engine.close()

    with another_installation(folder / "attacker"):
        event_loop.run(write())


ENDED_WELL = ("tool_ended", {"id": "c1", "ok": True, "content": ""})
OWN_BEGIN: list[tuple[str, object]] = [
    ("session", {"task_id": "t1", "session_id": "s"}),
    ("prompt", {"text": "work"}),
]
HIDDEN_CALLS: dict[str, dict[str, list[tuple[str, object]]]] = {
    "in the notebook": {"t1": [wants("evil-command")]},
    "after one that has ended": {
        "t1": [wants("ls"), ENDED_WELL, ("results", {}), wants("evil-command", "c2")]
    },
    "in a notebook without a call": {"t1": OWN_BEGIN, "t2": [wants("evil-command")]},
    "before the last line of a notebook that another goes on from": {
        "t2": [wants("evil-command"), ENDED_WELL],
        "t1": [("flow:follows", {"task_id": "t2", "lines": -1}), *OWN_BEGIN],
    },
    "in the part of a notebook that another goes on from": {
        "t2": [wants("evil-command"), ENDED_WELL, ("results", {})],
        "t1": [("flow:follows", {"task_id": "t2", "lines": 1}), *OWN_BEGIN],
    },
}


@pytest.mark.parametrize("where", HIDDEN_CALLS)
def test_whoever_accepts_a_run_is_shown_the_tool_calls_that_it_would_make(
    where: str, store: Path, tmp_path: Path
) -> None:
    plant_notebooks(store, tmp_path, HIDDEN_CALLS[where])
    asked = told("show", "r1", "--trust", store=store)
    assert asked.code == 2, asked
    assert 'shell {"command": "evil-command"}' in asked.out, asked
    assert "are used as they are" in asked.out


@pytest.mark.parametrize(
    "book",
    [
        [wants("x" * 30_000)],
        [("answer", {"content": [{"type": "tool_use", "name": "shell"}]})],
        [("answer", [])],
        [("flow:follows", {"task_id": "t1", "lines": 9})],
    ],
)
def test_a_notebook_that_cannot_be_shown_is_not_accepted(
    book: list[tuple[str, object]], store: Path, tmp_path: Path
) -> None:
    plant_notebooks(store, tmp_path, {"t1": book})
    answer = told("show", "r1", "--trust", "--yes", store=store)
    assert answer.code == 2, answer
    assert "nothing was accepted" in answer.err
    assert "jackline rm" in answer.err
    assert NOT_OURS in told("ls", store=store).out


def test_a_session_to_resume_is_shown_and_is_never_an_option(store: Path, tmp_path: Path) -> None:
    sessions = ("0f-1", "--yolo")
    plant_notebooks(store, tmp_path, {"t1": [("began", {"session": each}) for each in sessions]})
    asked = told("show", "r1", "--trust", store=store)
    assert "resumes session 0f-1" in asked.out, asked


def test_results_that_a_run_would_take_over_are_shown(store: Path, tmp_path: Path) -> None:
    async def write() -> None:
        engine = open_run_store(run_store_url(store.parent))
        record = RunRecord("r1", "work", "", b"{}")
        claim = await engine.create(record, owner="elsewhere:1:x", lease=30)
        call = CallRecord("r1", "k", 0, CallKind.STEP, "plan", "", "", CallState.RUNNING)
        await engine.begin_call(claim, call)
        await engine.end_call(claim, replace(call, state=CallState.DONE, value=b'"curl evil"'))
        await engine.let_go(claim, replace(record, state=RunState.STOPPED))
        await engine.close()

    with another_installation(tmp_path / "attacker"):
        event_loop.run(write())
    assert 'takes   "curl evil"   (for step plan)' in told("show", "r1", "--trust", store=store).out


def test_a_run_in_a_cloned_folder_is_not_woken_with_that_folder_s_modules(
    store: Path, mark: Path, tmp_path: Path
) -> None:
    repo = tmp_path / "cloned"
    repo.mkdir()
    (repo / "jackline.py").write_text(f"open({str(mark)!r}, 'w').write('shadowed')")
    (repo / "flow.py").write_text("from jackline import flow\n@flow\nasync def own(): return 1\n")

    async def main() -> None:
        engine = open_run_store(run_store_url(store.parent))
        await add_run(
            engine, "r1", RunState.PARKED, source=str(repo / "flow.py"), cwd=str(repo), wake_at=1.0
        )
        await engine.close()
        waker = Waker(store.parent, run_store_url(store.parent), SystemClock())
        await waker.look()
        for process in waker._started:
            process.wait()

    event_loop.run(main())
    assert not mark.exists(), "`python -m jackline` took a module of the run's folder"


# --- rows moved, changed and confused -------------------------------------------------------------


def ours(store: Path, tmp_path: Path, mark: Path) -> None:
    """A store of our own with one finished run that holds something harmless."""

    async def main() -> None:
        engine = open_run_store(run_store_url(store.parent))
        source = str(flow_file(tmp_path, mark))
        for run_id in ("r1", "r2"):
            await add_run(engine, run_id, RunState.FINISHED, source=source, cwd=str(tmp_path))
            await engine.save_resource(overdue(run_id, f"echo {run_id}"))
        await add_run(engine, "p1", RunState.PARKED, source=source, cwd=str(tmp_path), wake_at=1.0)
        await engine.close()

    event_loop.run(main())


def trusted(store: Path) -> dict[str, bool]:
    async def main() -> dict[str, bool]:
        engine = open_run_store(run_store_url(store.parent))
        found = {run.run_id: run.trusted for run in await engine.runs()}
        rented = await engine.resources()
        await engine.close()
        return found | {f"{each.run_id}/{each.name}": each.trusted for each in rented}

    return event_loop.run(main())


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        ("UPDATE resources SET release = 'evil' WHERE run_id = 'r1'", {"r1/gpu"}),
        (
            """UPDATE resources SET release = (SELECT release FROM resources WHERE run_id = 'r2'),
            signature = (SELECT signature FROM resources WHERE run_id = 'r2')
            WHERE run_id = 'r1'""",
            {"r1/gpu"},
        ),
        ("UPDATE resources SET name = 'gp', task_id = 'u' WHERE run_id = 'r1'", {"r1/gp"}),
        ("UPDATE resources SET name = 'gpuec', release = 'ho r1' WHERE run_id='r1'", {"r1/gpuec"}),
        ("UPDATE resources SET lease_until = 0.5 WHERE run_id = 'r1'", {"r1/gpu"}),
        ("UPDATE resources SET signature = NULL WHERE run_id = 'r1'", {"r1/gpu"}),
        ("UPDATE resources SET signature = '' WHERE run_id = 'r1'", {"r1/gpu"}),
        (
            "UPDATE resources SET signature = CAST(signature AS BLOB) WHERE run_id = 'r1'",
            {"r1/gpu"},
        ),
        ("UPDATE runs SET cwd = '/elsewhere' WHERE run_id = 'r1'", {"r1"}),
        ("UPDATE runs SET source = '/evil.py' WHERE run_id = 'r1'", {"r1"}),
        ("UPDATE runs SET flow = 'other' WHERE run_id = 'r1'", {"r1"}),
        ("UPDATE runs SET arguments = x'7b207d' WHERE run_id = 'r1'", {"r1"}),
        ("UPDATE runs SET settings = x'7b7d' WHERE run_id = 'r1'", {"r1"}),
        ("UPDATE runs SET state = 'parked', wake_at = 1.0 WHERE run_id = 'r1'", {"r1"}),
        ("UPDATE runs SET wake_at = 2.0 WHERE run_id = 'p1'", {"p1"}),
        ("UPDATE runs SET confirmed = 1 WHERE run_id = 'p1'", {"p1"}),
        ("UPDATE runs SET source = source || char(0) || 'x' WHERE run_id = 'r1'", {"r1"}),
        ("UPDATE runs SET flow = hex(zeroblob(5000000)) WHERE run_id = 'r1'", {"r1"}),
        (
            """UPDATE runs SET signature = (SELECT signature FROM resources WHERE run_id = 'r1')
            WHERE run_id = 'r1'""",
            {"r1"},
        ),
        (
            "UPDATE store SET store_id = '00000000000000000000000000000000'",
            {"r1", "r2", "p1", "r1/gpu", "r2/gpu"},
        ),
    ],
)
def test_a_changed_or_moved_row_is_not_ours_any_more(
    change: str, lost: set[str], store: Path, tmp_path: Path, mark: Path
) -> None:
    ours(store, tmp_path, mark)
    assert all(trusted(store).values())
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(change)
    assert {name for name, held in trusted(store).items() if not held} == lost


def test_a_row_of_our_other_store_is_not_ours_here(store: Path, tmp_path: Path, mark: Path) -> None:
    ours(store, tmp_path, mark)
    other = tmp_path / "other" / "flows.db"
    other.parent.mkdir(mode=0o700)

    async def make() -> None:
        engine = open_run_store(run_store_url(other.parent))
        await engine.runs()
        await engine.close()

    event_loop.run(make())
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("ATTACH ? AS ours", (str(store),))
        for table in ("runs", "resources"):
            connection.execute(f"INSERT INTO {table} SELECT * FROM ours.{table}")  # noqa: S608
    assert set(trusted(other).values()) == {False}


def test_a_finished_result_or_a_notebook_line_of_somebody_else_is_not_gone_on_with(
    store: Path, tmp_path: Path, mark: Path
) -> None:
    async def main() -> None:
        engine = open_run_store(run_store_url(store.parent))
        source = str(flow_file(tmp_path, mark))
        for run_id in ("calls", "lines"):
            await add_run(
                engine,
                run_id,
                RunState.STOPPED,
                source=source,
                cwd=str(tmp_path),
                task=f"t-{run_id}",
            )
        await engine.close()

    event_loop.run(main())
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(
            "UPDATE calls SET state = 'done', value = x'226576696c22' WHERE run_id = 'calls'"
        )
        connection.execute(
            "UPDATE entries SET data = x'7b2261223a317d' WHERE agent_log ="
            " (SELECT id FROM agent_logs WHERE run_id = 'lines')"
        )
    answer = told("resume", "calls", store=store)
    assert answer.code == 2, answer
    assert NOT_OURS in answer.err

    async def look() -> None:
        engine = open_run_store(run_store_url(store.parent))
        assert [line.trusted for line in await engine.entries("t-lines")] == [False]
        assert [call.trusted for call in await engine.calls("calls")] == [False]
        await engine.close()

    event_loop.run(look())


# --- planted schemas ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "planted",
    [
        "CREATE TRIGGER t AFTER INSERT ON runs BEGIN UPDATE resources SET release = 'evil'; END",
        "CREATE VIEW v AS SELECT * FROM runs",
        "ALTER TABLE resources RENAME TO r2; CREATE VIEW resources AS SELECT * FROM r2",
        "ALTER TABLE runs ADD COLUMN g TEXT AS (upper(cwd)) VIRTUAL",
        "CREATE INDEX i ON runs (lower(source))",
        "CREATE TABLE sqlar (name TEXT)",
        "CREATE VIRTUAL TABLE f USING fts5(x)",
        "DROP TABLE hooks",
        "DELETE FROM store",
        "UPDATE store SET store_id = x'00'",
        "INSERT INTO store VALUES ('1111')",
    ],
)
def test_a_store_with_another_schema_is_not_opened(
    planted: str, store: Path, tmp_path: Path, mark: Path
) -> None:
    ours(store, tmp_path, mark)
    with closing(sqlite3.connect(store)) as connection:
        connection.executescript(planted)
    answer = told("ls", store=store)
    assert answer.code != 0, answer
    assert "not made by Jackline" in answer.err
    assert "--state" in answer.err
    assert "Traceback" not in answer.err


def rewrite_schema(path: Path, *changes: tuple[str, tuple[object, ...]]) -> None:
    """Write the schema's table itself, which no CREATE statement can do."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        (version,) = connection.execute("PRAGMA schema_version").fetchone()
        connection.execute("PRAGMA writable_schema = ON")
        for change, values in changes:
            connection.execute(change, values)
        connection.execute(f"PRAGMA schema_version = {version + 1}")


ADD = "INSERT INTO sqlite_master (type, name, tbl_name, rootpage, sql) VALUES (?, ?, ?, 0, ?)"
EDIT = "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE name = 'calls'"
HIJACK = """CREATE TRIGGER {name} AFTER UPDATE OF state ON runs WHEN NEW.state = 'finished'
    BEGIN UPDATE runs SET source = '/evil.py', state = 'parked', wake_at = 1.0
    WHERE run_id = NEW.run_id; END"""


def planted_trigger(name: str) -> tuple[str, tuple[object, ...]]:
    return ADD, ("trigger", name, "runs", HIJACK.format(name=name))


REWRITTEN = {
    "a trigger with the name of a statistics table": planted_trigger("sqlite_stat2"),
    "a trigger with the name of a real one": planted_trigger("sqlite_stat1"),
    "a trigger with the name of a sequence": planted_trigger("sqlite_sequence"),
    "a trigger with the name of an index of SQLite's": planted_trigger("sqlite_autoindex_runs_2"),
    "a view with the name of a statistics table": (
        ADD,
        ("view", "sqlite_stat4", "sqlite_stat4", "CREATE VIEW sqlite_stat4 AS SELECT * FROM runs"),
    ),
    "a space that is none to SQLite": (EDIT, ("INTEGER PRIMARY KEY", "INTEGER\xa0PRIMARY\xa0KEY")),
    "a schema in bytes": (
        "UPDATE sqlite_master SET sql = CAST(sql AS BLOB) WHERE name = 'calls'",
        (),
    ),
    "two tables on one page": (
        """UPDATE sqlite_master SET rootpage =
        (SELECT rootpage FROM sqlite_master WHERE name = 'resources') WHERE name = 'hooks'""",
        (),
    ),
}


@pytest.mark.parametrize("planted", REWRITTEN)
def test_a_store_whose_schema_was_rewritten_is_not_opened(
    planted: str, store: Path, tmp_path: Path, mark: Path
) -> None:
    ours(store, tmp_path, mark)
    rewrite_schema(store, REWRITTEN[planted])
    answer = told("ls", store=store)
    assert answer.code != 0, answer
    assert "not made by Jackline" in answer.err
    assert "--state" in answer.err
    assert "Traceback" not in answer.err


def test_a_trigger_that_comes_while_the_store_is_open_changes_nothing(
    store: Path, tmp_path: Path, mark: Path
) -> None:
    async def main() -> None:
        engine = open_run_store(run_store_url(store.parent))
        record = RunRecord("r1", "own", str(flow_file(tmp_path, mark)), b"{}")
        claim = await engine.create(record, owner="me", lease=30)
        rewrite_schema(store, planted_trigger("sqlite_stat2"))
        with pytest.raises(JournalError):
            await engine.let_go(claim, replace(record, state=RunState.FINISHED))
        await engine.close()

    event_loop.run(main())
    with closing(sqlite3.connect(store)) as connection:
        rows = connection.execute("SELECT source, state FROM runs").fetchall()
    assert rows == [(str(tmp_path / "planted_flow.py"), "running")]


def test_a_journal_with_a_planted_trigger_is_not_opened(store: Path) -> None:
    path = store.with_name("journal.db")
    with Journal(path):
        pass
    evil = "INSERT INTO notes VALUES (1.0, 'evil', '')"
    trigger = f"CREATE TRIGGER sqlite_stat3 AFTER DELETE ON calls BEGIN {evil}; END"
    rewrite_schema(path, (ADD, ("trigger", "sqlite_stat3", "calls", trigger)))
    with Journal(path) as journal:
        assert "not made by Jackline" in journal.health.problem
    with pytest.raises(JournalError, match="not made by Jackline"):
        JournalReader(path)
    with pytest.raises(JournalError, match="not made by Jackline"):
        forget_runs(path, ["r1"])


def test_a_store_whose_statistics_somebody_took_is_still_ours(
    store: Path, tmp_path: Path, mark: Path
) -> None:
    ours(store, tmp_path, mark)
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("ANALYZE")
    assert all(trusted(store).values())


def test_a_planted_trigger_does_not_fire_while_an_older_file_is_brought_up(
    store: Path,
) -> None:
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        for step in store_file.MIGRATIONS[:2]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {store_file.FILE.application}")
        connection.execute("PRAGMA user_version = 2")
        connection.execute(
            "CREATE TRIGGER t AFTER UPDATE ON runs BEGIN UPDATE runs SET cwd = '/evil'; END"
        )
    before = store.read_bytes()
    answer = told("ls", store=store)
    assert answer.code != 0
    assert "not made by Jackline" in answer.err
    assert store.read_bytes() == before, "it was changed before it was looked at"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE runs SET state = 'no such state'",
        "UPDATE runs SET lease_until = 'soon'",
        "UPDATE runs SET wake_at = x'00'",
        "UPDATE runs SET settings = 'text'",
        "UPDATE runs SET epoch = 1.5",
        "UPDATE runs SET cwd = x'2f'",
        "UPDATE runs SET source = CAST(x'ff' AS TEXT)",
        "UPDATE resources SET lease_until = 'soon'",
        "UPDATE resources SET state = 7",
        "UPDATE resources SET release = CAST(release AS BLOB)",
        "UPDATE runs SET arguments = '{}'",
        "UPDATE runs SET wake_at = 9e999",
        "UPDATE runs SET created_at = -1e300",
    ],
)
def test_a_field_of_a_wrong_kind_is_told_and_kills_nobody(
    change: str, store: Path, tmp_path: Path, mark: Path
) -> None:
    ours(store, tmp_path, mark)
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(change)
    for words in (("ls",), ("resources", "--retry"), ("ls", "--parked"), ("show", "p1")):
        answer = told(*words, store=store)
        assert answer.code != 0 or "resources" not in (*words, change), answer
        assert "Traceback" not in answer.err, answer.err
        assert "a bug in Jackline" not in answer.err, answer.err


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such names")
@pytest.mark.parametrize("name", ["a?mode=memory", "b#c", "d%2e%2e", "e;f", "file:g?vfs=unix-none"])
def test_a_folder_s_name_is_never_read_as_an_address(name: str, tmp_path: Path, mark: Path) -> None:
    store = tmp_path / name / "flows.db"
    store.parent.mkdir(mode=0o700)
    ours(store, tmp_path, mark)
    assert store.is_file()
    assert all(trusted(store).values())


def test_rows_in_a_log_that_was_laid_beside_the_store_are_not_ours(
    store: Path, tmp_path: Path, mark: Path
) -> None:
    ours(store, tmp_path, mark)
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("UPDATE resources SET release = ?", (marking(mark),))
        log = store.with_name("flows.db-wal").read_bytes()
        shm = store.with_name("flows.db-shm").read_bytes()
        file = store.read_bytes()
    assert len(log) > 1000
    for part, content in (("", file), ("-wal", log), ("-shm", shm)):
        store.with_name(f"flows.db{part}").write_bytes(content)
        store.with_name(f"flows.db{part}").chmod(0o600)
    told("resources", "--retry", store=store)
    assert not mark.exists()
    assert not any(held for name, held in trusted(store).items() if "/" in name)


def test_our_own_records_stay_ours_through_all_that_changes_them(
    store: Path, tmp_path: Path, mark: Path
) -> None:
    ours(store, tmp_path, mark)

    async def main() -> None:
        engine = open_run_store(run_store_url(store.parent))
        await engine.allow_waking("p1")
        claim = await engine.claim("p1", owner="me", lease=30)
        assert claim is not None
        record = await engine.run("p1")
        assert record is not None
        await engine.renew(claim, lease=60)
        await engine.change(claim, replace(record, state=RunState.RUNNING, wake_at=None))
        await engine.let_go(claim, replace(record, state=RunState.FINISHED, wake_at=None))
        await engine.close()

    event_loop.run(main())
    assert all(trusted(store).values())


def test_what_a_planted_record_holds_cannot_steer_the_terminal(store: Path, tmp_path: Path) -> None:
    hidden = "\x1b[2K\r\u202eharmless\x9b1A"

    async def main() -> None:
        engine = open_run_store(run_store_url(store.parent))
        await add_run(engine, "r1", RunState.FINISHED, source=f"/evil{hidden}.py", flow=hidden)
        await engine.save_resource(overdue("r1", f"evil {hidden}", name=hidden))
        await engine.note("r1", 1.0, hidden, hidden, {"says": hidden})
        await engine.close()

    with another_installation(tmp_path / "attacker"):
        event_loop.run(main())
    for words in (
        ("ls",),
        ("show", "r1"),
        ("show", "r1", "--trust"),
        ("resources",),
        ("logs", "r1"),
        ("rm", "r1", "--dry-run", "--force"),
    ):
        answer = told(*words, store=store)
        said = answer.out + answer.err
        assert not {"\x1b", "\r", "\u202e", "\x9b"} & set(said), (words, said)


STEERING = "\x1b]0;evil\x07\x1b[2J\r\u202eharmless\x9b1A"


def plant_steering_names(store: Path, folder: Path) -> None:
    """A store in which every name would steer a terminal; the runs are found by their beginning."""

    async def write() -> None:
        engine = open_run_store(run_store_url(store.parent))
        for begin, state in (("aa", RunState.PARKED), ("bb", RunState.FAILED)):
            run_id = begin + STEERING
            source = f"/evil{STEERING}.py"
            await add_run(engine, run_id, state, source=source, cwd=STEERING, flow=STEERING)
            record = await engine.run(run_id)
            assert record is not None
            claim = await engine.claim(run_id, owner=f"{STEERING}:1:x", lease=30)
            assert claim is not None
            names = (STEERING, STEERING, "t" + begin)
            call = CallRecord(run_id, "k", 0, CallKind.AGENT, *names, CallState.RUNNING)
            await engine.begin_call(claim, call)
            await engine.let_go(claim, replace(record, state=state, why=STEERING, wake_at=None))
            await engine.save_resource(overdue(run_id, STEERING, name=STEERING))
        await engine.close()

    with another_installation(folder / "attacker"):
        event_loop.run(write())


def steers(answer: Answer) -> bool:
    return bool({"\x1b", "\x07", "\r", "\u202e", "\x9b"} & set(answer.out + answer.err))


@pytest.mark.parametrize(
    "words",
    [
        ("ls",),
        ("ls", "--parked"),
        ("show", "aa"),
        ("show", "bb"),
        ("show", "aa", "--json"),
        ("show", "aa", "--trust"),
        ("show", "aa", "--trust", "--yes"),
        ("resources", "--retry"),
        ("resume", "aa"),
        ("resume", "aa", "--woken"),
        ("resume", "bb", "--failed"),
        ("fork", "bb"),
        ("cancel", "aa"),
        ("cancel", "aa", "--only", "taa"),
        ("rm", "aa", "--yes"),
        ("rm", "bb", "--yes", "--force"),
        ("purge", "--parked", "--older", "0s", "--yes"),
    ],
)
def test_no_verb_lets_a_planted_name_steer_the_terminal(
    words: tuple[str, ...], store: Path, tmp_path: Path
) -> None:
    plant_steering_names(store, tmp_path)
    answer = told(*words, store=store)
    assert not steers(answer), answer
    assert answer.out + answer.err, "it has said nothing, so that this proves nothing"


def test_top_and_status_do_not_let_a_planted_name_steer_the_terminal(
    store: Path, tmp_path: Path
) -> None:
    plant_steering_names(store, tmp_path)
    place = Place(tmp_path, "http://127.0.0.1:9")
    with place.up():
        until(
            lambda: "harmless" in place.jackline("status", "--watch").out,
            "the planted runs in `status --watch`",
        )
        for words in (
            ("status", "--watch"),
            ("status", "--watch", "--json"),
            ("status",),
            ("status", "--json"),
        ):
            assert not steers(place.jackline(*words)), words


def test_a_planted_run_can_be_deleted(store: Path, mark: Path, tmp_path: Path) -> None:
    plant_everything(store, tmp_path / "repo", mark)
    answer = told("rm", "rented", "hooked", "--yes", store=store)
    assert "rented is not deleted" in answer.err, answer
    assert told("rm", "rented", "rented2", "rented3", "--yes", "--force", store=store).code == 0
    assert told("purge", "--parked", "--older", "0s", "--yes", store=store).code == 0
    assert told("ls", store=store).out == ""
    assert not mark.exists()


@pytest.mark.parametrize("name", ["flows.db", "journal.db"])
def test_a_rollback_journal_beside_the_store_cannot_delete_another_file(
    name: str, store: Path, tmp_path: Path
) -> None:
    """SQLite deletes the file that a hot journal names as its super-journal."""
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    made = tmp_path / "made.db"
    with closing(sqlite3.connect(made, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.executemany("INSERT INTO t VALUES (?)", [("y" * 3000,)] * 200)
        connection.execute("PRAGMA cache_size = 2")
        connection.execute("BEGIN")
        connection.execute("UPDATE t SET x = 'z' || x")
        file, journal = made.read_bytes(), made.with_name("made.db-journal").read_bytes()
        connection.execute("ROLLBACK")
    place = str(victim).encode()
    named = struct.pack(">I", 0x40000000 // 4096 + 1) + place
    named += struct.pack(">II", len(place), sum(place)) + bytes.fromhex("d9d505f920a163d7")
    for end, content in (("", file), ("-journal", journal + named)):
        planted = store.with_name(name + end)
        planted.write_bytes(content)
        planted.chmod(0o600)
    if name == "flows.db":
        said = told("ls", store=store).err
    else:
        with Journal(store.with_name(name)) as journal_of_calls:
            said = journal_of_calls.health.problem
    assert victim.exists(), "opening the planted store has deleted a file of the user"
    assert "names another file" in said
