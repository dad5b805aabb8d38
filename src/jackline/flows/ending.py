"""Say how a run ended, from what its function gave and what interrupted it.

Laws: (1) an ending is `completion` only when the result is what the flow promises; (2) a run that
was told to fail or to cancel does so, whatever its function returns afterwards; one that was only
told to stop, and finished meanwhile, is finished; (3) pure.
Not here: keeping it (running.py).
"""

from __future__ import annotations

import asyncio
import traceback
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jackline.agents.outcome import Ending, Evidence
from jackline.errors import JacklineError
from jackline.flows.calls import AgentFailedError
from jackline.flows.definition import Flow
from jackline.flows.execution import Interruption
from jackline.flows.records import RunRecord, RunState
from jackline.flows.values import UnfitValueError

_SAID = 300


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a run: its state, its ending, and its result both decoded and as it is kept."""

    state: RunState
    ending: Ending
    evidence: Evidence
    value: object = None
    data: bytes | None = None
    text: str = ""
    error: BaseException | None = None

    @property
    def brief(self) -> str:
        """Why, for a log: without the words of a user's exception, which may hold anything."""
        if self.error is None or isinstance(self.error, JacklineError):
            return self.evidence.says
        return f"{type(self.error).__name__}{_place(self.error)}"


def how_it_ended(
    flow: Flow[..., Any],
    main: asyncio.Task[Any],
    interruption: Interruption | None,
    record: RunRecord,
    wall: tuple[Ending, Evidence],
) -> Ended:
    """How it ended; `main` is the flow's own task, and done; `record` tells if it was parked.

    `wall` is what parked it then: what it means, and what was seen of it.
    """
    error = None if main.cancelled() else main.exception()
    if interruption is not None:
        finished = not main.cancelled() and error is None
        if interruption.state is not RunState.STOPPED or not finished:
            if interruption.state is RunState.STOPPED and record.state is RunState.PARKED:
                return _parked(record, wall)
            shown = None if interruption.keeps_agents else error
            return Ended(
                interruption.state, interruption.ending, interruption.evidence, error=shown
            )
    if main.cancelled():
        evidence = Evidence(says="The flow cancelled itself.")
        return Ended(RunState.FAILED, Ending.CANCELLED, evidence)
    if error is not None:
        return _raised(error)
    return _returned(flow, main.result())


def _parked(record: RunRecord, wall: tuple[Ending, Evidence]) -> Ended:
    wake_at = record.wake_at
    resets_at = None if wake_at is None else datetime.fromtimestamp(wake_at, UTC)
    ending, seen = wall
    evidence = replace(seen, says=record.why, resets_at=resets_at)
    return Ended(RunState.PARKED, ending, evidence)


def _returned(flow: Flow[..., Any], value: object) -> Ended:
    try:
        data = flow.shape.encode(value)
        decoded = flow.shape.decode(data)
    except UnfitValueError as error:
        if value is None:
            promised = getattr(flow.promises, "__name__", str(flow.promises))
            says = f"The flow returned nothing, though it promises {promised}."
        else:
            says = f"What the flow returned cannot be kept: {error.message}"
        return Ended(RunState.FAILED, Ending.SCHEMA, Evidence(says=says), error=error)
    return Ended(RunState.FINISHED, Ending.COMPLETION, Evidence(), decoded, data)


def _raised(error: BaseException) -> Ended:
    if isinstance(error, AgentFailedError):
        outcome = error.outcome
        evidence = Evidence(
            status=outcome.evidence.status,
            failure=outcome.evidence.failure,
            sub=outcome.evidence.sub,
            says=error.message,
            attempts=outcome.evidence.attempts,
            request_id=outcome.evidence.request_id,
            resets_at=outcome.evidence.resets_at,
        )
        return Ended(
            RunState.FAILED, outcome.terminated_by, evidence, text=outcome.text, error=error
        )
    if isinstance(error, JacklineError):
        says = " ".join(part for part in (error.message, error.next) if part)
    else:
        said = str(error)[:_SAID]
        says = f"{type(error).__name__}{': ' + said if said else ''}{_place(error)}"
    return Ended(RunState.FAILED, Ending.CRASH, Evidence(says=says), error=error)


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
