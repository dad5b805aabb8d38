"""Make a store of runs as another installation would, for attacks that bring one along.

Rules: (1) the store is written by the real engine under another key, so that nothing but the
signature tells it from one of ours; (2) what it would run only leaves a mark in a file.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from jackline import event_loop
from jackline.agents.outcome import Ending, Outcome
from jackline.flows.cleanup.action_runner import release_of_worktree
from jackline.flows.records import (
    CallKind,
    CallRecord,
    CallState,
    EntryRecord,
    HookRecord,
    ResourceRecord,
    ResourceState,
    RunRecord,
    RunState,
    encode_outcome,
)
from jackline.flows.settings import RunSettings, encode_settings
from jackline.flows.store import open_run_store, run_store_url
from jackline.flows.store.run_store import Claim, RunStore

FLOW = """
from pathlib import Path
from jackline import flow

Path({mark!r}).write_text("the planted file was loaded")

@flow
async def planted() -> str:
    return "done"
"""


@contextmanager
def another_installation(folder: Path) -> Iterator[None]:
    """Within this, records are signed with a key that is not this user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield


def marking(mark: Path) -> str:
    """A shell command that leaves the mark."""
    code = f"import pathlib; pathlib.Path({str(mark)!r}).write_text('it ran')"
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}"


def flow_file(folder: Path, mark: Path) -> Path:
    """A flow file that leaves the mark when it is loaded."""
    path = folder / "planted_flow.py"
    path.write_text(FLOW.format(mark=str(mark)))
    return path


async def add_run(
    engine: RunStore,
    run_id: str,
    state: RunState,
    *,
    source: str = "",
    cwd: str = "",
    flow: str = "planted",
    arguments: bytes = b"{}",
    wake_at: float | None = None,
    task: str = "",
) -> RunRecord:
    """A run in this state, let go by its owner; with `task`, it has an agent that was underway."""
    record = RunRecord(
        run_id, flow, source, arguments, encode_settings(RunSettings()), cwd=cwd, created_at=1.0
    )
    claim: Claim = await engine.create(record, owner="elsewhere:1:x", lease=30)
    if task:
        call = CallRecord(run_id, "k", 0, CallKind.AGENT, "a", "", task, CallState.RUNNING)
        await engine.begin_call(claim, call)
        await engine.write_entry(claim, EntryRecord(task, 1, "note", b"{}", 1.0))
    outcome = encode_outcome(Outcome(Ending.COMPLETION, task_id=run_id, label=flow))
    standing = replace(record, state=state, wake_at=wake_at, outcome=outcome)
    await engine.let_go(claim, standing)
    return standing


def overdue(run_id: str, release: str, name: str = "gpu") -> ResourceRecord:
    """Something rented whose time was over long ago."""
    return ResourceRecord(run_id, name, "", release, False, 1.0, ResourceState.HELD, 0.5)


def plant_everything(store: Path, folder: Path, mark: Path) -> None:
    """A store with every kind of record that leads to code, as another installation writes it."""
    folder.mkdir(exist_ok=True)
    source = str(flow_file(folder, mark))
    command = marking(mark)

    async def write() -> None:
        engine = open_run_store(run_store_url(store.parent))
        for run_id, release in (
            ("rented", command),
            ("rented2", "function planted_flow:planted"),
            ("rented3", release_of_worktree(folder / "tree")),
        ):
            await add_run(engine, run_id, RunState.FINISHED, source=source, cwd=str(folder))
            await engine.save_resource(overdue(run_id, release))
        await add_run(engine, "hooked", RunState.FINISHED, source=source, cwd=str(folder))
        told = encode_outcome(Outcome(Ending.COMPLETION, task_id="hooked"))
        await engine.end_hook(HookRecord("hooked", "hooked/1", command, told, "failed", 1))
        await add_run(
            engine,
            "asleep",
            RunState.PARKED,
            source=source,
            cwd=str(folder),
            wake_at=time.time() - 9,
        )
        await add_run(engine, "cut", RunState.STOPPED, source=source, cwd=str(folder), task="t1")
        await engine.close()

    with another_installation(folder / "attacker"):
        event_loop.run(write())
