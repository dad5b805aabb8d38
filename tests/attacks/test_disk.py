"""The disk as an adversary: locks that last, records that do not fit, logs that keep too much."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jackline import event_loop
from jackline.agents.outcome import Outcome
from jackline.agents.runner import AgentLog, AgentTask, CallGate
from jackline.clock import SystemClock
from jackline.control import GatewayStatus
from jackline.errors import StoreLockedError, StoreUnavailableError, UnsafeFileError
from jackline.flows.authoring.calls import agent
from jackline.flows.authoring.flow_definition import flow
from jackline.flows.flow_run import FlowRun
from jackline.flows.host import FlowHost
from jackline.flows.lifecycle import begin_resume, begin_run
from jackline.flows.records import RunState
from jackline.flows.run_events import FlowEvent, Warned
from jackline.flows.run_processes import RunOrders, Waker
from jackline.flows.settings import RunSettings
from jackline.flows.store import open_run_store, run_store_url
from jackline.flows.store.run_store import RunStore
from jackline.flows.store.sqlite import SqliteRunStore
from jackline.journal import Journal, JournalReader
from jackline.journal.store import JournalSettings
from jackline.simulator.reply_script import Say
from jackline.testing import Rule
from jackline.testing.scripted_agents import ScriptedRunner
from tests.cli.flow_world import World, flow_world, wait_for
from tests.journal import made

ANSWER = "the answer that nobody else may read"
TELLING = """
from jackline import agent, flow

@flow
async def telling() -> str:
    return await agent("say it", label="one")

@flow
async def failing() -> str:
    raise ValueError(await agent("say it", label="one"))
"""


@contextmanager
def locked(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Within this, another process holds the store; closing its stdin lets go."""
    words = [sys.executable, "-m", "tests.attacks.locking_process", str(path)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()


# --- a store that another program holds -----------------------------------------------------------


@flow
async def two() -> str:
    """Two agents, one after the other."""
    return f"{await agent('a', label='a')} {await agent('b', label='b')}"


def _host(engine: RunStore, runner: ScriptedRunner, received: list[FlowEvent]) -> FlowHost:
    return FlowHost(
        engine,
        lambda _run_id: {runner.name: runner},
        settings=RunSettings(poll=0.05),
        listener=received.append,
    )


def test_a_locked_store_pauses_a_run_and_nothing_is_paid_twice(tmp_path: Path) -> None:
    path = tmp_path / "flows.db"
    runner, received = ScriptedRunner(), list[FlowEvent]()

    async def main() -> None:
        engine = open_run_store(run_store_url(path.parent), lock_seconds=0.05, patience=600)
        begun = await begin_run(_host(engine, runner, received), two, b"{}", run_id="r1")
        with locked(path):
            carrying = asyncio.create_task(begun.run())
            while not any(isinstance(event, Warned) for event in received):
                assert not carrying.done(), carrying
                await asyncio.sleep(0.01)
            # Many of its single tries have failed by now, and it still waits.
            assert not carrying.done()
        outcome = await carrying
        assert outcome.ok, outcome
        assert len(runner.begun) == 2
        await engine.close()

    event_loop.run(main())
    (warned,) = {event.says for event in received if isinstance(event, Warned)}
    assert "locked" in warned


def test_beyond_its_patience_a_run_is_paused_and_can_be_resumed(tmp_path: Path) -> None:
    path = tmp_path / "flows.db"
    runner, received = ScriptedRunner(), list[FlowEvent]()

    async def main() -> None:
        engine = open_run_store(run_store_url(path.parent), lock_seconds=0.05, patience=0.3)
        host = _host(engine, runner, received)
        begun = await begin_run(host, two, b"{}", run_id="r1")
        with locked(path):
            with pytest.raises(StoreLockedError) as caught:
                await begun.run()
            assert caught.value.exit_code == 75
            await engine.close()
        engine = open_run_store(run_store_url(path.parent))
        host = _host(engine, runner, received)
        run = await engine.run("r1")
        assert run is not None
        assert run.trusted
        claim = await engine.claim("r1", owner="me", lease=30, instead_of=run.owner)
        assert claim is not None
        await engine.let_go(claim, replace(run, state=RunState.STOPPED))
        resumed = await begin_resume(host, "r1", flow=two)
        assert isinstance(resumed, FlowRun)
        assert (await resumed.run()).ok
        await engine.close()

    event_loop.run(main())


def test_the_command_waits_for_a_locked_store_and_says_so(tmp_path: Path) -> None:
    with flow_world(tmp_path) as world:
        world.jackline("run", "flow.py", "--count", "1", "--word", "first")
        store = world.folder / "state" / "flows.db"
        with world.start("run", "flow.py", "--count", "2") as process:
            with locked(store):
                wait_for(process, "locked; the run waits for it")
            out, err = process.communicate(timeout=240)
        assert (process.returncode, out.strip()) == (0, "2 of 2 ok: 0 1"), err
        assert set(world.paid().values()) == {1}


# --- a disk that is full or fails -----------------------------------------------------------------


class BadDisk:
    """A disk that refuses every commit for as long as `code` is set."""

    def __init__(self, code: int) -> None:
        self.code = code

    def connect(self, path: Path, lock_seconds: float) -> sqlite3.Connection:
        disk = self

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
                if sql == "COMMIT" and disk.code:
                    error = sqlite3.OperationalError("as SQLite reports it")
                    error.sqlite_errorcode = disk.code
                    raise error
                return super().execute(sql, parameters)

        return sqlite3.connect(
            path, lock_seconds, isolation_level=None, check_same_thread=False, factory=Connection
        )


@pytest.mark.parametrize(
    ("code", "says"),
    [(sqlite3.SQLITE_FULL, "is full"), (sqlite3.SQLITE_IOERR, "reports errors")],
)
def test_answers_that_a_disk_refuses_are_held_until_it_takes_them(
    code: int, says: str, tmp_path: Path
) -> None:
    runner, heard, disk = ScriptedRunner(), list[FlowEvent](), BadDisk(0)

    async def main() -> None:
        engine = SqliteRunStore(
            tmp_path / "flows.db", connect=disk.connect, lock_seconds=0.01, patience=600
        )
        begun = await begin_run(_host(engine, runner, heard), two, b"{}", run_id="r1")
        disk.code = code
        carrying = asyncio.create_task(begun.run())
        while not any(isinstance(event, Warned) for event in heard):
            assert not carrying.done(), carrying
            await asyncio.sleep(0.01)
        assert not carrying.done()
        assert not runner.begun, "nothing new is started"
        disk.code = 0
        outcome = await carrying
        assert outcome.ok, outcome
        assert len(runner.begun) == 2
        await engine.close()

    event_loop.run(main())
    (warned,) = {event.says for event in heard if isinstance(event, Warned)}
    assert f"{tmp_path / 'flows.db'} {says}" in warned
    assert "do not stop it" in warned


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR])
def test_of_an_agent_at_work_nothing_is_paid_twice_when_the_disk_fails(
    code: int, tmp_path: Path
) -> None:
    heard, disk = list[FlowEvent](), BadDisk(0)

    class Failing(ScriptedRunner):
        """The disk fails while the first agent works."""

        async def run(self, task: AgentTask, log: AgentLog, gate: CallGate) -> Outcome[object]:
            disk.code = code if not self.begun else 0
            return await super().run(task, log, gate)

    runner = Failing()

    async def main() -> None:
        engine = SqliteRunStore(
            tmp_path / "flows.db", connect=disk.connect, lock_seconds=0.01, patience=600
        )
        begun = await begin_run(_host(engine, runner, heard), two, b"{}", run_id="r1")
        carrying = asyncio.create_task(begun.run())
        while not any(isinstance(event, Warned) for event in heard):
            assert not carrying.done(), carrying
            await asyncio.sleep(0.01)
        assert len(runner.begun) == 1
        disk.code = 0
        assert (await carrying).ok
        assert len(runner.begun) == 2
        await engine.close()

    event_loop.run(main())


