"""What a run has done and used: the only place that counts it, for every interface.

Rules: (1) it is counted from what is saved: the run's calls, the logs of its agents at work, and
what failed attempts left that began anew; a process that was killed has lost nothing of it; (2)
agents and steps are counted apart, each once, however often it was tried; a child flow is counted
by what is in it; (3) tokens and cost are what this run has paid: not what a fork got from another
run; (4) an agent that a flow asked for and that has not ended is unfinished, begun or not.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from jackline.agents.outcome import Ending, Tally
from jackline.agents.prices import cost_in_words, known_cost
from jackline.autopsy.figures import counted
from jackline.budgets.budget import Amount, Unit
from jackline.errors import JournalError
from jackline.flows.records import (
    CallKind,
    CallRecord,
    CallState,
    RunRecord,
    RunState,
    call_key,
    decode_outcome,
    task_id_of,
)
from jackline.flows.store.agent_log import PAID, WORKED, AgentUsage
from jackline.flows.store.run_store import RunStore

SAVED_UNITS = (Unit.TOKENS, Unit.DOLLARS, Unit.TURNS, Unit.SECONDS)
Used: TypeAlias = dict[str, dict[Unit, float]]
"""What agents used, by task id."""


@dataclass(frozen=True, slots=True)
class RunTotals:
    """The counts of one run."""

    agents: Tally
    steps_done: int
    steps_failed: int
    steps_running: int
    tokens: int
    cost: float
    unpriced: int = 0
    """Tokens whose price is not known."""

    def in_words(self, state: RunState) -> str:
        """For a person: "17 of 20 agents ok, 1 failed: 1 schema, 2 parked; 4 steps"."""
        parts = []
        if self.agents.agents + self.agents.unfinished or not self.steps:
            parked = state is RunState.PARKED
            parts.append(self.agents.in_words("parked" if parked else "not finished"))
        if self.steps:
            failed = f", {self.steps_failed:,} failed" if self.steps_failed else ""
            parts.append(f"{counted(self.steps, 'step')}{failed}")
        return "; ".join(parts)

    @property
    def steps(self) -> int:
        """All steps that were begun."""
        return self.steps_done + self.steps_failed + self.steps_running

    @property
    def paid(self) -> str:
        """For a person: "1,234 tokens, $0.10"."""
        return f"{counted(self.tokens, 'token')}, {cost_in_words(self.cost, self.unpriced)}"

    def to_json(self) -> dict[str, object]:
        """The counts as plain JSON."""
        agents = self.agents
        return {
            "agents": {"ok": agents.ok, "failed": agents.failed, "unfinished": agents.unfinished},
            "steps": {
                "done": self.steps_done,
                "failed": self.steps_failed,
                "running": self.steps_running,
            },
            "tokens": self.tokens,
            "cost": known_cost(self.cost, self.unpriced),
            "unpriced_tokens": self.unpriced,
        }


async def totals_of(store: RunStore, run: RunRecord) -> RunTotals:
    """The counts of a run as it is saved now."""
    calls = await store.calls(run.run_id, values=False)
    return fold(run, calls, await used_by_run(store, run.run_id, calls))


def fold(run: RunRecord, calls: Sequence[CallRecord], used: Used) -> RunTotals:
    """The counts, from a run's calls and what its agents used."""
    agents = Counter(call.state for call in calls if call.kind is CallKind.AGENT)
    steps = Counter(call.state for call in calls if call.kind is CallKind.STEP)
    endings = Counter(
        _ending(call.terminated_by)
        for call in calls
        if call.kind is CallKind.AGENT and call.state is CallState.FAILED
    )
    ended = agents[CallState.DONE] + agents[CallState.FAILED]
    tally = _saved_tally(run)
    known = max(agents.total(), tally.agents + tally.unfinished)
    return RunTotals(
        Tally(
            ended,
            agents[CallState.DONE],
            agents[CallState.FAILED],
            min(tally.replayed, ended),
            tuple(endings.most_common()),
            known - ended,
        ),
        steps[CallState.DONE],
        steps[CallState.FAILED],
        steps[CallState.RUNNING],
        # The record also has what a runner reports only at the end of its agent.
        max(run.tokens, round(sum(each[Unit.TOKENS] for each in used.values()))),
        max(run.cost, sum(each[Unit.DOLLARS] for each in used.values())),
        max(run.unpriced, sum(call.unpriced for call in calls if _is_own(run.run_id, call))),
    )


async def used_by_run(store: RunStore, run_id: str, calls: Sequence[CallRecord]) -> Used:
    """What the agents of a run have used in it so far, as it is saved."""
    used: Used = {}
    for line in await store.entries(begun_anew_log(run_id)):
        try:
            left = json.loads(line.data)
            # Older versions left no seconds.
            add_used(used, left["task_id"], {unit: left.get(unit, 0) for unit in SAVED_UNITS})
        except (ValueError, TypeError, KeyError) as error:
            raise JournalError(f"What run {run_id} used cannot be read: {error}.") from error
    for call in calls:
        if call.kind is CallKind.AGENT and call.started_at and _is_own(run_id, call):
            add_used(used, call.task_id, await used_by_call(store, call))
    return used


def _is_own(run_id: str, call: CallRecord) -> bool:
    """Whether this run has paid the call: a fork keeps calls that another run has paid."""
    return call.task_id == task_id_of(run_id, call.key, call.occurrence)


async def used_by_call(store: RunStore, call: CallRecord) -> Amount:
    """What one agent used since it was begun, or begun anew."""
    used: dict[Unit, float] = {Unit.TOKENS: call.tokens, Unit.DOLLARS: call.cost}
    if call.state is CallState.RUNNING:
        # At work or cut off: its log knows what it used up to its last answer.
        lines = await store.entries(call.task_id, kinds=(PAID, WORKED))
        log = AgentUsage.of_log(lines).amount
        return {unit: max(log[unit], used.get(unit, 0)) for unit in SAVED_UNITS}
    if call.outcome is not None:
        outcome = decode_outcome(call.outcome)
        used |= {Unit.TURNS: outcome.turns, Unit.SECONDS: outcome.duration}
    return used


def add_used(used: Used, task_id: str, amount: Mapping[Unit, float]) -> None:
    """Add what an agent used to what is known of it."""
    past = used.setdefault(task_id, dict.fromkeys(SAVED_UNITS, 0))
    for unit, count in amount.items():
        past[unit] += count


def begun_anew_log(run_id: str) -> str:
    """The log of the run itself, in which agents that begin anew leave what they had used."""
    return task_id_of(run_id, call_key(CallKind.STEP, "", "begun anew"), 0)


def _saved_tally(run: RunRecord) -> Tally:
    try:
        outcome = run.decoded_outcome()
    except JournalError:
        outcome = None  # an older version's
    return Tally() if outcome is None else outcome.tally


def _ending(name: str) -> Ending:
    try:
        return Ending(name)
    except ValueError:
        return Ending.CRASH
