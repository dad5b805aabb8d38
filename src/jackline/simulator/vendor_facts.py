"""What vendors publish about models: smallest cached prompt, prices, what their limits count.

Rules: (1) numbers only, each with the day on which it was compared with the vendors' pages; (2) a
model that is not listed has no price, it is never free; (3) a model's name is recognised as
clouds write it too, but never by its beginning alone; (4) these are the provider's own prices;
those by which clients estimate are in agents/prices.py, and a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

LOOKED_UP = "2026-11-16"
"""When the table below was last compared with the vendors' pages."""

_MILLION = 1_000_000
_USUAL_SMALLEST = 1024


class VendorPrice(NamedTuple):
    """Dollars for a million tokens of each kind."""

    input: float
    output: float
    cache_read: float
    cache_write_5m: float
    cache_write_1h: float

    def dollars(
        self, *, plain: int, read: int, written_5m: int, written_1h: int, output: int
    ) -> float:
        """What these tokens cost."""
        return (
            plain * self.input
            + read * self.cache_read
            + written_5m * self.cache_write_5m
            + written_1h * self.cache_write_1h
            + output * self.output
        ) / _MILLION


class _Model(NamedTuple):
    smallest: int
    input: float
    output: float
    read_share: float = 0.1
    write_5m_share: float = 1.25
    write_1h_share: float = 2.0


_MARKED: Mapping[str, _Model] = {
    "claude-3-haiku": _Model(2048, 0.25, 1.25, 0.12, 1.2),
    "claude-3-5-haiku": _Model(2048, 0.8, 4.0),
    "claude-3-5-sonnet": _Model(1024, 3.0, 15.0),
    "claude-3-7-sonnet": _Model(1024, 3.0, 15.0),
    "claude-3-opus": _Model(1024, 15.0, 75.0),
    "claude-opus-4": _Model(1024, 15.0, 75.0),
    "claude-opus-4-1": _Model(1024, 15.0, 75.0),
    "claude-opus-4-5": _Model(4096, 5.0, 25.0),
    "claude-opus-4-6": _Model(4096, 5.0, 25.0),
    "claude-opus-4-7": _Model(2048, 5.0, 25.0),
    "claude-opus-4-8": _Model(1024, 5.0, 25.0),
    "claude-opus-5": _Model(512, 5.0, 25.0),
    "claude-opus-5-5": _Model(512, 4.0, 20.0, 0.05),
    "claude-sonnet-4": _Model(1024, 3.0, 15.0),
    "claude-sonnet-4-5": _Model(1024, 3.0, 15.0),
    "claude-sonnet-4-6": _Model(1024, 3.0, 15.0),
    "claude-sonnet-5": _Model(1024, 2.0, 10.0),
    "claude-sonnet-5-5": _Model(1024, 2.0, 10.0, 0.05),
    "claude-haiku-4-5": _Model(4096, 1.0, 5.0),
    "claude-fable-5": _Model(512, 10.0, 50.0),
    "claude-fable-5-1": _Model(512, 10.0, 50.0, 0.025),
}
# Input, output, and the share of the input price for cache reads; writes cost nothing more.
_UNMARKED: Mapping[str, tuple[float, float, float]] = {
    "gpt-4o": (2.5, 10.0, 0.5),
    "gpt-4.1": (2.0, 8.0, 0.25),
    "gpt-5": (1.25, 10.0, 0.1),
    "gpt-5-codex": (1.25, 10.0, 0.1),
    "gpt-5-mini": (0.25, 2.0, 0.1),
    "gpt-5.1": (1.25, 10.0, 0.1),
    "gpt-5.4": (2.5, 15.0, 0.1),
}
# What surrounds a name is not the name: us.anthropic.claude-opus-4-8-v1:0,
# claude-haiku-4-5-20251001, claude-opus-4-1@20250805, claude-opus-4-8[1m], gpt-5-2025-08-07.
_NAME = re.compile(
    r"(?:^|[./])((?:claude|gpt)-[a-z0-9.-]+?)"
    r"(?:-latest|-0)?(?:[-@]\d{8}|-\d{4}-\d\d-\d\d)?(?:-v\d+(?::\d+)?)?(?:\[1m\])?$"
)
# Whether tokens read from a cache count toward the input tokens per minute, by dialect. Google says
# nothing about Claude on Vertex AI; its own models count them.
_READS_COUNT: Mapping[str, bool] = {
    "anthropic": False,
    "bedrock": False,
    "vertex": True,
    "openai-chat": True,
    "openai-responses": True,
}
_READS_COUNT_ANYWAY = frozenset({"claude-3-5-haiku"})


def smallest_cached(model: str) -> int:
    """The tokens that a prefix must have to be cached; a smaller one is silently not cached."""
    listed = _MARKED.get(_name(model))
    return _USUAL_SMALLEST if listed is None else listed.smallest


def price_of(model: str) -> VendorPrice | None:
    """The price of a model; None where it is not listed."""
    name = _name(model)
    if (marked := _MARKED.get(name)) is not None:
        base = marked.input
        return VendorPrice(
            base,
            marked.output,
            base * marked.read_share,
            base * marked.write_5m_share,
            base * marked.write_1h_share,
        )
    if (unmarked := _UNMARKED.get(name)) is not None:
        base, output, read_share = unmarked
        return VendorPrice(base, output, base * read_share, base, base)
    return None


def listed_models() -> list[str]:
    """All models that have a price."""
    return [*_MARKED, *_UNMARKED]


def reads_count(dialect: str, model: str) -> bool:
    """Whether the limit of input tokens per minute counts what is read from a cache."""
    return _READS_COUNT.get(dialect, True) or _name(model) in _READS_COUNT_ANYWAY


@lru_cache(maxsize=256)
def _name(model: str) -> str:
    match = _NAME.search(model.lower())
    return "" if match is None else match[1]
