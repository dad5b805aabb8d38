"""Refuse what exceeds a rate, a number of streams, a hidden capacity, or a subscription's window.

Rules: (1) a limit checks before anything is counted, so a request that another limit refuses costs
nothing here (unless rejects consume); (2) a bucket never has more than its cap; (3) announced
numbers are those of the moment of admission, after the request itself was counted; (4) whether
input read from a prompt cache counts is the vendor's choice (vendor_facts.py); (5) a window opens
with the first request after its reset and refills all at once; (6) the announced window is the
fullest, as `representative-claim` does; tokens count when they are known.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from enum import StrEnum

from jackline.simulator.exchange import (
    OVERLOADED,
    QUOTA_MESSAGE,
    THROTTLED,
    TOO_MANY_CONNECTIONS,
    ProviderRefusal,
    SimRequest,
    over_rate,
)
from jackline.simulator.time_model import Calendar, seeded_random
from jackline.simulator.vendor_facts import reads_count


class ProviderLimit(ABC):
    """What the provider calls on each limit, in this order; by default nothing is counted."""

    @abstractmethod
    def check(self, now: float, request: SimRequest, in_flight: int) -> ProviderRefusal | None:
        """The refusal, or None; `in_flight` is the number of admitted streams."""

    def take(self, now: float, request: SimRequest) -> None:  # noqa: B027
        """Count a request that every limit admits."""

    def refused(self, now: float, request: SimRequest) -> None:  # noqa: B027
        """Count a request that some limit refused."""

    def finished(self, now: float, request: SimRequest, output_tokens: int) -> None:  # noqa: B027
        """Count the tokens that an admitted request has generated."""

    def announce(self, now: float, request: SimRequest, headers: dict[str, str]) -> None:  # noqa: B027
        """Add the headers of this limit."""


class Counts(StrEnum):
    """What a bucket counts; the value is its name in the headers."""

    REQUESTS = "requests"
    INPUT_TOKENS = "input-tokens"
    OUTPUT_TOKENS = "output-tokens"


@dataclass(frozen=True, slots=True)
class BucketSettings:
    """A limit per minute, with the burst it allows and what it announces.

    `labelled`: the refusal names the limit; else it is the plain "Rate limited". `debts`: a request
    larger than a full bucket is admitted, and the bucket goes below zero. `model` is a part of the
    names of the models that it counts; "" counts all together.
    """

    counts: Counts
    per_minute: float
    burst_seconds: float = 60.0
    headers: bool = True
    retry_after: bool = True
    labelled: bool = True
    rejects_consume: bool = False
    debts: bool = False
    model: str = ""


class RateBucket(ProviderLimit):
    """A token bucket; output is debited when it is known, so its level may fall below zero."""

    def __init__(self, settings: BucketSettings, calendar: Calendar, start: float) -> None:
        self.settings = settings
        self.rate = settings.per_minute / 60.0
        self.cap = self.rate * settings.burst_seconds
        self._calendar = calendar
        self._level = self.cap
        self._at = start
        self._reset_text = (-1, "")
        prefix = f"anthropic-ratelimit-{settings.counts.value}"
        self._names = (f"{prefix}-limit", f"{prefix}-remaining", f"{prefix}-reset")
        self._limit_text = str(round(settings.per_minute))

    def level(self, now: float) -> float:
        """What is left in the bucket."""
        if now > self._at:
            self._level = min(self.cap, self._level + self.rate * (now - self._at))
            self._at = now
        return self._level

    def _need(self, request: SimRequest) -> float:
        if self.settings.model not in request.model:
            return 0.0
        if self.settings.counts is Counts.INPUT_TOKENS:
            uncounted = 0 if reads_count(request.dialect, request.model) else request.read_tokens
            return request.input_tokens - uncounted
        return 1.0

    def check(self, now: float, request: SimRequest, in_flight: int) -> ProviderRefusal | None:  # noqa: ARG002
        """Refuse what is not left in the bucket; output counts against the next request."""
        need = self._need(request)
        if self.settings.debts:
            need = min(need, self.cap)
        missing = need - self.level(now)
        if missing <= 1e-9 or not need:
            return None
        refusal = THROTTLED
        if self.settings.labelled:
            unit = self.settings.counts.value.replace("-", " ")
            refusal = over_rate(round(self.settings.per_minute), unit, request.model)
        if not self.settings.retry_after:
            return refusal
        # A request larger than the bucket never fits; a provider announces a full bucket then.
        wait = min(missing, self.cap - self._level) / self.rate
        return replace(refusal, headers={"retry-after": self._calendar.wait(wait)})

    def take(self, now: float, request: SimRequest) -> None:
        """Debit requests and input at once."""
        if self.settings.counts is not Counts.OUTPUT_TOKENS:
            self._level = self.level(now) - self._need(request)

    def refused(self, now: float, request: SimRequest) -> None:
        """Debit a refused request too, if the provider does so; never below zero."""
        if self.settings.rejects_consume and self.settings.counts is not Counts.OUTPUT_TOKENS:
            level = self.level(now)
            self._level = min(level, max(0.0, level - self._need(request)))

    def finished(self, now: float, request: SimRequest, output_tokens: int) -> None:
        """Debit output when it has been generated."""
        if self.settings.counts is Counts.OUTPUT_TOKENS and self._need(request):
            self._level = self.level(now) - output_tokens

    def announce(self, now: float, request: SimRequest, headers: dict[str, str]) -> None:
        """The limit, what remains of it, and when it will be full again."""
        if not self.settings.headers or self.settings.model not in request.model:
            return
        level = self.level(now)
        full_at = now + (self.cap - level) / self.rate
        second = self._calendar.epoch_seconds(full_at)
        if second != self._reset_text[0]:
            self._reset_text = (second, self._calendar.rfc3339(full_at))
        limit, remaining, reset = self._names
        headers[limit] = self._limit_text
        headers[remaining] = str(max(0, math.floor(level + 1e-9)))
        headers[reset] = self._reset_text[1]


@dataclass(frozen=True, slots=True)
class ConcurrencyCap(ProviderLimit):
    """So many streams at once; with `labelled`, the refusal names this limit."""

    streams: int
    labelled: bool = True

    def check(self, now: float, request: SimRequest, in_flight: int) -> ProviderRefusal | None:  # noqa: ARG002
        """Refuse above the cap."""
        if in_flight < self.streams:
            return None
        return TOO_MANY_CONNECTIONS if self.labelled else THROTTLED


@dataclass(frozen=True, slots=True)
class HiddenCapacitySettings:
    """Streams at once, of which a share is available; the share changes every so many seconds.

    With `schedule`, the shares follow it and the last one stays; else each is drawn between `low`
    and `high`. Refusals are 529 with probability `overloaded_share`, else unlabelled 429.
    """

    streams: float
    low: float = 0.35
    high: float = 1.0
    every: float = 120.0
    schedule: Sequence[float] = ()
    overloaded_share: float = 0.5


class HiddenCapacity(ProviderLimit):
    """Refuses above a capacity that changes, whatever the traffic is."""

    def __init__(self, settings: HiddenCapacitySettings, draw: random.Random, start: float) -> None:
        self.settings = settings
        self._start = start
        self._shares = list(settings.schedule)
        self._moves = seeded_random(draw)
        self._refusals = seeded_random(draw)

    def capacity(self, now: float) -> float:
        """The streams that fit now; at least one, so that work never stops."""
        period = max(0, int((now - self._start) / self.settings.every))
        if self.settings.schedule:
            period = min(period, len(self._shares) - 1)
        while len(self._shares) <= period:
            self._shares.append(self._moves.uniform(self.settings.low, self.settings.high))
        return max(1.0, self.settings.streams * self._shares[period])

    def check(self, now: float, request: SimRequest, in_flight: int) -> ProviderRefusal | None:  # noqa: ARG002
        """Refuse above the hidden capacity, as an overload or as a throttle."""
        if in_flight + 1 <= self.capacity(now):
            return None
        overloaded = self._refusals.random() < self.settings.overloaded_share
        return OVERLOADED if overloaded else THROTTLED


UNIFIED = "anthropic-ratelimit-unified"
WARNINGS = (1.0, 0.95, 0.9, 0.75)
DAY = 86_400.0


class WindowClaim(StrEnum):
    """The windows a subscription has; the value is its name in `representative-claim`."""

    FIVE_HOUR = "five_hour"
    SEVEN_DAY = "seven_day"
    SEVEN_DAY_OPUS = "seven_day_opus"
    SEVEN_DAY_SONNET = "seven_day_sonnet"

    def wall_text(self, calendar: Calendar, resets_at: float, zone: tzinfo = UTC) -> str:
        """How clients report the wall: `You've hit your session limit · resets 3pm`."""
        far = self is not WindowClaim.FIVE_HOUR
        when = calendar.day_text(resets_at, zone) if far else calendar.clock_text(resets_at, zone)
        return f"You've hit your {_KINDS[self][3]} · resets {when}"

    def wall_headers(self, calendar: Calendar, now: float, resets_at: float) -> dict[str, str]:
        """The headers of a refused subscriber's answer."""
        reset = str(calendar.epoch_seconds(resets_at))
        short = _KINDS[self][0]
        return {
            "retry-after": calendar.wait(resets_at - now),
            f"{UNIFIED}-status": "rejected",
            f"{UNIFIED}-reset": reset,
            f"{UNIFIED}-representative-claim": self.value,
            f"{UNIFIED}-{short}-status": "rejected",
            f"{UNIFIED}-{short}-reset": reset,
            f"{UNIFIED}-{short}-utilization": "1",
            f"{UNIFIED}-{short}-surpassed-threshold": "1",
            f"{UNIFIED}-overage-status": "rejected",
            f"{UNIFIED}-overage-disabled-reason": "overage_not_provisioned",
        }


