"""Cancel single agents of a run by a person's order, and find the agents that an order names.

Rules: (1) an order is saved until it is carried out or withdrawn, so that a crash loses none; (2)
an agent is cut off only while it waits or works, never while its beginning or its end is being
saved; (3) no agent but the named ones is touched; a name is a label or a task id, and means all
agents that have it; (4) an agent that a person cancelled is known by its evidence, and is not
begun again unless it is named; (5) an unknown name is answered with the names that exist.
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
from jackline.flows.records import AgentOrder, CallKind, CallRecord, CallState, decode_outcome
from jackline.flows.store.run_store import Claim, RunStore

_BY_HAND = "by hand"


class AgentCancelledError(Exception):
    """Raised where an agent waits or works, when a person's order ends it; never leaves flows/."""


def cancelled_by_person(run_id: str, name: str) -> Evidence:
    """The evidence of an agent that a person ended."""
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


def agents_named(calls: Iterable[CallRecord], name: str) -> list[CallRecord]:
    """The agents' calls that an order of this name means: by label or task id."""
    agents = [call for call in calls if call.kind is CallKind.AGENT]
    return [call for call in agents if name in (call.label, call.task_id)]


class CancelHandle:
    """Where an order reaches one agent of this process."""

    def __init__(self, label: str, task_id: str) -> None:
        self.names = (label, task_id)
        self._task: asyncio.Task[Any] | None = None
        self.ordered = ""
        """The name under which it was ordered to end; empty when it was not."""
        self.obeyed = False
        self.ended = asyncio.Event()

    def order(self, name: str) -> None:
        """End it as soon as it waits or works, which is now in most cases."""
        if not self.ordered:
            self.ordered = name
            if self._task is not None:
                self._task.cancel()

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Within this an order ends the agent: AgentCancelledError comes out."""
        if self.ordered:
            self.obeyed = True
            raise AgentCancelledError
        task = asyncio.current_task()
        if task is None:
            yield
            return
        others = task.cancelling()
        self._task = task
        try:
            yield
        except asyncio.CancelledError:
            # Only our own is taken back; a cancellation by the flow or the run goes on.
            if self._is_ordered() and task.uncancel() <= others:
                self.obeyed = True
                raise AgentCancelledError from None
            raise
        else:
            if self._is_ordered():
                task.uncancel()  # it came to its own end in spite of the order
        finally:
            self._task = None

    def _is_ordered(self) -> bool:
        return bool(self.ordered)  # a call, since mypy takes `ordered` for unchanged


class AgentCancellations:
    """The orders to cancel agents of one run, as its owner carries them out."""

    def __init__(
        self,
        engine: RunStore,
        claim: Claim,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._engine = engine
        self._claim = claim
        self._spawn = spawn
        self._pending: dict[str, AgentOrder] = {}
        self._handles: set[CancelHandle] = set()
        self._ended: Counter[str] = Counter()
        """How many have ended by each order, and are not reported yet."""
        self._answering: set[tuple[str, float]] = set()

    async def load(self) -> None:
        """Read which orders are pending."""
        orders = await self._engine.ordered_ends(self._claim.run_id)
        self._pending = {order.name: order for order in orders if not order.ended}

    @property
    def pending(self) -> Sequence[AgentOrder]:
        """The orders that nobody has carried out."""
        return list(self._pending.values())

    def carried_out(self, name: str) -> None:
        """One more agent was ended by the order of this name."""
        self._ended[name] += 1

    @contextmanager
    def cancellable(self, label: str, task_id: str) -> Iterator[CancelHandle]:
        """Within this, orders reach the agent."""
        handle = CancelHandle(label, task_id)
        self._handles.add(handle)
        for name in self._pending:
            if name in handle.names:
                handle.ordered = name
        try:
            yield handle
        finally:
            self._handles.discard(handle)
            if handle.obeyed:
                self.carried_out(handle.ordered)
            handle.ended.set()

    async def check(self) -> None:
        """Read the orders that came since, and carry them out."""
        await self.load()
        for order in self.pending:
            if (order.name, order.at) in self._answering:
                continue
            named = [handle for handle in self._handles if order.name in handle.names]
            for handle in named:
                handle.order(order.name)
            if named:
                # It means those that there are; the flow may call another one of that name next.
                del self._pending[order.name]
            if named or self._ended[order.name] or order.ended is None:
                self._answering.add((order.name, order.at))
                self._spawn(self._answer(order, named))

    async def _answer(self, order: AgentOrder, named: list[CancelHandle]) -> None:
        """Report how many it was, once their ends are saved."""
        try:
            for handle in named:
                await handle.ended.wait()
            ended = self._ended.pop(order.name, 0)
            await self._engine.answer_order(self._claim, replace(order, ended=ended))
        finally:
            self._answering.discard((order.name, order.at))


MOST_LABELS = 10


async def withdraw_cancellations(
    engine: RunStore, run_id: str, name: str, agents: Collection[CallRecord] = ()
) -> bool:
    """Withdraw the orders that mean these agents; whether one was not carried out yet."""
    names = {name, *(each for call in agents for each in (call.label, call.task_id))}
    orders = [order for order in await engine.ordered_ends(run_id) if order.name in names]
    for order in orders:
        await engine.withdraw_order(run_id, order.name)
    return any(not order.ended for order in orders)


def unknown_agent(run_id: str, calls: Iterable[CallRecord], name: str) -> BadArgumentError:
    """No agent of this run has that name."""
    labels = dict.fromkeys(call.label for call in calls if call.kind is CallKind.AGENT)
    known = ", ".join(list(labels)[:MOST_LABELS]) or "none yet"
    more = len(labels) - MOST_LABELS
    return BadArgumentError(
        f"No agent of {run_id} is labelled {name!r}.",
        hint=f"Its agents are: {known}{f' and {more} more' if more > 0 else ''}.",
    )
