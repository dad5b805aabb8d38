"""An agent that edits files of the project gets none of its code run at a wake-up."""

from __future__ import annotations

import asyncio
import os
import py_compile
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from jackline.flows.records import RunRecord, RunState
from jackline.flows.store import open_run_store, run_store_url
from tests.cli.flow_world import PATIENCE, World, flow_world, wait_for

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are sent as POSIX knows them")
FLOW = """
import colorsys
import helper
from jackline import agent, flow, parallel

@flow
async def survey() -> str:
    parts = await parallel(agent(f"part {i}", label=f"part {i}") for i in range(2))
    return helper.joined(parts.values)
"""
IMPORTS_LATE = """
from jackline import agent, flow

@flow
async def survey() -> str:
    import helper
    await agent("part 0", label="part 0")
    import late
    return late.joined(["0"])
"""
SCRIPT = """
import asyncio
import sys

import survey
from jackline import run
from jackline.flows.run_events import RunParked


def hear(event):
    if isinstance(event, RunParked):
        print("parked until", file=sys.stderr, flush=True)


asyncio.run(run(survey.survey, listener=hear))
"""
RENTS = """
from pathlib import Path
from jackline import agent, ctx, flow

def give_back(name):
    Path("given back").touch()

@flow
async def survey() -> str:
    await ctx.resource("machine", release=give_back, lease=0.001)
    return (await agent("part 0", label="part 0")).value
"""
HELPER = "def joined(parts):\n    return ' '.join(sorted(parts))\n"
MARK = "open({path!r}, 'w').close()\n"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with flow_world(tmp_path) as there:
        (tmp_path / "survey.py").write_text(FLOW)
        (tmp_path / "helper.py").write_text(HELPER)
        yield there


def park(world: World, *words: str, resets_in: float = 3600) -> str:
    """A run that met a wall, and whose process has gone."""
    world.provider.quota_wall(resets_in=resets_in)
    return left_parked(world, world.start(*(words or ("run", "survey.py"))))


def left_parked(world: World, started: subprocess.Popen[str]) -> str:
    with started as process:
        wait_for(process, "parked until")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    return asyncio.run(_only_parked(world))


async def _only_parked(world: World) -> str:
    # From the store itself: a process for each look takes most of these tests' time.
    engine = open_run_store(run_store_url(world.folder / "state"))
    try:
        (run,) = await engine.runs(states=(RunState.PARKED,))
        return run.run_id
    finally:
        await engine.close()


async def kept(world: World, run_id: str, *, reset: bool = False) -> RunRecord:
    """The run; with `reset`, at a time when its reset has passed."""
    engine = open_run_store(run_store_url(world.folder / "state"))
    try:
        if reset:
            claim = await engine.claim(run_id, owner="test", lease=60)
            run = await engine.run(run_id)
            assert claim is not None
            assert run is not None
            await engine.let_go(claim, replace(run, wake_at=1.0))
        run = await engine.run(run_id)
        assert run is not None
        return run
    finally:
        await engine.close()


def woken(world: World, run_id: str) -> RunRecord:
    """The run as a wake-up after its reset has left it."""
    asyncio.run(kept(world, run_id, reset=True))
    with world.start("resume", "--woken", run_id) as process:
        while process.returncode is None:
            # One that is woken meets the same wall, and waits there.
            if (asyncio.run(kept(world, run_id)).wake_at or 0.0) > 1.0:
                process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
        process.communicate(timeout=PATIENCE)
    return asyncio.run(kept(world, run_id))


def goes_on(run: RunRecord) -> bool:
    """Whether it was woken: it has met the same wall again, and waits for its reset."""
    return run.state is RunState.PARKED and (run.wake_at or 0.0) > 1.0


def waits(run: RunRecord) -> bool:
    """Whether it was not woken, and waits for a person."""
    return run.state is RunState.PARKED and run.wake_at is None


