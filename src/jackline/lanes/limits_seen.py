"""Read per-minute limits from response headers, whichever vendor wrote them.

Laws: (1) a header that cannot be read is as good as none; (2) only what a header says is returned,
nothing is remembered.
Not here: what is done with it (lane.py), the meaning of failures (failures/).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DIMENSIONS = ("requests", "input", "output")

_NAMES = {
    "requests": ("anthropic-ratelimit-requests", "x-ratelimit-{}-requests"),
    "input": ("anthropic-ratelimit-input-tokens", "x-ratelimit-{}-tokens"),
    "output": ("anthropic-ratelimit-output-tokens", ""),
}


@dataclass(frozen=True, slots=True)
class SeenLimit:
    """One limit as a header told it: how much per minute, and how much was left."""

    limit: float
    remaining: float


def read_limits(headers: Mapping[str, str]) -> dict[str, SeenLimit]:
    """The limits that lower-case `headers` tell, by dimension."""
    seen: dict[str, SeenLimit] = {}
    if not headers:
        return seen
    for dimension, (anthropic, openai) in _NAMES.items():
        limit = _number(headers, f"{anthropic}-limit", openai.format("limit"))
        remaining = _number(headers, f"{anthropic}-remaining", openai.format("remaining"))
        if limit is not None and remaining is not None and limit > 0:
            seen[dimension] = SeenLimit(limit, max(0.0, min(remaining, limit)))
    return seen


def _number(headers: Mapping[str, str], *names: str) -> float | None:
    for name in names:
        value = headers.get(name, "").strip()
        if value.isdecimal() and len(value) <= 12:
            return float(value)
    return None
