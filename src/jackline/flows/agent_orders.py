"""End single agents of a run by a person's order, whoever carries the run and wherever they stand.

Laws: (1) an order is kept until it is carried out or taken back, so that a crash loses none; (2) an
agent is cut off only while it waits or works, never while its beginning or its end is being kept;
(3) nobody but the named agents is touched; (4) what was ended by hand is known as that by its
evidence, and is not begun again unless it is asked for by name.
Not here: giving an order (orders.py), where orders are kept (engine.py).
"""

from __future__ import annotations

import asyncio
import shlex
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.flows.engine import Claim, Engine
from jackline.flows.outcome_json import decode_outcome
from jackline.flows.records import AgentOrder, CallKind, CallRecord, CallState

_BY_HAND = "by hand"


class EndedByHandError(Exception):
    """Raised where an agent waits or works, when a person's order ends it; never leaves flows/."""


def by_hand(run_id: str, name: str) -> Evidence:
    """What is said of an agent that a person ended."""
    says = f"A person cancelled it: jackline cancel {run_id} --only {shlex.quote(name)}"
    return Evidence(sub=_BY_HAND, says=says)


def was_ended_by_hand(call: CallRecord) -> bool:
    """Whether a person's order ended this agent."""
    if call.state is not CallState.FAILED or call.terminated_by != Ending.CANCELLED:
        return False
    return call.outcome is not None and is_by_hand(decode_outcome(call.outcome))


def is_by_hand(outcome: Outcome[Any]) -> bool:
    """Whether this end was a person's order."""
    return outcome.terminated_by is Ending.CANCELLED and outcome.evidence.sub == _BY_HAND


def is_meant(call: CallRecord, name: str) -> bool:
    """Whether an order of this name means this call: by its label or its task id."""
    return name in (call.label, call.task_id)


class Reach:
    """Where an order reaches one agent of this process."""

    def __init__(self, label: str, task_id: str) -> None:
        self._names = (label, task_id)
        self._cut: asyncio.Task[Any] | None = None
        self.ordered = ""
        """The name under which it was ordered to end; empty when it was not."""
        self.obeyed = False
        self.ended = asyncio.Event()

    def is_meant(self, name: str) -> bool:
        """Whether an order of this name means this agent."""
        return name in self._names

    def order(self, name: str) -> None:
        """End it as soon as it waits or works, which is now in most cases."""
        if self.ordered:
            return
        self.ordered = name
        if self._cut is not None:
            self._cut.cancel()

    @contextmanager
    def may_be_cut(self) -> Iterator[None]:
        """Within this an order ends the agent: EndedByHandError comes out."""
        if self.ordered:
            self.obeyed = True
            raise EndedByHandError
        task = asyncio.current_task()
        if task is None:
            yield
            return
        others = task.cancelling()
        self._cut = task
        try:
            yield
        except asyncio.CancelledError:
            # Ours alone is taken back; a cancellation by the flow or the run goes on, as ever.
            if self._is_ordered() and task.uncancel() <= others:
                self.obeyed = True
                raise EndedByHandError from None
            raise
        else:
            if self._is_ordered():
                task.uncancel()  # it came to its own end in spite of the order
        finally:
            self._cut = None

    def _is_ordered(self) -> bool:
        return bool(self.ordered)


class AgentOrders:
    """The orders to the agents of one run, as its owner carries them out."""

    def __init__(
        self,
        engine: Engine,
        claim: Claim,
        aside: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._engine = engine
        self._claim = claim
        self._aside = aside
        self._standing: dict[str, AgentOrder] = {}
        self._reached: set[Reach] = set()
        self._ended: Counter[str] = Counter()
        """How many have ended by each order, and are not told yet."""
        self._answering: set[tuple[str, float]] = set()

    async def load(self) -> None:
        """Read which orders stand."""
        orders = await self._engine.ordered_ends(self._claim.run_id)
        self._standing = {order.name: order for order in orders if not order.ended}

    @property
    def standing(self) -> Sequence[AgentOrder]:
        """The orders that nobody has carried out."""
        return list(self._standing.values())

    def carried_out(self, name: str) -> None:
        """One more agent was ended by the order of this name; its answer is given with the rest."""
        self._ended[name] += 1

    @contextmanager
    def reaching(self, label: str, task_id: str) -> Iterator[Reach]:
        """Within this, orders reach the agent."""
        reach = Reach(label, task_id)
        self._reached.add(reach)
        for name in self._standing:
            if reach.is_meant(name):
                reach.ordered = name
        try:
            yield reach
        finally:
            self._reached.discard(reach)
            if reach.obeyed:
                self.carried_out(reach.ordered)
            reach.ended.set()

    async def look(self) -> None:
        """See what was ordered since, and do it."""
        await self.load()
        for order in self.standing:
            if (order.name, order.at) in self._answering:
                continue
            meant = [each for each in self._reached if each.is_meant(order.name)]
            for reach in meant:
                reach.order(order.name)
            if meant:
                # It means those that there are; the flow may call another one of that name next.
                del self._standing[order.name]
            if meant or self._ended[order.name] or order.ended is None:
                self._answering.add((order.name, order.at))
                self._aside(self._answer(order, meant))

    async def _answer(self, order: AgentOrder, meant: list[Reach]) -> None:
        """Tell how many it was, once their ends are kept."""
        try:
            for reach in meant:
                await reach.ended.wait()
            ended = self._ended.pop(order.name, 0)
            await self._engine.answer_order(self._claim, replace(order, ended=ended))
        finally:
            self._answering.discard((order.name, order.at))


def agents_meant(calls: Sequence[CallRecord], name: str) -> list[CallRecord]:
    """The agents' calls that an order of this name means."""
    return [call for call in calls if call.kind is CallKind.AGENT and is_meant(call, name)]
