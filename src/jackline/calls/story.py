"""Remember what happened to a call, attempt by attempt.

Laws: (1) times and kinds of failure, never prompts or answers; (2) told in words that a person can
read in an error.
Not here: keeping stories longer than the call (journal/).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from jackline.dialects import TokensUsed
from jackline.failures import Failure
from jackline.failures.sentences import duration_in_words, name_of
from jackline.upstream.port import Headers


@dataclass(frozen=True, slots=True)
class AttemptTold:
    """One attempt that did not succeed: where, when, how long, and what came of it."""

    lane: str
    began: float
    ended: float
    failure: Failure | None
    why: str = ""

    def in_words(self, number: int) -> str:
        """One line of the story."""
        ending = name_of(self.failure) if self.failure is not None else self.why
        took = duration_in_words(timedelta(seconds=max(0.0, self.ended - self.began)))
        return f"attempt {number} on {self.lane}: {ending}, after {took}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the caller gets: the bytes, what they cost, and how they were come by."""

    body: bytes
    headers: Headers
    usage: TokensUsed
    lane: str
    attempts: tuple[AttemptTold, ...] = ()
