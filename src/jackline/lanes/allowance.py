"""Know what a lane's per-minute limits still allow, while answers are being written.

Laws: (1) requests and input are spent when a call is sent, output is promised then and spent when
it is written; (2) what a header says is brought up to date with what was sent and written since,
and each attempt's estimate is corrected once, by a header or by its usage; (3) limits that nobody
told allow everything; (4) what a call costs comes in (prompt_caches.py); (5) a lane begins with the
user's number, else with that of the vendor's API, and a header outweighs both from then on.
Not here: one limit (bucket.py), reading headers (limits_seen.py), every other reason to wait
(lane.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from jackline.lanes.attempt import Attempt
from jackline.lanes.bucket import Bucket
from jackline.lanes.limits_seen import read_limits
from jackline.lanes.settings import KnownLimits, LimitOrigin

# What an answer takes is the mean of the last so many; a belief counts as a few at the beginning.
_ANSWERS_REMEMBERED = 33
_BELIEF_COUNTS_AS = 9
# The part of what comes in while answers are written that may be promised; with all of it, calls
# come in bursts.
_PROMISED_OF_COMING = 0.75


class Allowance:
    """The buckets of one lane, and what its calls in flight are expected to take from them.

    `promised` is the output that calls in flight are expected to have, `written` all there was so
    far; `requests` and `input` count what was ever sent. `_heard` are the dimensions that headers
    told since the lane was opened.
    """

    __slots__ = (
        "_answers",
        "_believed",
        "_heard",
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
        self._heard: set[str] = set()
        self._origins: dict[str, LimitOrigin] = {}
        self.buckets: dict[str, Bucket] = {}
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
        wrote, told = _per_minute(self._written), _per_minute(self._vendor)
        self._written, self._vendor = written, vendor
        api = _per_minute(vendor)
        for dimension, per_minute in _per_minute(written).items():
            if per_minute != wrote[dimension]:
                self._drop(dimension)
                if per_minute is not None:
                    self._origins[dimension] = LimitOrigin.WRITTEN
                    self.buckets[dimension] = Bucket.per_minute(per_minute, now)
                    continue
            elif per_minute is not None or api[dimension] == told[dimension]:
                continue
            self._take_from_vendor(dimension, api[dimension], now)

    def _take_from_vendor(self, dimension: str, per_minute: float | None, now: float) -> None:
        if dimension in self._heard:
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
        bucket = self.buckets[dimension] = Bucket.per_minute(per_minute, now)
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
        self._heard.discard(dimension)

    def ready_at(self, cost: float, now: float) -> float:
        """When a call with this much input can be paid for, at the earliest `now`."""
        at = now
        for dimension, bucket in self.buckets.items():
            need = 1.0 if dimension == "requests" else self._need(dimension, bucket, cost)
            ready = bucket.ready_at(need, now)
            at = max(at, ready)
        return at

    def _need(self, dimension: str, bucket: Bucket, cost: float) -> float:
        if dimension == "input":
            return cost
        # Output is debited when it is done, and meanwhile the bucket refills. Some of that may be
        # promised, but only while the bucket itself holds an answer's worth, or the provider
        # refuses the next call.
        coming = bucket.rate * self.average_service * _PROMISED_OF_COMING
        return self.average_output - min(self.promised, coming)

    def input_rate(self, now: float) -> float:
        """Input tokens per second that are allowed; if nobody told, those that were sent so far."""
        bucket = self.buckets.get("input")
        if bucket is not None:
            return bucket.rate
        return self.input / max(1.0, now - self._opened)

    def charge(self, cost: float) -> float:
        """What of a call's input is spent when it is sent: at most what the limit holds.

        Whether a vendor lets a larger one in at all is seen by its answer, which then tells the
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

    def believe(self, attempt: Attempt, headers: Mapping[str, str], now: float) -> bool:
        """Correct the buckets by what the server counted when it took this attempt.

        False if it told nothing.
        """
        told = read_limits(headers)
        for dimension, seen in told.items():
            bucket = self.buckets.get(dimension)
            self._heard.add(dimension)
            if bucket is None:
                bucket = self.buckets[dimension] = Bucket.per_minute(seen.limit, now)
                self._origins[dimension] = LimitOrigin.HEADERS
            elif seen.limit != bucket.cap:
                bucket.resize(seen.limit, now)
                self._origins[dimension] = LimitOrigin.HEADERS
            level = seen.remaining + bucket.refill(now - attempt.sent_at)
            if dimension == "output":
                level -= self.promised + self.written - attempt.written_before
            elif dimension == "input":
                level -= self.input - attempt.input_before
                self._believed = max(self._believed, attempt.requests_before)
            else:
                level -= self.requests - attempt.requests_before
            bucket.correct(level, now)
        return bool(told)

    def answered(self, attempt: Attempt, counted: int, output_tokens: int, now: float) -> None:
        """Spend what the answer took instead of what was promised, and expect the like.

        `counted` is what of its input counts. Where a header has told of it already, the bucket
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

    def closed(self, attempt: Attempt, *, last: bool) -> None:
        """The attempt has ended, the last one in flight or not: nothing is promised to it now."""
        # From nothing again each time, so that rounding does not add up.
        self.promised = 0.0 if last else self.promised - attempt.expected_output

    def refund(self, attempt: Attempt, now: float) -> None:
        """A refused call has used no output.

        Whether it used requests and input is the server's secret, so those stay spent.
        """
        if "output" in self.buckets:
            self.buckets["output"].take(-attempt.expected_output, now)

    def give_back(self, attempt: Attempt, now: float) -> None:
        """A call was refused before any model saw it: nothing was used.

        Where a header of a later one has told what is left, the buckets know already.
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
