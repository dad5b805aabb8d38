"""The cost of a model call in dollars.

Rules: (1) an unknown price is None and never zero, so that nobody takes it for free; (2) the user's
configured prices go before the listed ones; (3) a model's name is recognised as vendors, clouds and
routers write it, but never by its beginning alone: a new model does not get its predecessor's
price.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from jackline.dialects import TokenUsage
from jackline.settings import setting

LOOKED_UP = "2026-11-15"
"""When the list below was last compared with the vendor's."""

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs, in dollars for a million tokens."""

    input: float = setting(MISSING, "Dollars per million input tokens.", least=0)
    output: float = setting(MISSING, "Dollars per million output tokens.", least=0)
    cache_read: float = setting(
        MISSING, "Per million read from the cache; not set: as `input`.", least=0
    )
    cache_write: float = setting(
        MISSING, "Per million written to the cache; not set: as `input`.", least=0
    )
    cache_write_1h: float = setting(
        MISSING,
        "Per million written to the cache for an hour; not set: twice `input`, or as `cache_write`"
        " where that is more.",
        least=0,
    )


_LISTED: Mapping[str, Price] = {
    "claude-3-haiku": Price(0.25, 1.25, 0.03, 0.3, 0.5),
    "claude-3-5-haiku": Price(0.8, 4.0, 0.08, 1.0, 1.6),
    "claude-3-5-sonnet": Price(3.0, 15.0, 0.3, 3.75, 6.0),
    "claude-3-7-sonnet": Price(3.0, 15.0, 0.3, 3.75, 6.0),
    "claude-3-opus": Price(15.0, 75.0, 1.5, 18.75, 30.0),
    "claude-opus-4": Price(15.0, 75.0, 1.5, 18.75, 30.0),
    "claude-opus-4-1": Price(15.0, 75.0, 1.5, 18.75, 30.0),
    "claude-opus-4-5": Price(5.0, 25.0, 0.5, 6.25, 10.0),
    "claude-opus-4-6": Price(5.0, 25.0, 0.5, 6.25, 10.0),
    "claude-opus-4-7": Price(5.0, 25.0, 0.5, 6.25, 10.0),
    "claude-opus-4-8": Price(5.0, 25.0, 0.5, 6.25, 10.0),
    "claude-opus-5": Price(5.0, 25.0, 0.5, 6.25, 10.0),
    "claude-opus-5-5": Price(4.0, 20.0, 0.2, 5.0, 8.0),
    "claude-sonnet-4": Price(3.0, 15.0, 0.3, 3.75, 6.0),
    "claude-sonnet-4-5": Price(3.0, 15.0, 0.3, 3.75, 6.0),
    "claude-sonnet-4-6": Price(3.0, 15.0, 0.3, 3.75, 6.0),
    "claude-sonnet-5": Price(2.0, 10.0, 0.2, 2.5, 4.0),
    "claude-sonnet-5-5": Price(2.0, 10.0, 0.1, 2.5, 4.0),
    "claude-haiku-4-5": Price(1.0, 5.0, 0.1, 1.25, 2.0),
    "claude-fable-5": Price(10.0, 50.0, 1.0, 12.5, 20.0),
    "claude-fable-5-1": Price(10.0, 50.0, 0.25, 12.5, 20.0),
}
# us.anthropic.claude-opus-4-8-v1:0, anthropic/claude-opus-4.8, claude-haiku-4-5-20251001,
# claude-opus-4-1@20250805, claude-opus-4-8[1m]: what is around the name is not the name.
_NAME = re.compile(
    r"(?:^|[./])(claude-[a-z0-9-]+?)"
    r"(?:-latest|-0)?(?:[-@]\d{8})?(?:-v\d+(?::\d+)?)?(?:\[1m\]|:[a-z]+)?$"
)
# Routers write 4.8 where the vendor writes 4-8.
_VERSION_DOT = re.compile(r"(?<=\d)\.(?=\d)")
_ALIAS = re.compile(r"(?:default|sonnet|opus|haiku|opusplan)(?:\[1m\])?")
_NONE: Mapping[str, Price] = {}


def price_of(model: str, own: Mapping[str, Price] = _NONE) -> Price | None:
    """The price of a model; `own` are the user's, by name or pattern, the first that fits."""
    for pattern, price in own.items():
        if fnmatchcase(model, pattern):
            return price
    return _listed(model)


def is_alias(model: str) -> bool:
    """Whether Claude Code itself finds a listed model by this name."""
    return _ALIAS.fullmatch(model) is not None


def cache_prices(model: str) -> tuple[float, float] | None:
    """The listed dollars for a million tokens written to the cache, and read from it."""
    price = _listed(model)
    return None if price is None else (price.cache_write, price.cache_read)


def dollars(model: str, usage: TokenUsage, own: Mapping[str, Price] = _NONE) -> float | None:
    """What these tokens cost; None where the model's price is not known."""
    price = price_of(model, own)
    if price is None:
        return None
    # Where the part is larger than the whole, the whole counts.
    written_1h = min(usage.cache_write_1h_tokens, usage.cache_write_tokens)
    return (
        usage.input_tokens * price.input
        + usage.output_tokens * price.output
        + usage.cache_read_tokens * price.cache_read
        + (usage.cache_write_tokens - written_1h) * price.cache_write
        + written_1h * price.cache_write_1h
    ) / _MILLION


def dollars_of_answer(
    requested: str, answered: str, usage: TokenUsage, own: Mapping[str, Price] = _NONE
) -> float | None:
    """What an answer costs: an upstream that names another model makes nothing cheaper."""
    known = [dollars(model, usage, own) for model in dict.fromkeys((requested, answered))]
    return max((cost for cost in known if cost is not None), default=None)


def in_dollars(amount: float) -> str:
    """An amount for people: to the cent, and small ones to their first digit."""
    if amount == 0 or amount >= 0.1:
        return f"${amount:,.2f}"
    return f"${max(amount, 1 / _MILLION):.6f}".rstrip("0")


def cost_in_words(cost: float | None, unpriced: int) -> str:
    """A sum for people: what is not known is never shown as nothing."""
    if not unpriced:
        return f"${cost or 0.0:,.2f}"
    return f"at least {in_dollars(cost)}" if cost else "cost unknown"


def known_cost(cost: float | None, unpriced: int) -> float | None:
    """A sum for programs: None where nothing of it is known."""
    return None if unpriced and not cost else cost


def _listed(model: str) -> Price | None:
    name = _listed_name(model)
    return None if name is None else _LISTED[name]


@lru_cache(maxsize=256)
def _listed_name(model: str) -> str | None:
    match = _NAME.search(_VERSION_DOT.sub("-", model.lower()))
    return match[1] if match is not None and match[1] in _LISTED else None
