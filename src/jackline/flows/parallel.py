"""Await many calls at once, without one's failure touching another.

Laws: (1) every call has its own outcome, in call order; (2) nobody is cancelled because another
failed; cancelling the whole cancels all; (3) the summary counts what failed, and by what; (4) what
cannot be counted is not hidden: `values` are only those of the calls that are ok.
Not here: one agent (calls.py).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, Awaitable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.errors import BadArgumentError, JournalError, LeaseLostError, StepFailedError
from jackline.flows.calls import AgentCall, AgentFailedError
from jackline.flows.scope import scope_for

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

MOST = 10_000


@dataclass(frozen=True, slots=True)
class Batch(Generic[T_co]):
    """How many calls ended, in the order they were given."""

    outcomes: tuple[Outcome[T_co], ...]

    @property
    def values(self) -> list[T_co]:
        """The values of those that are ok, in call order."""
        return [cast("T_co", outcome.value) for outcome in self.outcomes if outcome.ok]

    @property
    def failed(self) -> list[Outcome[T_co]]:
        """The outcomes of those that are not."""
        return [outcome for outcome in self.outcomes if not outcome.ok]

    @property
    def summary(self) -> str:
        """In words: "17 of 20 ok, 3 failed: 2 quota, 1 schema"."""
        failed = Counter(outcome.terminated_by.value for outcome in self.failed)
        whole = f"{len(self.outcomes) - failed.total():,} of {len(self.outcomes):,} ok"
        if not failed:
            return whole
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in failed.most_common())
        return f"{whole}, {failed.total():,} failed: {kinds}"

    def require(self, least: int | None = None) -> Batch[T_co]:
        """The same batch; StepFailedError when fewer than `least` (all, if not said) are ok."""
        needed = len(self.outcomes) if least is None else least
        if len(self.values) < needed:
            raise StepFailedError(
                f"{needed} were needed: {self.summary}.",
                next="Look at `.failed` for why; `jackline retry` runs the failed ones again.",
            )
        return self

    def __len__(self) -> int:
        return len(self.outcomes)

    def __iter__(self) -> Iterator[Outcome[T_co]]:
        return iter(self.outcomes)


async def parallel(
    calls: Iterable[Awaitable[T]] | AsyncIterable[Awaitable[T]], *, limit: int | None = None
) -> Batch[T]:
    """Await all calls (agents, steps, child flows, any awaitable), at most `limit` at a time.

    Siblings go on when one fails; look at the batch for what came of each. Up to 10,000 calls.
    """
    scope_for("parallel()")
    _check_limit(limit)
    if not isinstance(calls, (Iterable, AsyncIterable)):
        raise BadArgumentError(
            f"parallel() cannot go through a {type(calls).__name__}.",
            next="Give many calls: parallel(agent(…) for …), or a list of them.",
        )
    given = await _collect(calls)
    slots = None if limit is None else asyncio.Semaphore(limit)
    tasks = [asyncio.create_task(_settled(call, slots)) for call in given]
    try:
        if tasks:
            await asyncio.wait(tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    for task in tasks:
        if not task.cancelled():
            task.exception()  # looked at: the first trouble is raised below for all
    return Batch(tuple(_outcome(task) for task in tasks))


def _check_limit(limit: object) -> None:
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise BadArgumentError(
            f"parallel(limit={limit!r}) would start nothing.", next="Give 1 or more."
        )


async def _collect(
    calls: Iterable[Awaitable[T]] | AsyncIterable[Awaitable[T]],
) -> list[Awaitable[T]]:
    given: list[Awaitable[T]] = []
    try:
        if isinstance(calls, AsyncIterable):
            async for call in calls:
                given.append(call)
                _check(given)
        else:
            for call in calls:
                given.append(call)
                _check(given)
    except BaseException:
        for call in given:
            if isinstance(call, Coroutine):
                call.close()
        raise
    return given


def _check(given: list[Awaitable[T]]) -> None:
    call = given[-1]
    if not isinstance(call, Awaitable):
        raise BadArgumentError(
            f"parallel() cannot await a {type(call).__name__}.",
            next="Give calls that were not awaited: parallel(agent(…) for …).",
        )
    if len(given) > MOST:
        raise BadArgumentError(
            f"parallel() takes up to {MOST:,} calls.", next="Split them into several."
        )


async def _settled(call: Awaitable[T], slots: asyncio.Semaphore | None) -> Outcome[T]:
    if slots is None:
        return await _ended(call)
    async with slots:
        return await _ended(call)


async def _ended(call: Awaitable[T]) -> Outcome[T]:
    try:
        if isinstance(call, AgentCall):
            return cast("Outcome[T]", await call.outcome())
        return Outcome(Ending.COMPLETION, await call)
    except AgentFailedError as error:
        return cast("Outcome[T]", error.outcome)
    except (LeaseLostError, JournalError):
        raise
    except Exception as error:  # noqa: BLE001 -- the border of one call: its siblings go on
        return Outcome(Ending.CRASH, evidence=Evidence(says=_in_words(error)))


def _in_words(error: Exception) -> str:
    said = str(error)
    return f"{type(error).__name__}: {said[:300]}" if said else type(error).__name__


def _outcome(task: asyncio.Task[Outcome[T]]) -> Outcome[T]:
    if task.cancelled():
        return Outcome(Ending.CANCELLED, evidence=Evidence(says="It was cancelled."))
    return task.result()
