"""The outcome of an agent or a run: how it ended, its result, its cost.

Rules: (1) `terminated_by` is `completion` exactly when the answer is there and whole; (2) any other
ending has its evidence: what was seen, how often, and until when; (3) text from before the end is
in `text`, and counts as no answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from operator import add, sub
from typing import TYPE_CHECKING, Generic, TypeVar

from jackline.autopsy.figures import counted

if TYPE_CHECKING:
    from jackline.dialects import TokensUsed

T_co = TypeVar("T_co", covariant=True)
_JSON_NAMES = ("input", "output", "cache_read", "cache_write", "cache_write_1h")

RUNNERS = ("messages", "claude-code", "codex")
"""The names of the runners that agents can have."""


class Ending(StrEnum):
    """What ended an agent; the words are part of the public surface."""

    COMPLETION = "completion"
    RATE_LIMIT = "rate_limit"
    QUOTA = "quota"
    OUTAGE = "outage"
    TOOL_ERROR = "tool_error"
    SCHEMA = "schema"
    BUDGET = "budget"
    TURNS = "turns"
    TIMEOUT = "timeout"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    CRASH = "crash"


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens as the vendor counts them; cached ones apart, because their price differs.

    `cache_write_1h_tokens` are the part of those written that lives for an hour.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0

    @classmethod
    def of(cls, tokens: TokensUsed) -> TokenUsage:
        """The wire's counts as an agent's."""
        return cls(
            tokens.input,
            tokens.output,
            tokens.cache_read,
            tokens.cache_creation,
            tokens.cache_creation_1h,
        )

    @classmethod
    def from_json(cls, data: object) -> TokenUsage:
        """The counts that `to_json` wrote; what is missing or no number is zero."""
        found = data if isinstance(data, dict) else {}
        counts = [found.get(name) for name in _JSON_NAMES]
        return cls(*(count if isinstance(count, int) else 0 for count in counts))

    def to_json(self) -> dict[str, object]:
        """The counts by short names, for logs."""
        return dict(zip(_JSON_NAMES, self._counts, strict=True))

    @property
    def _counts(self) -> tuple[int, ...]:
        return (
            self.input_tokens,
            self.output_tokens,
            self.cache_read_tokens,
            self.cache_write_tokens,
            self.cache_write_1h_tokens,
        )

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(*map(add, self._counts, other._counts))

    def __sub__(self, other: TokenUsage) -> TokenUsage:
        # What of each kind goes beyond the other: never below zero.
        return TokenUsage(*(max(0, count) for count in map(sub, self._counts, other._counts)))

    @property
    def total(self) -> int:
        """All tokens, of whatever price."""
        return sum(self._counts[:4])


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was seen of the end; empty for a completion.

    `failure` is the kind from failures/, `says` one sentence for a person (no prompt, no answer, no
    secret), `attempts` how often it was tried, `resets_at` when waiting will help.
    """

    status: int | None = None
    failure: str | None = None
    sub: str | None = None
    says: str = ""
    attempts: int = 0
    request_id: str | None = None
    resets_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Tally:
    """How the agents of a run ended; all zero for a single agent."""

    agents: int = 0
    ok: int = 0
    failed: int = 0
    replayed: int = 0
    """Of all, how many answered from the journal."""
    endings: tuple[tuple[Ending, int], ...] = ()
    """The failed ones by ending, the most frequent first."""
    unfinished: int = 0
    """Not among `agents`: those that have not ended, and continue when the run does."""

    def in_words(self, unfinished: str = "not finished") -> str:
        """For a person: "17 of 20 agents ok, 1 failed: 1 schema, 2 parked (5 kept from before)"."""
        total = self.agents + self.unfinished
        if not total:
            return "no agents"
        parts = [f"{self.ok:,} of {counted(total, 'agent')} ok"]
        if self.failed:
            kinds = ", ".join(f"{count:,} {ending.value}" for ending, count in self.endings)
            parts.append(f"{self.failed:,} failed: {kinds}")
        if self.unfinished:
            parts.append(f"{self.unfinished:,} {unfinished}")
        kept = f" ({self.replayed:,} kept from before)" if self.replayed else ""
        return ", ".join(parts) + kept


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T_co]):
    """How it ended, its result, its cost, and the ids to continue with."""

    terminated_by: Ending
    value: T_co | None = None
    text: str = ""
    evidence: Evidence = field(default_factory=Evidence)
    session_id: str = ""
    task_id: str = ""
    label: str = ""
    usage: TokenUsage = field(default_factory=TokenUsage)
    cost: float | None = None
    """In dollars; None where the model's price is not known."""
    turns: int = 0
    duration: float = 0.0
    transcript: str | None = None
    tally: Tally = field(default_factory=Tally)
    parked: bool = False
    """A run that waits for `evidence.resets_at` and then continues: it has not ended."""

    @property
    def ok(self) -> bool:
        """Whether the answer is there and whole."""
        return self.terminated_by is Ending.COMPLETION

    @property
    def exit_code(self) -> int:
        """The process's exit code: 0 ok, 1 failed, 3 some agents failed, 75 parked."""
        if self.parked:
            return 75
        if not self.ok:
            return 1
        return 3 if self.tally.failed else 0
