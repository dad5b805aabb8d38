"""Run the `on_end` hooks of agents and runs, also when the process died in between.

Rules: (1) a hook is kept as due before its agent begins, so that after a crash it is known; (2)
the store decides who runs it, so two living processes never both do; (3) a failed one is kept with
its trouble and begun again only by a later process or an explicit order; (4) no process can know
whether a hook whose process died under it had done its work. So:
A hook runs at least once per ending, each time with the same idempotency key.
Not here: what a hook does (acting.py), when an agent ends (agent_carrying.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.flows.cleanup.acting import Act, Actor
from jackline.flows.cleanup.allowed_commands import shown_action
from jackline.flows.engine import Engine
from jackline.flows.outcome_json import decode_outcome, encode_outcome, outcome_of
from jackline.flows.records import CallRecord, CallState, HookRecord

Told = Callable[[str, str, str], None]
"""Hears what was done, the label, and the trouble (empty if there was none)."""


class Hooks:
    """The hooks of one run."""

    def __init__(self, engine: Engine, run_id: str, actor: Actor, told: Told) -> None:
        self._engine = engine
        self._run_id = run_id
        self._actor = actor
        self._told = told
        self._kept: dict[tuple[str, str], HookRecord] = {}
        self._ends: dict[str, int] = {}

    async def load(self) -> None:
        """Read which hooks are due, ran or failed."""
        rows = await self._engine.hooks(self._run_id)
        for row in rows:
            # One that is not ours is not run; a promise of the same name is made anew.
            if row.trusted:
                self._keep(row)

    @property
    def owing(self) -> bool:
        """Whether any hook has still to run, or to run again."""
        return any(row.state != "done" for row in self._kept.values())

    async def promise(self, whose: str, hooks: Iterable[str]) -> str:
        """Keep these hooks as due for the next end of `whose`; gives the id of that end."""
        end_id = f"{whose}/{self._ends.get(whose, 0) + 1}"
        for hook in hooks:
            if (end_id, hook) not in self._kept:
                due = HookRecord(self._run_id, end_id, hook, b"{}", at=self._actor.clock.wall())
                await self._engine.end_hook(due)
                self._kept[end_id, hook] = due
        return end_id

    async def run(self, end_id: str, hooks: Iterable[str], outcome: Outcome[Any]) -> None:
        """Run those hooks of this end that have not run."""
        told = encode_outcome(outcome)
        for hook in hooks:
            row = self._kept.get((end_id, hook))
            if row is None or row.state == "due":
                at = self._actor.clock.wall()
                row = row or HookRecord(self._run_id, end_id, hook, told, at=at)
                await self._do(replace(row, told=told), again=False)

    async def recover(self) -> None:
        """Run again what an earlier process failed at, or died under."""
        for row in self._in_order():
            if row.state in ("running", "failed"):
                await self._do(row, again=True)

    async def run_due(
        self,
        calls: Mapping[str, CallRecord],
        *,
        ending: Ending | None,
        run: Outcome[Any] | None = None,
    ) -> None:
        """Run what is due at an end that was kept, but not cleaned up after.

        With `ending`, the whole run ends here: agents that were underway end like that. `run` is
        how the run itself ended, once that is kept.
        """
        for row in self._in_order():
            if row.state == "due":
                whose = row.end_id.rpartition("/")[0]
                outcome = run if whose == self._run_id else _ended(calls.get(whose), ending)
                if outcome is not None:
                    await self._do(replace(row, told=encode_outcome(outcome)), again=False)
                elif ending is not None and whose != self._run_id and whose not in calls:
                    await self._drop(row)

    def _in_order(self) -> list[HookRecord]:
        """The run's own hooks last: what its agents leave is cleaned up before."""
        own = f"{self._run_id}/"
        return sorted(self._kept.values(), key=lambda row: row.end_id.startswith(own))

    def _keep(self, row: HookRecord) -> None:
        self._kept[row.end_id, row.hook] = row
        whose, _, number = row.end_id.rpartition("/")
        if row.state != "due":
            self._ends[whose] = max(self._ends.get(whose, 0), int(number))

    async def _drop(self, row: HookRecord) -> None:
        """Settle what was promised to an agent that never began: it comes to no end."""
        settled = replace(row, state="done", at=self._actor.clock.wall())
        await self._engine.end_hook(settled)
        self._keep(settled)

    async def _do(self, row: HookRecord, *, again: bool) -> None:
        if not row.trusted or not await self._engine.begin_hook(row, again=again):
            return
        outcome = decode_outcome(row.told)
        label = outcome.label
        whose = row.end_id.rpartition("/")[0]
        key = idempotency_key(row)
        act = Act(
            self._run_id,
            "" if whose == self._run_id else whose,
            row.hook,
            row.told,
            outcome,
            {
                "JACKLINE_RUN_ID": self._run_id,
                "JACKLINE_TASK_ID": outcome.task_id,
                "JACKLINE_TERMINATED_BY": outcome.terminated_by.value,
                "JACKLINE_IDEMPOTENCY_KEY": key,
            },
            key,
        )
        trouble = await self._actor.do(act)
        ended = replace(row, state="failed" if trouble else "done", trouble=trouble)
        await self._engine.end_hook(replace(ended, at=self._actor.clock.wall()))
        self._keep(ended)
        self._told(f"hook {shown_action(row.hook)}", label, trouble)


def idempotency_key(row: HookRecord) -> str:
    """The same for every execution of one hook at one ending of one agent or run."""
    # The hook is part of it: two hooks of one ending may write to the same place.
    told = json.dumps([row.run_id, row.end_id, row.hook]).encode()
    return hashlib.sha256(told).hexdigest()[:32]


def _ended(call: CallRecord | None, ending: Ending | None) -> Outcome[Any] | None:
    if call is not None and call.state is not CallState.RUNNING:
        return outcome_of(call) if call.outcome else None
    if ending is None or call is None:
        return None
    says = "Its run ended while it was underway."
    return Outcome(ending, evidence=Evidence(says=says), task_id=call.task_id, label=call.label)