def test_beyond_its_patience_with_a_disk_a_run_is_paused(tmp_path: Path) -> None:
    disk = BadDisk(0)

    async def main() -> None:
        engine = SqliteRunStore(
            tmp_path / "flows.db", connect=disk.connect, lock_seconds=0.01, patience=600
        )
        begun = await begin_run(_host(engine, ScriptedRunner(), []), two, b"{}", run_id="r1")
        disk.code = sqlite3.SQLITE_FULL
        carrying = asyncio.create_task(begun.run())
        await asyncio.sleep(0)
        engine.hurry()  # as a second Ctrl-C does
        with pytest.raises(StoreUnavailableError, match="the disk is full") as caught:
            await carrying
        assert caught.value.exit_code == 75
        disk.code = 0
        await engine.close()

    event_loop.run(main())


_SILENT = """
import resource, sys
from pathlib import Path
from jackline.assembly.gateway_process import _last_words
log = Path(sys.argv[1])
for most in (1 << 30, 0):
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    print(_last_words(log, 0)[0])
"""


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such limit")
def test_a_gateway_that_can_write_nothing_is_not_said_to_have_printed_nothing(
    tmp_path: Path,
) -> None:
    log = tmp_path / "gateway.log"
    log.touch(0o600)
    words = [sys.executable, "-c", _SILENT, str(log)]
    printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert printed.splitlines() == [
        "it printed nothing",
        f"nothing can be written to {tmp_path} (File too large)",
    ]


_READ_ONLY = """
import asyncio, os, sqlite3, sys
from pathlib import Path
from jackline.errors import JournalError
from jackline.flows.store import open_run_store, run_store_url
from jackline.flows.store.sqlite import SqliteRunStore
from jackline.journal import Journal, JournalReader
from jackline.journal.sqlite_file import cause_at

folder = Path(sys.argv[1])
if os.getuid() == 0:  # root may write anywhere
    os.chown(folder, 65534, 65534)
    os.setuid(65534)
os.environ["XDG_STATE_HOME"] = os.environ["HOME"] = str(folder / "home")

async def runs():
    engine = open_run_store(run_store_url(folder))
    try:
        return await engine.runs()
    finally:
        await engine.close()

asyncio.run(runs())
with Journal(folder / "journal.db"):
    pass
folder.chmod(0o500)
for look in (lambda: asyncio.run(runs()), lambda: JournalReader(folder / "journal.db").notes(0)):
    try:
        print(look())
    except JournalError as error:
        print(error.message)
error = sqlite3.OperationalError("what SQLite says of a file on a disk that is mounted read-only")
error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
print(cause_at(folder / "flows.db", error))
print(cause_at(folder / "missing.db", error))
"""


