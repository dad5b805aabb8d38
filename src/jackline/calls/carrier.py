"""Carry calls: wait where the controller says, send, classify, retry or move, and answer.

Laws: (1) every decision of the controller is carried out at once and in its order; (2) a caller
that is cancelled or out of time frees its permit at once; (3) a retryable failure never reaches the
caller; (4) one timer for all calls, set to when the controller wants to be woken.
Not here: the decisions (lanes/), the bytes on the wire (the upstream behind the port).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from jackline.calls.port import Answered, Began, Heard, Rejected, Request, Upstream
from jackline.calls.story import Answer, AttemptTold
from jackline.clock import Clock
from jackline.errors import GaveUpError
from jackline.failures import Failure, Kind, Observation, classify
from jackline.failures.sentences import explain
from jackline.lanes import Call, Decision, LaneController, Send, Usage

_UNFINISHED = "the stream ended before the response was complete"


@dataclass(slots=True)
class _Carried:
    """One call under way: who waits for it, and what has come of it so far."""

    id: int
    request: Request
    answer: asyncio.Future[Answer]
    submitted: float
    story: list[AttemptTold] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)


@dataclass(slots=True)
class _Attempt:
    """One attempt under way."""

    task: asyncio.Task[None]
    carried: _Carried
    lane: str
    began: float


class Carrier:
    """All calls of one process, on one controller; use it as an async context manager."""

    def __init__(self, controller: LaneController, upstream: Upstream, clock: Clock) -> None:
        self._controller = controller
        self._upstream = upstream
        self._clock = clock
        self._ids = itertools.count(1)
        self._carried: dict[int, _Carried] = {}
        self._attempts: dict[int, _Attempt] = {}
        self._waker: asyncio.Task[None] | None = None
        self._wake_at: float | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Hang up on everything that is still under way."""
        tasks = [attempt.task for attempt in self._attempts.values()]
        for carried in list(self._carried.values()):
            carried.answer.cancel()
            self._let_go(carried)
        if self._waker is not None:
            self._waker.cancel()
            tasks.append(self._waker)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def carry(self, request: Request, *, patience: float | None = None) -> Answer:
        """The answer to `request`, however many attempts it takes.

        Raises `GaveUpError` with the story of every attempt when waiting is hopeless, or when
        `patience` seconds have passed.
        """
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        carried = _Carried(next(self._ids), request, future, self._now())
        self._carried[carried.id] = carried
        call = Call(
            carried.id,
            request.lanes,
            request.remaining,
            request.input_tokens,
            request.max_tokens,
            request.stream,
        )
        try:
            self._obey(self._controller.submit(self._now(), call))
            return await self._in_time(carried, patience)
        finally:
            self._let_go(carried)

    @property
    def under_way(self) -> int:
        """How many calls, attempts and permits are held; 0 when all is done."""
        held = self._controller.calls_in_flight + self._controller.calls_waiting
        return len(self._carried) + len(self._attempts) + held

    async def _in_time(self, carried: _Carried, patience: float | None) -> Answer:
        if patience is None:
            return await carried.answer
        alarm = asyncio.create_task(self._clock.sleep(patience))
        either: list[asyncio.Future[Answer] | asyncio.Task[None]] = [alarm, carried.answer]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if carried.answer.done():
                return carried.answer.result()
            raise self._out_of_time(carried, patience)
        finally:
            alarm.cancel()

    def _let_go(self, carried: _Carried) -> None:
        """Forget a call, whatever state it is in."""
        if self._carried.pop(carried.id, None) is None:
            return
        for permit, attempt in list(self._attempts.items()):
            if attempt.carried is carried:
                self._hang_up(permit)
        self._obey(self._controller.aborted(self._now(), carried.id))

    # --- carrying out decisions -------------------------------------------------------------

    def _obey(self, decision: Decision) -> None:
        for abort in decision.aborts:
            attempt = self._hang_up(abort.permit)
            if attempt is not None:
                self._tell(attempt, None, abort.why)
        for refusal in decision.refusals:
            carried = self._carried.get(refusal.call)
            if carried is not None and not carried.answer.done():
                carried.answer.set_exception(self._gave_up(carried, refusal.failure))
        for send in decision.sends:
            self._start(send)
        self._set_timer(decision.wake_at)

    def _start(self, send: Send) -> None:
        carried = self._carried[send.call]
        carried.body.clear()
        task = asyncio.create_task(self._attempt(send))
        self._attempts[send.permit] = _Attempt(task, carried, send.lane, self._now())
        task.add_done_callback(lambda done: self._ended(send.permit, done))

    def _ended(self, permit: int, task: asyncio.Task[None]) -> None:
        attempt = self._attempts.pop(permit, None)
        fault = None if task.cancelled() else task.exception()
        # A fault in the upstream's own code: the caller hears of it, and nobody else.
        if attempt is not None and fault is not None and not attempt.carried.answer.done():
            attempt.carried.answer.set_exception(fault)

    def _hang_up(self, permit: int) -> _Attempt | None:
        attempt = self._attempts.pop(permit, None)
        if attempt is not None:
            attempt.task.cancel()
        return attempt

    def _set_timer(self, wake_at: float | None) -> None:
        if wake_at is None or (self._wake_at is not None and self._wake_at <= wake_at):
            return
        if self._waker is not None:
            self._waker.cancel()
        self._wake_at = wake_at
        self._waker = asyncio.create_task(self._wake(wake_at))

    async def _wake(self, at: float) -> None:
        await self._clock.sleep(max(0.0, at - self._now()))
        self._wake_at = self._waker = None
        self._obey(self._controller.tick(self._now()))

    # --- one attempt --------------------------------------------------------------------------

    async def _attempt(self, send: Send) -> None:
        attempt = self._attempts[send.permit]
        try:
            failure, headers = await self._listen(attempt, send)
        except OSError as error:
            failure, headers = self._judge(Observation.of_exception(error)), {}
        if failure is None:
            return
        self._tell(attempt, failure)
        self._obey(self._controller.failed(self._now(), send.permit, failure, headers))

    async def _listen(self, attempt: _Attempt, send: Send) -> tuple[Failure | None, dict[str, str]]:
        """Follow an attempt to its end: what went wrong, if anything, and the headers with it."""
        carried = attempt.carried
        headers: dict[str, str] = {}
        async with aclosing(self._upstream.attempt(carried.request, send.lane)) as events:
            async for event in events:
                match event:
                    case Began():
                        headers = _lowered(event.headers)
                        self._obey(self._controller.first_byte(self._now(), send.permit, headers))
                    case Heard():
                        carried.body += event.data
                        self._controller.heard(self._now(), send.permit)
                    case Answered():
                        self._answered(carried, send, headers, event.usage)
                        return None, headers
                    case Rejected():
                        headers = _lowered(event.headers)
                        seen = Observation.of_response(event.status, headers, event.body)
                        return self._judge(seen), headers
        failure = self._judge(Observation.of_stream(bytes(carried.body)))
        if failure.kind is Kind.NOT_A_FAILURE:
            # The bytes look whole, but the upstream did not call them so, and it knows its dialect.
            failure = self._judge(Observation.of_exception(EOFError(_UNFINISHED)))
        return failure, headers

    def _answered(
        self, carried: _Carried, send: Send, headers: dict[str, str], usage: Usage
    ) -> None:
        now = self._now()
        waited = now - carried.submitted
        story = tuple(carried.story)
        if not carried.answer.done():
            answer = Answer(bytes(carried.body), headers, usage, send.lane, waited, story)
            carried.answer.set_result(answer)
        self._obey(self._controller.finished(now, send.permit, usage))

    # --- telling --------------------------------------------------------------------------------

    def _judge(self, seen: Observation) -> Failure:
        return classify(seen, now=self._clock.now())

    def _tell(self, attempt: _Attempt, failure: Failure | None, why: str = "") -> None:
        told = AttemptTold(attempt.lane, attempt.began, self._now(), failure, why)
        attempt.carried.story.append(told)

    def _gave_up(self, carried: _Carried, failure: Failure) -> GaveUpError:
        return GaveUpError(
            " ".join(explain(failure, self._clock.now())),
            next="see the attempts for what was tried",
            retry_at=failure.resets_at,
            sent="yes",
            attempts=_in_words(carried),
        )

    def _out_of_time(self, carried: _Carried, patience: float) -> GaveUpError:
        waiting = self._controller.waiting(self._now(), carried.id)
        until = None if waiting is None else waiting.until
        return GaveUpError(
            f"no answer within {patience:g} s: {waiting.why if waiting else 'it was in flight'}",
            next="allow more time, or give the call another lane",
            retry_at=None if until is None else datetime.fromtimestamp(until, UTC),
            sent="no" if waiting is not None and not carried.story else "unknown",
            attempts=_in_words(carried),
        )

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _lowered(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _in_words(carried: _Carried) -> list[str]:
    return [told.in_words(number) for number, told in enumerate(carried.story, 1)]
