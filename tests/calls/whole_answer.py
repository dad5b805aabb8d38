"""Wait for the whole answer of a call in one await.

Rules: (1) the result is the answer, or `CallRefusedError` with the history of every attempt; (2) a
cancelled waiter frees the call's permit at once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from jackline.calls.call_manager import CallManager
from jackline.calls.request import CallCompletion, CallRefusal, CallRequest, FailedAttempt
from jackline.dialects import TokenUsage
from jackline.failures.sentences import duration_in_words, name_of
from jackline.http1.headers import Headers
from jackline.lane_id import LaneId


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """What the caller gets: the bytes, what they cost, and how they were come by."""

    body: bytes
    headers: Headers
    usage: TokenUsage
    lane: LaneId
    attempts: tuple[FailedAttempt, ...] = ()


class CallRefusedError(Exception):
    """The call was refused; with the story of every attempt."""

    def __init__(self, refusal: CallRefusal) -> None:
        super().__init__(refusal.why)
        self.message = refusal.why
        at = refusal.retry_at
        self.retry_at = None if at is None else datetime.fromtimestamp(at, UTC)
        self.attempts = tuple(in_words(one, at) for at, one in enumerate(refusal.attempts, 1))


class _Collector:
    """Puts the pieces of one answer together."""

    def __init__(self, future: asyncio.Future[CallCompletion]) -> None:
        self._future = future
        self.headers: Headers = ()
        self.body = bytearray()

    def answer_began(self, status: int, headers: Headers, lane: LaneId) -> None:  # noqa: ARG002
        self.headers = headers

    def answer_received(self, data: bytes) -> None:
        self.body += data

    def answer_ended(self, ending: CallCompletion) -> None:
        if not self._future.done():
            self._future.set_result(ending)

    def refused(self, refusal: CallRefusal) -> None:
        if not self._future.done():
            self._future.set_exception(CallRefusedError(refusal))

    broken_off = refused


async def complete_call(carrier: CallManager, request: CallRequest) -> CallAnswer:
    """The answer to `request`, however many attempts it takes."""
    future: asyncio.Future[CallCompletion] = asyncio.get_running_loop().create_future()
    collector = _Collector(future)
    call = carrier.submit(request, collector)
    try:
        ending = await future
    finally:
        carrier.leave(call)
    return CallAnswer(
        bytes(collector.body), collector.headers, ending.usage, ending.lane, tuple(ending.attempts)
    )


def in_words(attempt: FailedAttempt, number: int) -> str:
    """One line of the story."""
    ending = name_of(attempt.failure) if attempt.failure is not None else attempt.why
    took = duration_in_words(timedelta(seconds=max(0.0, attempt.ended - attempt.began)))
    return f"attempt {number} on {attempt.lane}: {ending}, after {took}"