def left_alone_or_ended(world: World, run_id: str) -> RunRecord:
    """The run once the service, which `run` has started, has woken it or leaves it to a person."""
    deadline = time.monotonic() + PATIENCE
    while True:
        # From the store: a process for each look would be nearly all that these tests cost.
        run = asyncio.run(kept(world, run_id))
        if run.state is RunState.FINISHED or waits(run) or time.monotonic() > deadline:
            return run
        time.sleep(0.2)


def prepend(path: Path, line: str) -> None:
    path.write_text(line + path.read_text())


def test_the_service_does_not_run_a_flow_file_that_was_edited_since(world: World) -> None:
    mark = world.folder / "ran"
    run_id = park(world, resets_in=30)
    prepend(world.folder / "survey.py", MARK.format(path=str(mark)))
    left_alone_or_ended(world, run_id)
    (run,) = world.json("ls", "--parked")["runs"] or [None]
    assert not mark.exists(), "what a model wrote was run, and nobody had asked for it"
    assert run is not None
    says = (
        "survey.py has changed since you started this run; look at it and go on with:"
        f" jackline resume {run_id}"
    )
    assert run["why"] == says
    assert run["held_by"] == says
    for verb in (("ls", "--parked"), ("show", run_id), ("status",)):
        assert says in world.jackline(*verb)[1], verb
    # A person runs what is there now, and that counts from then on.
    assert world.json("resume", run_id)["value"] == "0 1"
    assert mark.exists()


def _changed_helper(folder: Path, line: str) -> None:
    prepend(folder / "helper.py", line)


def _new_module(folder: Path, line: str) -> None:
    (folder / "colorsys.py").write_text(line)


def _new_package(folder: Path, line: str) -> None:
    (folder / "colorsys").mkdir()
    (folder / "colorsys" / "__init__.py").write_text(line)


def _package_instead(folder: Path, line: str) -> None:
    (folder / "helper").mkdir()
    (folder / "helper" / "__init__.py").write_text(line + HELPER)


def _extension(folder: Path, _line: str) -> None:
    (folder / "helper.abi3.so").write_bytes(b"\x7fELF")


def _bytecode_alone(folder: Path, line: str) -> None:
    source = folder / "hidden.py"
    source.write_text(line)
    py_compile.compile(str(source), cfile=str(folder / "colorsys.pyc"))
    source.unlink()


def _removed(folder: Path, _line: str) -> None:
    (folder / "helper.py").unlink()


def _linked(folder: Path, line: str) -> None:
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "helper.py").write_text(line + HELPER)
    (folder / "helper.py").unlink()
    (folder / "helper.py").symlink_to(folder / "elsewhere" / "helper.py")


@pytest.mark.parametrize(
    ("edit", "name"),
    [
        (_changed_helper, "helper.py"),
        (_new_module, "colorsys.py"),
        (_new_package, "colorsys/__init__.py"),
        (_package_instead, "helper/__init__.py"),
        (_extension, "helper.abi3.so"),
        (_bytecode_alone, "colorsys.pyc"),
        (_removed, "helper.py"),
        (_linked, "helper.py"),
    ],
)
def test_nothing_that_was_put_beside_the_flow_is_run_at_a_wake_up(
    world: World, edit: Callable[[Path, str], None], name: str
) -> None:
    mark = world.folder / "ran"
    run_id = park(world)
    edit(world.folder, MARK.format(path=str(mark)))
    run = woken(world, run_id)
    assert not mark.exists()
    assert waits(run)
    assert run.why.startswith(name), run.why
    assert run.why.endswith(f"look at it and go on with: jackline resume {run_id}")


