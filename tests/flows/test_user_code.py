"""Where no code of users may run, no order loads a flow's file, and what it was meant for stays."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jackline.flows.cleanup.action_runner import find_function
from jackline.flows.cleanup.ledger import reap
from jackline.flows.flow_sources import UserCodeError, no_user_code
from jackline.flows.host import FlowHost
from jackline.flows.lifecycle import (
    begin_fork,
    begin_resume,
    begin_retry,
    cancel_agents,
    cancel_run,
    claim_run,
    module_of,
)
from jackline.flows.records import (
    CallKind,
    CallRecord,
    CallState,
    HookRecord,
    ResourceRecord,
    ResourceState,
    RunRecord,
    RunState,
)
from jackline.flows.settings import RunSettings, encode_settings
from tests.flows.world import World, played, world

FLOW = """
from pathlib import Path
from jackline import flow
Path({mark!r}).touch()

def give_back(name):
    pass

@flow
async def survey() -> str:
    return "done"
"""
RELEASES = ("function give_back", "function given_back_by:give_back", "touch command")


async def left(w: World, source: Path, state: RunState) -> RunRecord:
    """A run that nobody carries, which rented things and owes a hook."""
    record = RunRecord(
        "r1", "survey", str(source), b"{}", encode_settings(RunSettings()), cwd=str(source.parent)
    )
    claim = await w.engine.create(record, owner="gone", lease=5)
    call = CallRecord("r1", "key", 0, CallKind.AGENT, "part 0", "", "t1", CallState.RUNNING)
    await w.engine.begin_call(claim, call)
    if state is RunState.FAILED:
        await w.engine.end_call(claim, replace(call, state=CallState.FAILED, ended_at=1.0))
    for name, release in enumerate(RELEASES):
        kept = ResourceRecord("r1", str(name), "", release, False, None, ResourceState.HELD, 0.0)
        await w.engine.save_resource(kept)
    await w.engine.end_hook(HookRecord("r1", "r1/1", "function give_back", b"{}"))
    await w.engine.let_go(claim, replace(record, state=state))
    found = await w.engine.run("r1")
    assert found is not None
    return found


Order = Callable[[FlowHost], Coroutine[Any, Any, object]]


@pytest.mark.parametrize(
    ("order", "state"),
    [
        pytest.param(lambda host: cancel_run(host, "r1"), RunState.PARKED, id="cancel"),
        pytest.param(lambda host: cancel_run(host, "r1"), RunState.STOPPED, id="cancel stopped"),
        pytest.param(
            lambda host: cancel_agents(host, "r1", "part 0"), RunState.PARKED, id="cancel one"
        ),
        pytest.param(lambda host: begin_resume(host, "r1"), RunState.PARKED, id="resume"),
        pytest.param(lambda host: begin_resume(host, "r1"), RunState.FAILED, id="resume failed"),
        pytest.param(
            lambda host: begin_resume(host, "r1", only="part 0"), RunState.FAILED, id="resume one"
        ),
        pytest.param(lambda host: begin_retry(host, "r1"), RunState.FAILED, id="retry"),
        pytest.param(lambda host: begin_fork(host, "r1", "part 0"), RunState.FAILED, id="fork"),
    ],
)
def test_an_order_that_needs_the_flow_is_left_to_another_process(
    tmp_path: Path, order: Order, state: RunState
) -> None:
    source, mark, path = tmp_path / "survey.py", tmp_path / "ran", list(sys.path)
    source.write_text(FLOW.format(mark=str(mark)))

    async def main() -> None:
        w = world()
        before = await left(w, source, state)
        with no_user_code(), pytest.raises(UserCodeError):
            await w.through(order(w.host))
        assert not mark.exists()
        assert sys.path == path
        assert await w.engine.run("r1") == before, "whoever may do it finds it as it was"
        assert await w.engine.stop_request("r1") == ""
        assert await w.engine.ordered_ends("r1") == []

    try:
        played(main)
    finally:
        sys.path[:] = path


def test_no_module_is_imported_for_a_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "ran"
    (tmp_path / "given_back_by.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(tmp_path)
    with no_user_code(), pytest.raises(UserCodeError, match=r"give_back\(\) of given_back_by"):
        find_function("given_back_by:give_back", None)
    assert not mark.exists()


def test_clean_up_without_the_flow_runs_commands_and_says_why_the_rest_waits(
    tmp_path: Path,
) -> None:
    source, mark, path = tmp_path / "survey.py", tmp_path / "ran", list(sys.path)
    source.write_text(FLOW.format(mark=str(mark)))

    async def main() -> None:
        w = world()
        await left(w, source, RunState.CANCELLED)
        with no_user_code():
            take = partial(claim_run, w.host)
            done = await reap(w.engine, w.clock, module_of, take)
        assert not mark.exists()
        troubles = [each.trouble for each in done if each.trouble]
        assert len(troubles) == 2, "both releases that are functions"
        assert all("runs no code of flows" in each for each in troubles), troubles
        assert (tmp_path / "command").exists()

    try:
        played(main)
    finally:
        sys.path[:] = path
