"""Hold one call while it is carried: who wants it, what was tried, what has been delivered.

Laws: (1) a call ends once; what comes later is not passed on; (2) a call is in exactly one place:
in line for a cap, waiting for a lane, in flight, or over.
Not here: what moves it from one to the other (carrier.py).
"""

from __future__ import annotations

from typing import Protocol

from jackline.calls.foreign_stitch import ForeignStitch
from jackline.calls.request import Ending, Receiver, Refusal, Rejection, Request
from jackline.calls.stitching import Stitch
from jackline.calls.story import AttemptTold
from jackline.dialects import TokensUsed
from jackline.upstream.port import Attempt, Headers

_NOTHING_USED = TokensUsed()
# Never fed: a call without a stream has nothing to stitch.
_NO_STREAM: Stitch | ForeignStitch = Stitch("block")


def _stitch(request: Request) -> Stitch | ForeignStitch:
    if request.dialect == "anthropic":
        return Stitch(request.mode, keeps_text=request.continues)
    return ForeignStitch(request.mode, responses=request.dialect == "openai-responses")


class _Nobody:
    """Receives for a call that is over."""

    def answer_began(self, status: int, headers: Headers, lane: str) -> None:
        """Nobody listens."""

    def answer_heard(self, data: bytes) -> None:
        """Nobody listens."""

    def answer_ended(self, ending: Ending) -> None:
        """Nobody listens."""

    def refused(self, refusal: Refusal) -> None:
        """Nobody listens."""

    def broken_off(self, refusal: Refusal) -> None:
        """Nobody listens."""


_NOBODY = _Nobody()


class InFlight(Protocol):
    """An attempt that a call has in flight."""

    permit: int
    lane: str
    handle: Attempt | None
    stitch: Stitch | ForeignStitch

    @property
    def status(self) -> int | None:
        """The status of its answer, once that is there."""
        ...


class Carried:
    """One call under way."""

    __slots__ = (
        "accepted_on",
        "began",
        "beside",
        "doubted_on",
        "has_read_answer",
        "hearing",
        "held_for",
        "number",
        "original",
        "over",
        "paused",
        "receiver",
        "rejected_on",
        "rejection",
        "request",
        "sent",
        "stitch",
        "story",
        "submitted",
        "tries",
        "usage",
        "waited",
        "withheld",
    )

    def __init__(self, number: int, request: Request, receiver: Receiver, now: float) -> None:
        self.number = number
        self.request = request
        # What the client asked, before any continuation of a broken answer was put behind it.
        self.original = request.message
        self.receiver: Receiver = receiver
        self.submitted = now if request.since is None else min(now, request.since)
        self.stitch = _stitch(request) if request.stream else _NO_STREAM
        self.story: list[AttemptTold] = []
        # How many attempts were begun.
        self.tries = 0
        self.hearing: InFlight | None = None
        # A second attempt, while the first is silent; whichever is heard goes on alone.
        self.beside: InFlight | None = None
        self.rejection: Rejection | None = None
        # The lane that has refused its client's own credential.
        self.rejected_on: str | None = None
        # The lane that knows its client's account, and the one that works and did not accept it.
        self.accepted_on: str | None = None
        self.doubted_on: str | None = None
        # The lanes and last resorts that it has once its client may use those with a key of ours.
        self.withheld: tuple[tuple[str, ...], tuple[str, ...]] | None = None
        self.usage: TokensUsed = _NOTHING_USED
        # Whether what came whole was an answer of a model, and no other document.
        self.has_read_answer = False
        self.began = False
        self.over = False
        self.paused = False
        self.sent = False
        # The date of a reset that it is held for, and when that was to come on the time line.
        self.held_for: tuple[float, float] | None = None
        # How long it waited before its latest attempt.
        self.waited = 0.0

    def attempt_ended(self, attempt: InFlight) -> None:
        """An attempt is over; a second one takes the place of a first."""
        if attempt is self.beside:
            self.beside = None
        elif attempt is self.hearing:
            self.hearing, self.beside = self.beside, None
            if self.hearing is not None and self.request.stream:
                self.hearing.stitch.waste(self.stitch.cost)
                self.stitch = self.hearing.stitch

    def stitch_beside(self) -> Stitch | ForeignStitch:
        """What makes the answer of a second attempt, as long as nothing of the first is out."""
        return _stitch(self.request) if self.request.stream else _NO_STREAM

    @property
    def in_flight(self) -> bool:
        """Whether an attempt is under way."""
        return self.hearing is not None

    @property
    def delivered(self) -> bool:
        """Whether the receiver holds a part of an answer already."""
        return self.began

    @property
    def wasted(self) -> TokensUsed:
        """What its broken attempts have cost."""
        return self.stitch.wasted_usage

    @property
    def is_model_answer(self) -> bool:
        """Whether what its client was given was read as an answer of a model."""
        return self.has_read_answer or (self.request.stream and self.stitch.delivered)

    def deliver(self, status: int, headers: Headers, lane: str, data: bytes) -> None:
        """Pass bytes of the answer on."""
        if self.over:
            return
        if not self.began:
            self.began = True
            self.receiver.answer_began(status, headers, lane)
        self.receiver.answer_heard(data)

    def end(self, lane: str, *, shortened: bool) -> TokensUsed:
        """The answer is delivered; what it cost."""
        stitch = self.stitch
        usage = stitch.usage if stitch.delivered else self.usage
        if not self.over:
            self.over = True
            self._let_go().answer_ended(Ending(lane, usage, shortened, self.story, self.tries))
        return usage

    def refuse(self, refusal: Refusal) -> None:
        """There will be no answer, or no more of it."""
        if self.over:
            return
        self.over = True
        if self.began:
            self._let_go().broken_off(refusal)
        else:
            self._let_go().refused(refusal)

    def leave(self) -> None:
        """The receiver wants nothing any more."""
        self.over = True
        self._let_go()

    def _let_go(self) -> Receiver:
        # The two hold each other; a body of many megabytes must not wait for the collector.
        receiver, self.receiver = self.receiver, _NOBODY
        return receiver
