"""Tell that an agent of a run begins, and how it ended.

Laws: (1) an end is told alike wherever it was made; (2) no prompt and no answer is told.
Not here: the events (progress.py), where they go (telling.py).
"""

from __future__ import annotations

from typing import Any

from jackline.agents.outcome import Outcome
from jackline.flows.execution import Execution
from jackline.flows.progress import AgentBegan, AgentEnded, Warned
from jackline.flows.records import CallRecord


def tell_began(run: Execution, call: CallRecord, runner: str, model: str | None) -> None:
    """The agent of this call begins."""
    run.tell(
        AgentBegan(
            call.started_at,
            call.task_id,
            call.label,
            call.phase,
            runner,
            model or run.settings.model,
            call.attempts,
        )
    )


def tell_ended(run: Execution, call: CallRecord, outcome: Outcome[Any]) -> None:
    """The agent of this call is through, its clean-up included."""
    at = run.clock.wall()
    if outcome.ok and not outcome.text and outcome.value in ("", None):
        run.tell(Warned(at, f"The agent {call.label} completed with nothing to say."))
    run.tell(
        AgentEnded(
            at,
            call.task_id,
            call.label,
            call.phase,
            outcome.terminated_by,
            outcome.evidence.says,
            outcome.usage.total,
            outcome.cost,
            outcome.turns,
            outcome.duration,
        )
    )
