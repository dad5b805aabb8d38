"""Read the windows of a subscription from response headers: how much is used, when it refills.

Laws: (1) a header that cannot be read is as good as none; (2) only what a header says is returned,
nothing is remembered.
Not here: a window that refused a request (failures/limit_headers.py), what it will lead to
(control/forecast.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_PREFIX = "anthropic-ratelimit-unified-"
_USED = "-utilization"
# Most answers come from accounts without windows: one look-up tells.
_ANY = f"{_PREFIX}status"
_FULL = 2.0
"""A share beyond this is no share: perhaps a percentage of another vendor."""
_LATEST = 7_000_000_000.0
"""A reset beyond this is no date of these centuries, and not every calendar can show it."""


class SeenWindow(NamedTuple):
    """One window as the headers told it."""

    name: str
    """As in the header: 5h, 7d, 7d_opus."""
    used: float
    """The used share; a little over one when the last answer passed the limit."""
    resets_at: float
    """Seconds since the epoch."""


def has_windows(headers: Mapping[str, str]) -> bool:
    """Whether an account with windows has answered."""
    return _ANY in headers


def read_windows(headers: Mapping[str, str]) -> tuple[SeenWindow, ...]:
    """The windows that lower-case `headers` tell of."""
    if _ANY not in headers:
        return ()
    seen = []
    for header, value in headers.items():
        if header.startswith(_PREFIX) and header.endswith(_USED):
            name = header[len(_PREFIX) : -len(_USED)]
            used = _number(value)
            resets_at = _number(headers.get(f"{_PREFIX}{name}-reset", ""))
            if used is not None and used <= _FULL and resets_at and resets_at <= _LATEST:
                seen.append(SeenWindow(name, used, resets_at))
    return tuple(seen)


def _number(text: str) -> float | None:
    # No sign, no exponent, nothing that only float() understands.
    whole, _, fraction = text.strip().partition(".")
    if not whole.isdecimal() or len(whole) > 12 or (fraction and not fraction.isdecimal()):
        return None
    return float(f"{whole}.{fraction or 0}")
