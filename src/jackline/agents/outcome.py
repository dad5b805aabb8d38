"""The outcome of an agent or a run: how it ended, its result, its cost.

Rules: (1) `terminated_by` is `completion` exactly when the answer is there and whole; (2) any other
ending has its evidence: what was seen, how often, and until when; (3) text from before the end is
in `text`, and counts as no answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar

from jackline.autopsy.figures import counted
from jackline.dialects import TokenUsage
from jackline.errors import ExitCode

T_co = TypeVar("T_co", covariant=True)

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
class Evidence:
    """What was seen of the end; empty for a completion.

    `failure` is the kind from failures/, `says` one sentence for a person (no prompt, no answer, no
    secret), `attempts` how often it was tried, `resets_at` when waiting will help. `private` are
    the words of code of users or of a program, which may quote an answer: they are shown only where
    the run itself is asked for. `raise_to` is the limit of the run that would let it go on, as
    `--budget` takes it.
    """

    status: int | None = None
    failure: str | None = None
    sub: str | None = None
    says: str = ""
    attempts: int = 0
    request_id: str | None = None
    resets_at: datetime | None = None
    private: str = ""
    raise_to: str = ""


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
    by_hand: tuple[str, ...] = ()
    """The labels of the failed ones that a person cancelled."""
    raise_to: str = ""
    """The limits of the run that ended some, raised such that they go on: "dollars=10"."""

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
    """In dollars, as far as prices are known; None where none is."""
    unpriced: int = 0
    """Tokens of models whose price is not known: `cost` is without them."""
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
            return ExitCode.LATER
        if not self.ok:
            return ExitCode.FAILED
        return ExitCode.PARTLY if self.tally.failed else ExitCode.DONE
