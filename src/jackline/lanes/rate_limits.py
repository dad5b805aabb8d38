"""Parse rate limits from response headers, and compute what a lane's limits still allow.

Rules: (1) a header that cannot be parsed counts as absent, and parsing has no memory; (2) a bucket
is never above its cap, and 2 % of its rate stays unused, because clocks and counts differ; (3)
requests and input are spent when a call is sent; output is reserved then, and spent when it is
written; (4) a level from a header is corrected by what was sent and written since, and each
attempt's estimate is corrected once, by a header or by its usage; (5) an unknown limit allows
everything; (6) a lane begins with the user's number, else with the number from the vendor's API; a
header overrides both from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from jackline.lanes.call import LaneAttempt
from jackline.lanes.settings import KnownLimits, LimitOrigin

MARGIN = 0.98


@dataclass(slots=True)
class LimitBucket:
    """A token bucket as seen from outside: rate per second, cap, and the level at a time."""

    rate: float
    cap: float
    level: float
    at: float

    @classmethod
    def per_minute(cls, limit: float, now: float) -> LimitBucket:
        """A full bucket for a limit per minute."""
        return cls(rate=limit / 60, cap=limit, level=limit, at=now)

    def level_at(self, now: float) -> float:
        """How much may be spent at `now`."""
        passed = now - self.at
        # Asked several times for every call: comparing costs a third of `min` and `max`.
        level = self.level + self.rate * MARGIN * passed if passed > 0 else self.level
        if level > self.cap:
            return self.cap
        return level

    def refill(self, seconds: float) -> float:
        """What comes in again in that time."""
        return self.rate * MARGIN * max(0.0, seconds)

    def take(self, amount: float, now: float) -> None:
        """Spend; debts are allowed, because answers turn out larger than expected."""
        self.level = self.level_at(now) - amount
        self.at = now

    def ready_at(self, need: float, now: float) -> float:
        """When `need` is there, at the earliest `now`; a need above the cap waits for the cap."""
        level = self.level_at(now)
        if need <= level:
            return now
        missing = min(need, self.cap) - level
        if missing <= 0:
            return now
        return now + missing / (self.rate * MARGIN) if self.rate > 0 else float("inf")

    def correct(self, level: float, now: float) -> None:
        """Believe what the server said."""
        self.level = min(self.cap, level)
        self.at = now

    def resize(self, limit: float, now: float) -> None:
        """Follow a limit that has changed."""
        if limit != self.cap:
            level = self.level_at(now)
            self.rate, self.cap = limit / 60, limit
            self.level, self.at = min(level, limit), now


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


def _parse_limits(headers: Mapping[str, str]) -> dict[str, tuple[float, float]]:
    """What lower-case `headers` report by dimension: so much per minute, and so much left."""
    seen: dict[str, tuple[float, float]] = {}
    if not headers:
        return seen
    for dimension, limit_names, remaining_names in _NAMES:
        for name in limit_names:
            if name in headers:
                break
        else:  # most answers report one or two
            continue
        limit = _number(headers, limit_names)
        if not limit:
            continue
        remaining = _number(headers, remaining_names)
        if remaining is not None:
            seen[dimension] = limit, min(remaining, limit)
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


_PREFIX = "anthropic-ratelimit-unified-"
_USED = "-utilization"
# Most answers come from accounts without windows: one look-up is enough.
_ANY = f"{_PREFIX}status"
_FULL = 2.0
"""A share beyond this is no share: perhaps a percentage of another vendor."""
_LATEST = 7_000_000_000.0
"""A reset beyond this is no date of these centuries, and not every calendar can show it."""


class SeenWindow(NamedTuple):
    """One window as the headers report it."""

    name: str
    """As in the header: 5h, 7d, 7d_opus."""
    used: float
    """The used share; a little over one when the last answer passed the limit."""
    resets_at: float
    """Seconds since the epoch."""


def has_windows(headers: Mapping[str, str]) -> bool:
    """Whether an account with windows has answered."""
    return _ANY in headers


def parse_windows(headers: Mapping[str, str]) -> tuple[SeenWindow, ...]:
    """The windows that lower-case `headers` report."""
    if _ANY not in headers:
        return ()
    seen = []
    for header, value in headers.items():
        if header.startswith(_PREFIX) and header.endswith(_USED):
            name = header[len(_PREFIX) : -len(_USED)]
            used = _window_number(value)
            resets_at = _window_number(headers.get(f"{_PREFIX}{name}-reset", ""))
            if used is not None and used <= _FULL and resets_at and resets_at <= _LATEST:
                seen.append(SeenWindow(name, used, resets_at))
    return tuple(seen)


def _window_number(text: str) -> float | None:
    # No sign, no exponent, nothing that only float() understands.
    whole, _, fraction = text.strip().partition(".")
    if not whole.isdecimal() or len(whole) > 12 or (fraction and not fraction.isdecimal()):
        return None
    return float(f"{whole}.{fraction or 0}")


# What an answer takes is the mean of the last so many; a belief counts as a few at the beginning.
_ANSWERS_REMEMBERED = 33
_BELIEF_COUNTS_AS = 9
# The part of what comes in while answers are written that may be promised; with all of it, calls
# come in bursts.
_PROMISED_OF_COMING = 0.75


class Allowance:
    """The buckets of one lane, and what its calls in flight are expected to take from them.

    `promised` is the output that calls in flight are expected to have, `written` all there was so
    far; `requests` and `input` count what was ever sent. `_from_headers` are the dimensions that
    headers reported since the lane was opened.
    """

    __slots__ = (
        "_answers",
        "_believed",
        "_from_headers",
        "_opened",
        "_origins",
        "_vendor",
        "_written",
        "average_output",
        "average_service",
        "buckets",
        "input",
        "promised",
        "requests",
        "written",
    )

    def __init__(self, written: KnownLimits, vendor: KnownLimits, now: float) -> None:
        self._opened = now
        self._written = self._vendor = KnownLimits()
        self._from_headers: set[str] = set()
        self._origins: dict[str, LimitOrigin] = {}
        self.buckets: dict[str, LimitBucket] = {}
        self._answers = _BELIEF_COUNTS_AS
        self.average_output = 500.0
        self.average_service = 10.0
        self.promised = 0.0
        self.written = 0.0
        self.requests = 0
        self.input = 0.0
        # What the server has counted includes the attempts up to this one, by `requests_before`.
        self._believed = 0
        self.change_limits(written, vendor, now)

    @property
    def origins(self) -> dict[str, LimitOrigin]:
        """Who gave the number of each limit; one that was remembered came from headers."""
        return {each: self._origins.get(each, LimitOrigin.HEADERS) for each in self.buckets}

    def change_limits(self, written: KnownLimits, vendor: KnownLimits, now: float) -> None:
        """What the user or the vendor's API says has changed; what was learned besides stays."""
        wrote, reported = _per_minute(self._written), _per_minute(self._vendor)
        self._written, self._vendor = written, vendor
        api = _per_minute(vendor)
        for dimension, per_minute in _per_minute(written).items():
            if per_minute != wrote[dimension]:
                self._drop(dimension)
                if per_minute is not None:
                    self._origins[dimension] = LimitOrigin.WRITTEN
                    self.buckets[dimension] = LimitBucket.per_minute(per_minute, now)
                    continue
            elif per_minute is not None or api[dimension] == reported[dimension]:
                continue
            self._take_from_vendor(dimension, api[dimension], now)

    def _take_from_vendor(self, dimension: str, per_minute: float | None, now: float) -> None:
        if dimension in self._from_headers:
            return  # a header is the truth of the moment
        bucket = self.buckets.get(dimension)
        if per_minute is None:
            if self._origins.get(dimension) is LimitOrigin.VENDOR:
                self._drop(dimension)
            return
        self._origins[dimension] = LimitOrigin.VENDOR
        if bucket is not None:
            bucket.resize(per_minute, now)
            return
        bucket = self.buckets[dimension] = LimitBucket.per_minute(per_minute, now)
        # Calls may have gone out before the vendor had answered: as far as they are not refilled,
        # they are spent.
        spent = {
            "requests": self.requests,
            "input": self.input,
            "output": self.written + self.promised,
        }[dimension]
        bucket.correct(max(0.0, per_minute + bucket.refill(now - self._opened) - spent), now)

    def _drop(self, dimension: str) -> None:
        self.buckets.pop(dimension, None)
        self._origins.pop(dimension, None)
        self._from_headers.discard(dimension)

    def ready_at(self, cost: float, now: float) -> float:
        """When a call with this much input can be paid for, at the earliest `now`."""
        at = now
        for dimension, bucket in self.buckets.items():
            if dimension == "requests":
                need = 1.0
            elif dimension == "input":
                need = cost
            else:
                # Output is debited when it is done, and meanwhile the bucket refills. Some of that
                # may be promised, but only while the bucket itself holds an answer's worth, or the
                # provider refuses the next call.
                coming = bucket.rate * self.average_service * _PROMISED_OF_COMING
                need = self.average_output - min(self.promised, coming)
            at = max(at, bucket.ready_at(need, now))
        return at

    def input_rate(self, now: float) -> float:
        """Input tokens per second that are allowed; if unknown, those that were sent so far."""
        bucket = self.buckets.get("input")
        if bucket is not None:
            return bucket.rate
        return self.input / max(1.0, now - self._opened)

    def charge(self, cost: float) -> float:
        """What of a call's input is spent when it is sent: at most what the limit holds.

        Whether a vendor lets a larger one in at all is seen by its answer, which then reports the
        rest. One that is refused, or given up, must not close the lane for as long as it is large.
        """
        bucket = self.buckets.get("input")
        return cost if bucket is None or cost <= bucket.cap else bucket.cap

    def sent(self, cost: float, now: float) -> float:
        """Spend what a call with this much input takes; the output that is promised to it."""
        output = self.average_output
        self.requests += 1
        self.input += cost
        for dimension, bucket in self.buckets.items():
            if dimension == "requests":
                bucket.take(1.0, now)
            else:
                bucket.take(cost if dimension == "input" else output, now)
        self.promised += output
        return output

    def believe(self, attempt: LaneAttempt, headers: Mapping[str, str], now: float) -> bool:
        """Correct the buckets by what the server counted when it took this attempt.

        False if it reports nothing.
        """
        reported = _parse_limits(headers)
        for dimension, (limit, remaining) in reported.items():
            bucket = self.buckets.get(dimension)
            self._from_headers.add(dimension)
            if bucket is None:
                bucket = self.buckets[dimension] = LimitBucket.per_minute(limit, now)
                self._origins[dimension] = LimitOrigin.HEADERS
            elif limit != bucket.cap:
                bucket.resize(limit, now)
                self._origins[dimension] = LimitOrigin.HEADERS
            level = remaining + bucket.refill(now - attempt.sent_at)
            if dimension == "output":
                level -= self.promised + self.written - attempt.written_before
            elif dimension == "input":
                level -= self.input - attempt.input_before
                self._believed = max(self._believed, attempt.requests_before)
            else:
                level -= self.requests - attempt.requests_before
            bucket.correct(level, now)
        return bool(reported)

    def answered(self, attempt: LaneAttempt, counted: int, output_tokens: int, now: float) -> None:
        """Spend what the answer took instead of what was promised, and expect the like.

        `counted` is what of its input counts. Where a header has reported it already, the bucket
        knows: to correct it again would give back, or take, the same tokens twice.
        """
        self.written += output_tokens
        if self._answers < _ANSWERS_REMEMBERED:
            self._answers += 1
        self.average_output += (output_tokens - self.average_output) / self._answers
        self.average_service += (now - attempt.sent_at - self.average_service) / self._answers
        buckets = self.buckets
        if "output" in buckets:
            buckets["output"].take(output_tokens - attempt.expected_output, now)
        if "input" in buckets and counted and attempt.requests_before > self._believed:
            buckets["input"].take(counted - attempt.charged, now)

    def closed(self, attempt: LaneAttempt, *, last: bool) -> None:
        """The attempt has ended, the last one in flight or not: nothing is promised to it now."""
        # From nothing again each time, so that rounding does not add up.
        self.promised = 0.0 if last else self.promised - attempt.expected_output

    def refund(self, attempt: LaneAttempt, now: float) -> None:
        """A refused call has used no output.

        Whether it used requests and input is the server's secret, so those stay spent.
        """
        if "output" in self.buckets:
            self.buckets["output"].take(-attempt.expected_output, now)

    def give_back(self, attempt: LaneAttempt, now: float) -> None:
        """A call was refused before any model saw it: nothing was used.

        Where a header of a later one has reported what is left, the buckets know already.
        """
        self.refund(attempt, now)
        if attempt.requests_before <= self._believed:
            return
        for dimension, spent in (("requests", 1.0), ("input", attempt.charged)):
            if dimension in self.buckets:
                self.buckets[dimension].take(-spent, now)


def _per_minute(known: KnownLimits) -> dict[str, float | None]:
    return {
        "requests": known.requests_per_minute,
        "input": known.input_tokens_per_minute,
        "output": known.output_tokens_per_minute,
    }
