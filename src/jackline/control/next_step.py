"""The next command after a run's end: one that changes something, not one that fails alike.

Rules: (1) pure; (2) a limit of the run that was reached is raised by the command itself; one that
stands in the flow's file is raised there first; (3) an agent that a person cancelled goes on only
by its name; (4) where only the flow's own code failed, that is mended first.
"""

from __future__ import annotations

import shlex
from pathlib import PurePath
from typing import Any, NamedTuple

from jackline.agents.outcome import Ending, Outcome
from jackline.flows.execution.agent_cancellation import is_cancelled_by_person
from jackline.flows.records import RunRecord, RunState

_LIMITS = (Ending.BUDGET, Ending.TURNS, Ending.TIMEOUT, Ending.DEADLINE)
_OF_THE_FLOW = (Ending.CRASH, Ending.SCHEMA)
_KEPT = "what is finished is not run again"


class NextStep(NamedTuple):
    """A command, and what to know of it."""

    command: str
    remark: str


def step_after_end(run: RunRecord, outcome: Outcome[Any]) -> NextStep | None:
    """What goes on with an ended run; None where nothing is left to do."""
    tally = outcome.tally
    failed = not outcome.ok and run.state is not RunState.CANCELLED
    if not failed and not tally.failed:
        return None
    again = f"jackline resume {run.run_id}" if failed else f"jackline resume {run.run_id} --failed"
    file = PurePath(run.source).name or "the flow"
    by_hand = tally.by_hand
    if by_hand and (is_cancelled_by_person(outcome) or len(by_hand) == tally.failed):
        only = f"jackline resume {run.run_id} --only {shlex.quote(by_hand[0])}"
        return NextStep(only, "goes on with the agent that was cancelled")
    if tally.raise_to:
        command = f"jackline resume {run.run_id} --failed --budget {tally.raise_to}"
        if failed:
            command = f"jackline resume {run.run_id} --budget {tally.raise_to}"
        return NextStep(command, f"raises the limit; {_KEPT}")
    ends = {outcome.terminated_by} if failed else {ending for ending, _ in tally.endings}
    if ends <= set(_LIMITS):
        return NextStep(again, f"once you have raised the limit in {file}; {_KEPT}")
    if failed and not tally.failed and outcome.terminated_by in _OF_THE_FLOW:
        return NextStep(again, f"after mending {file} if the fault is there; {_KEPT}")
    return NextStep(again, _KEPT if failed else "runs the failed ones again, nothing else")
