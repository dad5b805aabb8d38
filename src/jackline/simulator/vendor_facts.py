"""What vendors publish about models: smallest cached prompt, prices, what their limits count.

Rules: (1) numbers only, with the day on which they were compared with the vendors' pages; (2) a
model that is not listed has no price, it is never free; (3) a model's name is recognised as
clouds write it too, but never by its beginning alone; (4) these are the provider's own prices;
those by which clients estimate are in agents/prices.py, and a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

_MILLION = 1_000_000


class VendorPrice(NamedTuple):
    """Dollars for a million tokens, and the fewest tokens that a cached prefix has.

    What caches cost is counted in shares of the input price.
    """

    input: float
    output: float
    read_share: float = 0.1
    write_5m_share: float = 1.25
    write_1h_share: float = 2.0
    smallest_cached: int = 1024

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

    @property
    def cache_read(self) -> float:
        """Input that is read from a cache."""
        return self.input * self.read_share

    @property
    def cache_write_5m(self) -> float:
        """Input that is written to a cache for five minutes."""
        return self.input * self.write_5m_share

    @property
    def cache_write_1h(self) -> float:
        """Input that is written to a cache for an hour."""
        return self.input * self.write_1h_share


# Last compared with the vendors' pages on 2026-11-16.
PRICES: Mapping[str, VendorPrice] = {
    "claude-3-haiku": VendorPrice(0.25, 1.25, 0.12, 1.2, smallest_cached=2048),
    "claude-3-5-haiku": VendorPrice(0.8, 4.0, smallest_cached=2048),
    "claude-3-5-sonnet": VendorPrice(3.0, 15.0),
    "claude-3-7-sonnet": VendorPrice(3.0, 15.0),
    "claude-3-opus": VendorPrice(15.0, 75.0),
    "claude-opus-4": VendorPrice(15.0, 75.0),
    "claude-opus-4-1": VendorPrice(15.0, 75.0),
    "claude-opus-4-5": VendorPrice(5.0, 25.0, smallest_cached=4096),
    "claude-opus-4-6": VendorPrice(5.0, 25.0, smallest_cached=4096),
    "claude-opus-4-7": VendorPrice(5.0, 25.0, smallest_cached=2048),
    "claude-opus-4-8": VendorPrice(5.0, 25.0),
    "claude-opus-5": VendorPrice(5.0, 25.0, smallest_cached=512),
    "claude-opus-5-5": VendorPrice(4.0, 20.0, 0.05, smallest_cached=512),
    "claude-sonnet-4": VendorPrice(3.0, 15.0),
    "claude-sonnet-4-5": VendorPrice(3.0, 15.0),
    "claude-sonnet-4-6": VendorPrice(3.0, 15.0),
    "claude-sonnet-5": VendorPrice(2.0, 10.0),
    "claude-sonnet-5-5": VendorPrice(2.0, 10.0, 0.05),
    "claude-haiku-4-5": VendorPrice(1.0, 5.0, smallest_cached=4096),
    "claude-fable-5": VendorPrice(10.0, 50.0, smallest_cached=512),
    "claude-fable-5-1": VendorPrice(10.0, 50.0, 0.025, smallest_cached=512),
    # Writes cost nothing more.
    "gpt-4o": VendorPrice(2.5, 10.0, 0.5, 1.0, 1.0),
    "gpt-4.1": VendorPrice(2.0, 8.0, 0.25, 1.0, 1.0),
    "gpt-5": VendorPrice(1.25, 10.0, 0.1, 1.0, 1.0),
    "gpt-5-codex": VendorPrice(1.25, 10.0, 0.1, 1.0, 1.0),
    "gpt-5-mini": VendorPrice(0.25, 2.0, 0.1, 1.0, 1.0),
    "gpt-5.1": VendorPrice(1.25, 10.0, 0.1, 1.0, 1.0),
    "gpt-5.4": VendorPrice(2.5, 15.0, 0.1, 1.0, 1.0),
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


def price_of(model: str) -> VendorPrice | None:
    """The price of a model; None where it is not listed."""
    return PRICES.get(_name(model))


def reads_count(dialect: str, model: str) -> bool:
    """Whether the limit of input tokens per minute counts what is read from a cache."""
    return _READS_COUNT.get(dialect, True) or _name(model) in _READS_COUNT_ANYWAY


@lru_cache(maxsize=256)
def _name(model: str) -> str:
    match = _NAME.search(model.lower())
    return "" if match is None else match[1]