# Claim: its short name in headers, its length, the models it is for, its name in the CLI.
_KINDS: dict[WindowClaim, tuple[str, float, str, str]] = {
    WindowClaim.FIVE_HOUR: ("5h", 5 * 3600.0, "", "session limit"),
    WindowClaim.SEVEN_DAY: ("7d", 7 * DAY, "", "weekly limit"),
    WindowClaim.SEVEN_DAY_OPUS: ("7d_opus", 7 * DAY, "opus", "Opus limit"),
    WindowClaim.SEVEN_DAY_SONNET: ("7d-sonnet", 7 * DAY, "sonnet", "Sonnet limit"),
}


@dataclass(frozen=True, slots=True)
class QuotaWindowSettings:
    """A window of so many tokens, input and output together; `used` are spent at the start."""

    claim: WindowClaim
    tokens: float
    used: float = 0.0
    announced: bool = True


class QuotaWindow(ProviderLimit):
    """One window of a subscription."""

    def __init__(self, settings: QuotaWindowSettings, calendar: Calendar, start: float) -> None:
        self.settings = settings
        self.claim = settings.claim
        self.short, self.length, self._model, _ = _KINDS[settings.claim]
        self._calendar = calendar
        self._used = settings.used
        self.resets_at = start + self.length

    def utilization(self, now: float) -> float:
        """The used share; may exceed one, since output counts when it is known."""
        if now >= self.resets_at:
            self._used = 0.0
            self.resets_at = now + self.length
        return self._used / self.settings.tokens

    def check(self, now: float, request: SimRequest, in_flight: int) -> ProviderRefusal | None:  # noqa: ARG002
        """Refuse until the reset once the window is used up."""
        if self._model not in request.model or self.utilization(now) < 1.0:
            return None
        headers = {}
        if self.settings.announced:
            headers = self.claim.wall_headers(self._calendar, now, self.resets_at)
        return ProviderRefusal.of_api(429, "rate_limit_error", QUOTA_MESSAGE, headers, wall=True)

    def take(self, now: float, request: SimRequest) -> None:
        """Count the input, and nothing of the output yet."""
        self.finished(now, request, request.input_tokens)

    def finished(self, now: float, request: SimRequest, output_tokens: int) -> None:
        """Count the output."""
        if self._model in request.model:
            self.utilization(now)  # a window whose time is over begins again
            self._used += output_tokens

    def announce(self, now: float, request: SimRequest, headers: dict[str, str]) -> None:
        """This window's part of the unified headers; the fullest window is the claim."""
        if not self.settings.announced or self._model not in request.model:
            return
        used = self.utilization(now)
        reset = str(self._calendar.epoch_seconds(self.resets_at))
        passed = next((mark for mark in WARNINGS if used >= mark), None)
        headers[f"{UNIFIED}-{self.short}-utilization"] = f"{used:.4g}"
        headers[f"{UNIFIED}-{self.short}-reset"] = reset
        headers[f"{UNIFIED}-{self.short}-status"] = (
            "allowed" if passed is None else "allowed_warning"
        )
        if passed is not None:
            headers[f"{UNIFIED}-{self.short}-surpassed-threshold"] = f"{passed:g}"
        fullest, announced = headers.get(f"{UNIFIED}-representative-claim"), 0.0
        if fullest is not None:
            short = _KINDS[WindowClaim(fullest)][0]
            announced = float(headers[f"{UNIFIED}-{short}-utilization"])
        if fullest is None or used > announced:
            headers |= {
                f"{UNIFIED}-representative-claim": self.claim.value,
                f"{UNIFIED}-reset": reset,
                f"{UNIFIED}-status": headers[f"{UNIFIED}-{self.short}-status"],
                f"{UNIFIED}-overage-status": "rejected",
                f"{UNIFIED}-overage-disabled-reason": "overage_not_provisioned",
            }