@pytest.mark.skipif(os.name != "posix", reason="modes are a POSIX matter")
def test_a_read_only_state_folder_is_called_read_only() -> None:
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-c", _READ_ONLY, folder]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        Path(folder).chmod(0o700)
    assert done.stdout.count("its folder or file is not writable") == 3, done
    assert done.stdout.count("cannot be opened at its path") == 1, done


# --- records that the journal could not keep -----------------------------------------------


def test_records_that_were_dropped_without_a_fault_of_the_disk_are_told(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = Journal(path, settings=JournalSettings(waiting_records=10))
    for number in range(25):
        journal.announce(made.call(number))
    assert "15 records not saved" in journal.health.gap, "also before the writer has looked"
    with journal:
        made.written(journal)
        made.written(journal)
        health = journal.health
    assert (health.ok, health.dropped) == (True, 15)
    assert "15 records not saved" in health.gap
    assert "more came at once" in health.gap
    with JournalReader(path) as reader:
        (note,) = reader.notes(0)
    assert note.what == "records lost"
    assert "15 records not saved" in note.detail
    picture = GatewayStatus(
        *(0.0, "0", "", "", 0.0, (), (), 0, 0, 0, {}, 0, 0, 0, 0, True, "", 15, health.gap)
    )
    assert "The journal has a gap: 15 records not saved" in picture.verdict(SystemClock().now())
    assert picture.to_json("")["journal_lost"] == 15


# --- logs ---------------------------------------------------------------------------------------


@pytest.fixture
def telling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with flow_world(tmp_path) as world:
        (tmp_path / "telling.py").write_text(TELLING)
        world.provider.says(Rule(lambda _asked: Say(ANSWER), prompt="say it"))
        for name, value in world.environ.items():
            monkeypatch.setenv(name, value)
        yield world


def _log(world: World, name: str) -> str:
    return (world.folder / "state" / name).read_text()


@pytest.mark.parametrize("name", ["telling", "failing"])
def test_the_log_of_orders_holds_no_answer(telling: World, name: str) -> None:
    code, out, err = telling.jackline("run", f"telling.py:{name}")
    (run,) = telling.json("ls")["runs"]
    # Off a terminal nothing shows the words of a failed flow but the run's own page.
    own = telling.jackline("show", run["run"])[1]
    assert ANSWER in out + own, (code, err)

    async def order() -> None:
        engine = open_run_store(run_store_url(telling.folder / "state"))
        orders = RunOrders(telling.folder / "state")
        await orders.carry_out("resume", {"run": run["run"]}, engine)
        await engine.close()

    event_loop.run(order())
    logged = _log(telling, "ordered-runs.log")
    assert f"jackline resume {run['run']}" in logged
    assert ANSWER not in logged
    gateway = telling.folder / "state" / "gateway.log"
    assert ANSWER not in gateway.read_text()


@pytest.mark.parametrize("name", ["telling", "failing"])
def test_the_log_of_woken_runs_holds_no_answer(telling: World, name: str) -> None:
    telling.jackline("run", f"telling.py:{name}")
    telling.jackline("down")
    (listed,) = telling.json("ls")["runs"]
    store = telling.folder / "state" / "flows.db"

    async def wake() -> None:
        engine = open_run_store(run_store_url(store.parent))
        run = await engine.run(listed["run"])
        claim = await engine.claim(listed["run"], owner="me", lease=30)
        assert run is not None
        assert claim is not None
        await engine.let_go(claim, replace(run, state=RunState.PARKED, wake_at=1.0))
        await engine.close()
        waker = Waker(store.parent, run_store_url(store.parent), SystemClock())
        assert await waker.look() == [listed["run"]]
        for process in waker._started:
            process.wait()

    event_loop.run(wake())
    shown = telling.json("show", listed["run"])
    assert shown["state"] == ("finished" if name == "telling" else "failed")
    assert ANSWER in json.dumps(shown), "it stays with the run"
    logged = _log(telling, "woken-runs.log")
    assert f"run {listed['run']}" in logged
    assert ANSWER not in logged


@pytest.mark.skipif(os.name != "posix", reason="links are a POSIX matter here")
def test_the_logs_are_not_written_through_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("as it was")
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    for name in ("ordered-runs.log", "woken-runs.log"):
        (state / name).symlink_to(victim)
    RunOrders(state)._note("x")
    with pytest.raises(UnsafeFileError, match="is a link"):
        Waker(state, run_store_url(state), SystemClock())._start_verb(("--version",), "")
    assert victim.read_text() == "as it was"
