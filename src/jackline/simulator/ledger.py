"""Record every request and its outcome, and add up the costs: the truth for tests and drills.

Rules: (1) every request has one entry and ends at most once; (2) useful + wasted + open = all;
(3) no prompt and no answer is stored, only hashes and numbers; (4) every answer that began is
charged, as far as it was generated; tokens of a model without a listed price are counted and
never priced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum

from jackline.simulator.exchange import SimRequest
from jackline.simulator.prompt_cache import Hit
from jackline.simulator.vendor_facts import price_of


class Bill:
    """The costs so far."""

    def __init__(self) -> None:
        self.dollars = 0.0
        self.tokens: Counter[str] = Counter()
        self.unpriced: Counter[str] = Counter()
        """Tokens of models without a listed price, by model."""

    def add(
        self,
        model: str,
        *,
        plain: int = 0,
        read: int = 0,
        written_5m: int = 0,
        written_1h: int = 0,
        output: int = 0,
    ) -> None:
        """Charge one answer."""
        self.tokens.update(
            input=plain,
            cache_read=read,
            cache_write_5m=written_5m,
            cache_write_1h=written_1h,
            output=output,
        )
        price = price_of(model)
        if price is None:
            self.unpriced[model] += plain + read + written_5m + written_1h + output
            return
        self.dollars += price.dollars(
            plain=plain, read=read, written_5m=written_5m, written_1h=written_1h, output=output
        )

    @property
    def read_share(self) -> float:
        """The share of the input that was read from prompt caches; 0 without input."""
        whole = self.tokens.total() - self.tokens["output"]
        return self.tokens["cache_read"] / whole if whole else 0.0

    def to_json(self) -> dict[str, object]:
        """The costs, ready for JSON."""
        return {
            "dollars": round(self.dollars, 6),
            "tokens": dict(self.tokens),
            "read_share": round(self.read_share, 4),
            "unpriced": dict(sorted(self.unpriced.items())),
        }


class RequestOutcome(StrEnum):
    """How a request ended."""

    OPEN = "open"
    COMPLETED = "completed"
    REJECTED = "rejected"
    BROKEN = "broken"
    CANCELLED = "cancelled"


@dataclass(slots=True)
class LedgerEntry:
    """One request; `why` names the status or the way it broke."""

    id: int
    model: str
    session: str
    agent: str
    body_hash: str
    arrived: float
    input_tokens: int
    output_tokens: int = 0
    outcome: RequestOutcome = RequestOutcome.OPEN
    why: str = ""
    first_byte: float | None = None
    ended: float | None = None
    wall: bool = False
    after_wall: bool = False
    """Sent into a wall that had already been announced to this model's callers."""
    dialect: str = "anthropic"
    cache_read_tokens: int = 0
    cache_write_5m_tokens: int = 0
    cache_write_1h_tokens: int = 0

    @property
    def plain_tokens(self) -> int:
        """The input that is neither in a prompt cache nor written to one."""
        return self.input_tokens - (
            self.cache_read_tokens + self.cache_write_5m_tokens + self.cache_write_1h_tokens
        )


class RequestLedger:
    """All entries in order of arrival, and running counts."""

    def __init__(self) -> None:
        self.entries: list[LedgerEntry] = []
        self.outcomes: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.after_wall = 0
        self._wall_announced_at: dict[str, float] = {}

    def __iter__(self) -> Iterator[LedgerEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def useful(self) -> int:
        """Requests that got their whole answer."""
        return self.outcomes[RequestOutcome.COMPLETED]

    @property
    def wasted(self) -> int:
        """Requests that ended without a whole answer."""
        return len(self.entries) - self.useful - self.open

    @property
    def open(self) -> int:
        """Requests that still wait, also those that hang."""
        return len(self.entries) - sum(self.outcomes.values())

    @property
    def repeated(self) -> int:
        """Completed requests whose body had been completed before for the same agent."""
        done = Counter(
            (entry.session, entry.agent, entry.body_hash)
            for entry in self.entries
            if entry.body_hash and entry.outcome is RequestOutcome.COMPLETED
        )
        return done.total() - len(done)

    def opened(self, id: int, now: float, request: SimRequest) -> LedgerEntry:  # noqa: A002
        """Record an arrival."""
        entry = LedgerEntry(
            id,
            request.model,
            request.session,
            request.agent,
            request.body_hash,
            now,
            request.input_tokens,
            dialect=request.dialect,
        )
        self.entries.append(entry)
        return entry

    def admitted(self, entry: LedgerEntry, hit: Hit | None = None) -> None:
        """Record an admission, which ends a wall of its model."""
        if hit is not None:
            entry.cache_read_tokens = hit.read
            entry.cache_write_5m_tokens = hit.written_5m
            entry.cache_write_1h_tokens = hit.written_1h
        if self._wall_announced_at:
            self._wall_announced_at.pop(entry.model, None)

    def met_wall(self, entry: LedgerEntry) -> None:
        """Record that an arrival was refused by a wall."""
        entry.wall = True
        announced = self._wall_announced_at.get(entry.model)
        if announced is not None and entry.arrived >= announced:
            entry.after_wall = True
            self.after_wall += 1

    def ended(
        self,
        entry: LedgerEntry,
        now: float,
        outcome: RequestOutcome,
        why: str,
        output_tokens: int = 0,
    ) -> None:
        """Record the end of a request."""
        entry.outcome = outcome
        entry.why = why
        entry.ended = now
        entry.output_tokens = output_tokens
        self.outcomes[outcome] += 1
        self.reasons[why] += 1
        if entry.wall:
            self._wall_announced_at.setdefault(entry.model, now)

    def summary(self) -> dict[str, object]:
        """The counts, ready for JSON."""
        return {
            "requests": len(self.entries),
            "useful": self.useful,
            "wasted": self.wasted,
            "open": self.open,
            "after_wall": self.after_wall,
            "repeated": self.repeated,
            "outcomes": {str(name): count for name, count in sorted(self.outcomes.items())},
            "reasons": dict(sorted(self.reasons.items())),
            "dialects": dict(sorted(Counter(entry.dialect for entry in self.entries).items())),
            "input_tokens": sum(entry.input_tokens for entry in self._completed()),
            "output_tokens": sum(entry.output_tokens for entry in self._completed()),
            "wasted_output_tokens": sum(
                entry.output_tokens
                for entry in self.entries
                if entry.outcome != RequestOutcome.COMPLETED
            ),
            "bill": self.bill().to_json(),
        }

    def bill(self) -> Bill:
        """What the account pays: every answer that began, as far as it was generated."""
        bill = Bill()
        for entry in self.entries:
            if entry.first_byte is not None:
                bill.add(
                    entry.model,
                    plain=entry.plain_tokens,
                    read=entry.cache_read_tokens,
                    written_5m=entry.cache_write_5m_tokens,
                    written_1h=entry.cache_write_1h_tokens,
                    output=entry.output_tokens,
                )
        return bill

    def to_json(self) -> dict[str, object]:
        """The counts and every entry, ready for JSON."""
        return {**self.summary(), "entries": [asdict(entry) for entry in self.entries]}

    def _completed(self) -> Iterator[LedgerEntry]:
        return (entry for entry in self.entries if entry.outcome is RequestOutcome.COMPLETED)