def test_bytecode_that_pretends_to_be_of_the_same_source_is_not_read(world: World) -> None:
    """Its header has the time and the size of the source as it is."""
    mark = world.folder / "ran"
    helper = world.folder / "helper.py"
    run_id = park(world)
    kept, stat = helper.read_bytes(), helper.stat()
    line = MARK.format(path=str(mark))
    helper.write_text((line + HELPER).ljust(len(kept)))
    size = helper.stat().st_size
    os.utime(helper, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    cached = Path(py_compile.compile(str(helper), doraise=True) or "")
    planted = bytearray(cached.read_bytes())
    planted[12:16] = len(kept).to_bytes(4, "little")
    assert size != len(kept)
    cached.write_bytes(planted)
    helper.write_bytes(kept)
    os.utime(helper, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    run = woken(world, run_id)
    assert not mark.exists()
    assert goes_on(run)


def test_a_run_that_was_resumed_by_hand_wakes_with_what_that_has_run(world: World) -> None:
    run_id = park(world)
    prepend(world.folder / "helper.py", "# reviewed\n")
    assert waits(woken(world, run_id))
    assert park(world, "resume", run_id) == run_id
    assert goes_on(woken(world, run_id))
    prepend(world.folder / "helper.py", "# not reviewed\n")
    assert waits(woken(world, run_id))


def test_a_module_that_a_woken_flow_imports_late_is_refused_and_the_run_waits(world: World) -> None:
    (world.folder / "survey.py").write_text(IMPORTS_LATE)
    mark = world.folder / "ran"
    run_id = park(world, resets_in=30)
    (world.folder / "late.py").write_text(MARK.format(path=str(mark)) + HELPER)
    run = left_alone_or_ended(world, run_id)
    assert not mark.exists()
    assert waits(run), "the work of its agents is kept"
    assert run.why.startswith("late.py was no part of this run when you started it")
    paid = world.paid()
    assert set(paid.values()) == {1}
    assert world.json("resume", run_id)["value"] == "0"
    assert world.paid() == paid


@pytest.mark.parametrize("began", ["before this was kept", "by a script"])
def test_a_run_whose_sources_nobody_knows_waits_for_a_person(world: World, began: str) -> None:
    if began == "by a script":
        (world.folder / "script.py").write_text(SCRIPT)
        world.provider.quota_wall(resets_in=3600)
        script = subprocess.Popen(
            [sys.executable, "script.py"],
            env=world.environ,
            cwd=world.folder,
            stderr=subprocess.PIPE,
            text=True,
        )
        run_id = left_parked(world, script)
    else:
        run_id = park(world)
        with closing(sqlite3.connect(world.folder / "state" / "flows.db")) as store, store:
            store.execute("DELETE FROM entries WHERE kind = 'flow:sources'")
    run = woken(world, run_id)
    assert waits(run)
    assert run.why.startswith("it is not known whether survey.py")
    assert run.why.endswith(f"look at it and go on with: jackline resume {run_id}")
    assert park(world, "resume", run_id) == run_id
    assert goes_on(woken(world, run_id))


def test_a_list_that_this_installation_did_not_sign_is_none(world: World) -> None:
    run_id = park(world)
    helper = world.folder / "helper.py"
    before = sha256(helper.read_bytes()).hexdigest()
    mark = world.folder / "ran"
    prepend(helper, MARK.format(path=str(mark)))
    after = sha256(helper.read_bytes()).hexdigest()
    with closing(sqlite3.connect(world.folder / "state" / "flows.db")) as store, store:
        changed = store.execute(
            "UPDATE entries SET data = replace(data, ?, ?) WHERE kind = 'flow:sources'",
            (before.encode(), after.encode()),
        )
        assert changed.rowcount
    assert not goes_on(woken(world, run_id))
    assert not mark.exists()


def test_what_an_overdue_release_calls_is_not_run_unattended_once_it_was_edited(
    world: World,
) -> None:
    (world.folder / "survey.py").write_text(RENTS)
    mark, given_back = world.folder / "ran", world.folder / "given back"
    run_id = park(world)
    prepend(world.folder / "survey.py", MARK.format(path=str(mark)))
    code, _, err = world.jackline("resources", "--retry", "--woken")
    assert not mark.exists()
    assert not given_back.exists()
    assert code == 1
    assert "survey.py has changed since you started this run" in err
    assert "jackline resources --retry" in err
    assert run_id
    code, _, err = world.jackline("resources", "--retry")
    assert given_back.exists(), err
