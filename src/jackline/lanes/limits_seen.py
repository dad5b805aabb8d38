"""Read per-minute limits from response headers, whichever vendor wrote them.

Laws: (1) a header that cannot be read is as good as none; (2) only what a header says is returned,
nothing is remembered.
Not here: what is done with it (lane.py), the meaning of failures (failures/).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

DIMENSIONS = ("requests", "input", "output")

_NAMES = (
    (
        "requests",
        ("anthropic-ratelimit-requests-limit", "x-ratelimit-limit-requests"),
        ("anthropic-ratelimit-requests-remaining", "x-ratelimit-remaining-requests"),
    ),
    (
        "input",
        ("anthropic-ratelimit-input-tokens-limit", "x-ratelimit-limit-tokens"),
        ("anthropic-ratelimit-input-tokens-remaining", "x-ratelimit-remaining-tokens"),
    ),
    (
        "output",
        ("anthropic-ratelimit-output-tokens-limit",),
        ("anthropic-ratelimit-output-tokens-remaining",),
    ),
)


class SeenLimit(msgspec.Struct, frozen=True):
    """One limit as a header told it: how much per minute, and how much was left."""

    limit: float
    remaining: float


def read_limits(headers: Mapping[str, str]) -> dict[str, SeenLimit]:
    """The limits that lower-case `headers` tell, by dimension."""
    seen: dict[str, SeenLimit] = {}
    if not headers:
        return seen
    for dimension, limit_names, remaining_names in _NAMES:
        for name in limit_names:
            if name in headers:
                break
        else:  # most answers tell of one or two
            continue
        limit = _number(headers, limit_names)
        if not limit:
            continue
        remaining = _number(headers, remaining_names)
        if remaining is not None:
            seen[dimension] = SeenLimit(limit, min(remaining, limit))
    return seen


def _number(headers: Mapping[str, str], names: tuple[str, ...]) -> float | None:
    for name in names:
        value = headers.get(name)
        if value is not None:
            value = value.strip()
            # Decimal digits only, so it is never negative.
            if value.isdecimal() and len(value) <= 12:
                return float(value)
    return None
