"""Cancel single agents of a run by a person's order, and find the agents that an order names.

Rules: (1) an order is saved until it is carried out or withdrawn, so that a crash loses none; (2)
an agent is cut off only while it waits or works, never while its beginning or its end is being
saved; (3) no agent but the named ones is touched; a name is a label or a task id, and means all
agents that have it; (4) an agent that a person cancelled is known by its evidence, and is not
begun again unless it is named; (5) an unknown name is answered with the names that exist.
Not here: giving an order (lifecycle.py), where orders are saved (store/).
"""

from __future__ import annotations

import asyncio
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.errors import BadArgumentError
from jackline.flows.records import (
    ENDED,
    AgentOrder,
    CallKind,
    CallRecord,
    CallState,
    RunRecord,
    decode_outcome,
)
from jackline.flows.store.run_store import Claim, RunStore

_BY_HAND = "by hand"


class AgentCancelledError(Exception):
    """Raised where an agent waits or works, when a person's order ends it; never leaves flows/."""


def cancelled_by_person(run_id: str, name: str) -> Evidence:
    """What is said of an agent that a person ended."""
    says = f"A person cancelled it: jackline cancel {run_id} --only {shlex.quote(name)}"
    return Evidence(sub=_BY_HAND, says=says)


def was_cancelled_by_person(call: CallRecord) -> bool:
    """Whether a person's order ended this agent."""
    if call.state is not CallState.FAILED or call.terminated_by != Ending.CANCELLED:
        return False
    return call.outcome is not None and is_cancelled_by_person(decode_outcome(call.outcome))


def is_cancelled_by_person(outcome: Outcome[Any]) -> bool:
    """Whether this end was a person's order."""
    return outcome.terminated_by is Ending.CANCELLED and outcome.evidence.sub == _BY_HAND


def is_meant(call: CallRecord, name: str) -> bool:
    """Whether an order of this name means this call: by its label or its task id."""
    return name in (call.label, call.task_id)


class CancelHandle:
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
            raise AgentCancelledError
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
                raise AgentCancelledError from None
            raise
        else:
            if self._is_ordered():
                task.uncancel()  # it came to its own end in spite of the order
        finally:
            self._cut = None

    def _is_ordered(self) -> bool:
        return bool(self.ordered)


class AgentCancellations:
    """The orders to the agents of one run, as its owner carries them out."""

    def __init__(
        self,
        engine: RunStore,
        claim: Claim,
        aside: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._engine = engine
        self._claim = claim
        self._aside = aside
        self._standing: dict[str, AgentOrder] = {}
        self._reached: set[CancelHandle] = set()
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
    def reaching(self, label: str, task_id: str) -> Iterator[CancelHandle]:
        """Within this, orders reach the agent."""
        reach = CancelHandle(label, task_id)
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

    async def _answer(self, order: AgentOrder, meant: list[CancelHandle]) -> None:
        """Tell how many it was, once their ends are kept."""
        try:
            for reach in meant:
                await reach.ended.wait()
            ended = self._ended.pop(order.name, 0)
            await self._engine.answer_order(self._claim, replace(order, ended=ended))
        finally:
            self._answering.discard((order.name, order.at))


def agents_named(calls: Sequence[CallRecord], name: str) -> list[CallRecord]:
    """The agents' calls that an order of this name means."""
    return [call for call in calls if call.kind is CallKind.AGENT and is_meant(call, name)]


_MOST_LABELS = 10


async def agents_to_resume(engine: RunStore, record: RunRecord, name: str) -> list[CallRecord]:
    """The unfinished agents of this name; an order to end them is taken back."""
    calls = await engine.calls(record.run_id)
    meant = agents_named(calls, name)
    chosen = [call for call in meant if call.state is not CallState.DONE]
    taken_back = await withdraw_cancellations(engine, record.run_id, name, chosen)
    if chosen or (taken_back and record.state not in ENDED):
        return chosen
    if meant:
        raise BadArgumentError(
            f"The agent {name} of {record.run_id} has finished: there is nothing to go on with.",
            next="`jackline fork` runs finished ones again, in a new run.",
        )
    raise unknown_agent(record.run_id, calls, name)


async def withdraw_cancellations(
    engine: RunStore, run_id: str, name: str, agents: Collection[CallRecord] = ()
) -> bool:
    """Take back the orders that mean these agents; whether one was not carried out yet."""
    names = {name, *(each for call in agents for each in (call.label, call.task_id))}
    orders = [order for order in await engine.ordered_ends(run_id) if order.name in names]
    for order in orders:
        await engine.withdraw_order(run_id, order.name)
    return any(not order.ended for order in orders)


def unknown_agent(run_id: str, calls: Iterable[CallRecord], name: str) -> BadArgumentError:
    """No agent of this run has that name."""
    labels = dict.fromkeys(call.label for call in calls if call.kind is CallKind.AGENT)
    known = ", ".join(list(labels)[:_MOST_LABELS]) or "none yet"
    more = len(labels) - _MOST_LABELS
    return BadArgumentError(
        f"No agent of {run_id} is labelled {name!r}.",
        next=f"Its agents are: {known}{f' and {more} more' if more > 0 else ''}.",
    )


def nothing_failed(
    record: RunRecord, failed: Collection[CallRecord], only: str | None
) -> BadArgumentError:
    """There is nothing to retry; agents that a person cancelled are named, and how to go on."""
    by_hand = next((call.label for call in failed if was_cancelled_by_person(call)), None)
    if only is None and by_hand is not None:
        return BadArgumentError(
            f"Nothing failed in {record.run_id} but what a person cancelled.",
            next=f"`jackline resume {record.run_id} --only {shlex.quote(by_hand)}` goes on with it",
        )
    labels = ", ".join(sorted({call.label for call in failed})[:_MOST_LABELS]) or "none"
    return BadArgumentError(
        f"Nothing failed in {record.run_id}" + (f" under {only!r}." if only else "."),
        next=f"Failed calls: {labels}. `jackline fork` runs finished ones again.",
    )
