"""Sum what calls used: tokens and dollars, the same for every face that shows them.

Rules: (1) pure: events come in; (2) a model whose price is not known costs "unknown", never
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from jackline.dialects import TokenUsage
from jackline.events import CallEnded

K = TypeVar("K", bound=Hashable)
PriceOf: TypeAlias = Callable[[str, TokenUsage], float | None]


@dataclass(slots=True)
class Sums:
    """What several calls used."""

    calls: int = 0
    tokens: int = 0
    dollars: float = 0.0
    unpriced: int = 0
    """Tokens of models whose price is not known."""

    def join(self, other: Sums) -> None:
        """Add the other sums to these."""
        self.calls += other.calls
        self.tokens += other.tokens
        self.dollars += other.dollars
        self.unpriced += other.unpriced

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        dollars = round(self.dollars, 4)
        return {
            "calls": self.calls,
            "tokens": self.tokens,
            "dollars": dollars,
            "unpriced": self.unpriced,
        }


def sums_by(
    events: Iterable[CallEnded], sort_of: Callable[[CallEnded], K], price_of: PriceOf
) -> dict[K, Sums]:
    """What these calls used, by their sort.

    A call that was never answered, or whose answer used nothing, does not count.
    """
    # Most calls of a moment are alike: they are added up first, and priced together.
    alike: dict[tuple[K, str], list[int]] = {}
    for event in events:
        if event.lane is None:
            continue
        key = (sort_of(event), event.model)
        used = alike.get(key)
        if used is None:
            used = alike[key] = [0, 0, 0, 0, 0, 0]
        used[0] += event.input_tokens
        used[1] += event.output_tokens
        used[2] += event.cache_read_tokens
        used[3] += event.cache_write_tokens
        used[4] += event.cache_write_1h_tokens
        used[5] += (
            event.input_tokens > 0
            or event.output_tokens > 0
            or event.cache_read_tokens > 0
            or event.cache_write_tokens > 0
        )
    found: dict[K, Sums] = {}
    for (sort, model), (*tokens, calls) in alike.items():
        if calls:
            usage = TokenUsage(*tokens)
            dollars = price_of(model, usage)
            unpriced = usage.total if dollars is None else 0
            sums = Sums(calls, usage.total, dollars or 0.0, unpriced)
            found.setdefault(sort, Sums()).join(sums)
    return found
