"""Read what headers and body fields say about limits and waiting.

Laws: (1) headers are looked up by lower-case name; (2) the longest of several waits counts, so a
longer Retry-After never shortens the wait; (3) on an answer that succeeded, limit headers are news,
not failures.
Not here: texts (resets.py), what follows from a limit (rules/limits.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import datetime, timedelta

from jackline.failures.durations import read_epoch, read_moment, read_phrase, read_wait, seconds_of

UNIFIED = "anthropic-ratelimit-unified-"

SPEND_CAP_REASONS = frozenset(
    {"org_spend_cap_reached", "org_level_disabled_until", "service_spend_limit_reached"}
)
_CLAIMS = {
    "five_hour": ("session", "5h"),
    "5h": ("session", "5h"),
    "seven_day": ("weekly", "7d"),
    "7d": ("weekly", "7d"),
    "seven_day_opus": ("weekly_model", "7d_opus"),
    "seven_day_sonnet": ("weekly_model", "7d-sonnet"),
    "seven_day_overage_included": ("weekly_model", "7d_oi"),
    "7d_oi": ("weekly_model", "7d_oi"),
    "overage": ("overage", "overage"),
}
_WINDOWS = ("7d_oi", "7d", "5h")
_IN_SECONDS = (
    "retry-after",
    "x-ratelimit-user-retry-after",
    f"{UNIFIED}slow-retry-after",
    "x-codex-primary-reset-after-seconds",
)
_IN_MILLISECONDS = ("retry-after-ms", "x-amz-retry-after", "x-ms-retry-after-ms")


@dataclass(frozen=True, slots=True)
class SpentWindow:
    """A subscription window that refused the request: its name for `sub`, and when it refills."""

    sub: str
    resets_at: datetime | None
    signal: str


def spent_window(headers: Mapping[str, str], now: datetime) -> SpentWindow | None:
    """The subscription window that stands in the way, as far as the headers name one."""
    claim = headers.get(f"{UNIFIED}representative-claim", "")
    status = headers.get(f"{UNIFIED}status", "")
    overage = headers.get(f"{UNIFIED}overage-status", "")
    rejected = [w for w in _WINDOWS if _is_spent(headers, w)]
    if not (claim or overage or status == "rejected" or rejected):
        return None
    if not claim and rejected:
        claim = rejected[0]
    sub, window = _CLAIMS.get(claim, ("session", "5h"))
    resets = _first_epoch(
        headers, now, f"{UNIFIED}reset", f"{UNIFIED}{window}-reset", f"{UNIFIED}overage-reset"
    )
    signal = f"{UNIFIED}representative-claim: {claim}" if claim else f"{UNIFIED}status: {status}"
    return SpentWindow(sub, resets, signal)


def _is_spent(headers: Mapping[str, str], window: str) -> bool:
    used = read_phrase(f"{headers.get(f'{UNIFIED}{window}-utilization', '')}s")
    full = used is not None and used >= timedelta(seconds=1)
    return full or headers.get(f"{UNIFIED}{window}-status") == "rejected"


def announced_window(
    words: Set[str], numbers: Mapping[str, str], now: datetime
) -> SpentWindow | None:
    """The window that a client's own `rate_limit_event` calls rejected."""
    claim = next((word for word in _CLAIMS if word in words), None)
    if claim is None or "rejected" not in words:
        return None
    return SpentWindow(_CLAIMS[claim][0], body_reset(numbers, now), f"rate_limit_event: {claim}")


def codex_window(headers: Mapping[str, str], now: datetime) -> SpentWindow | None:
    """The ChatGPT-plan window that is used up, with its reset."""
    for seat in ("primary", "secondary"):
        prefix = f"x-codex-{seat}-"
        used = read_phrase(f"{headers.get(f'{prefix}used-percent', '')}s")
        if used is None or used < timedelta(seconds=100):
            continue
        minutes = headers.get(f"{prefix}window-minutes", "")
        resets = _first_epoch(headers, now, f"{prefix}reset-at", f"{prefix}reset-after-seconds")
        sub = {"300": "session", "10080": "weekly"}.get(minutes, "unknown_window")
        return SpentWindow(sub, resets, f"{prefix}used-percent: 100")
    return None


def header_wait(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """How long the headers ask to wait; the longest wins."""
    # A date is compared with the server's own clock, where it gives one: clocks differ.
    now = read_moment(headers.get("date", "")) or now
    waits = [read_wait(headers[name], now) for name in _IN_SECONDS if name in headers]
    waits.extend(
        read_phrase(f"{headers[name].strip()}ms") for name in _IN_MILLISECONDS if name in headers
    )
    return max((wait for wait in waits if wait is not None), default=None)


def body_wait(numbers: Mapping[str, str], now: datetime) -> timedelta | None:
    """How long the body's own fields ask to wait."""
    keys = ("retry_after", "retryafter", "retry_after_seconds", "retrydelay", "resets_in_seconds")
    waits = [read_wait(numbers[key], now) for key in keys if key in numbers]
    return max((wait for wait in waits if wait is not None), default=None)


def body_reset(numbers: Mapping[str, str], now: datetime) -> datetime | None:
    """When the body's own fields say that the window refills."""
    for key in ("resets_at", "resetsat"):
        if key in numbers:
            return read_epoch(numbers[key], now)
    return None


def _first_epoch(headers: Mapping[str, str], now: datetime, *names: str) -> datetime | None:
    return next((m for n in names if n in headers and (m := read_epoch(headers[n], now))), None)


def is_long(wait: timedelta | None) -> bool:
    """Whether a wait is too long to sit out in place: longer means a window, not a burst."""
    limit = seconds_of(120)
    return wait is not None and limit is not None and wait > limit
