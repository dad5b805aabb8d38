"""Share what was learned between all agents: one gate for all, and botocore's adaptive mode.

Rules: (1) one object for the whole fleet; (2) nothing is ever surfaced (botocore's real default of
three attempts would); (3) waiting calls go in the order in which they came.
Not here: the controller under test (jackline_policy.py).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping

from lanes_bench.crew import Call
from lanes_bench.policy import Attempt, Desk, Policy, Trouble


class Gate(Policy):
    """Anyone's failure closes the gate for all; it opens by one, then slowly wider."""

    def __init__(self, desk: Desk, draw: random.Random) -> None:
        super().__init__(desk, draw)
        self._waiting: deque[Call] = deque()
        self._open_at = 0.0
        self._failures = 0
        self._unheard: set[int] = set()
        self._width = 1e9

    def ready(self, call: Call) -> None:
        """Queue behind the others."""
        self._waiting.append(call)
        self._let_through()

    def first_byte(self, attempt: Attempt, headers: Mapping[str, str]) -> None:
        """Open wider."""
        del headers
        self._failures = max(0, self._failures - 1)
        self._width += 0.1
        self._unheard.discard(attempt.id)
        self._let_through()

    def answered(self, attempt: Attempt, output_tokens: int) -> None:
        """A slot is free again."""
        del attempt, output_tokens
        self._let_through()

    def troubled(self, attempt: Attempt, trouble: Trouble) -> None:
        """Close for all, longer each time, and at least as long as the server asks."""
        self._unheard.discard(attempt.id)
        self._waiting.appendleft(attempt.call)
        desk = self.desk
        if not attempt.accepted and attempt.sent_at >= self._open_at:
            self._failures += 1
            backoff = min(60.0, 2.0 ** (self._failures - 1)) * self.draw.uniform(1.0, 1.2)
            self._open_at = desk.now + max(backoff, trouble.retry_after or 0.0)
            self._width = 1.0
            desk.at(self._open_at, self._let_through)
        self._let_through()

    def _let_through(self) -> None:
        while self._waiting and self.desk.now >= self._open_at and len(self._unheard) < self._width:
            self._unheard.add(self.desk.send(self._waiting.popleft()).id)


class AwsAdaptive(Policy):
    """Botocore's adaptive mode: CUBIC on the request rate, full-jitter backoff up to 20 s."""

    def __init__(self, desk: Desk, draw: random.Random) -> None:
        super().__init__(desk, draw)
        self._waiting: deque[Call] = deque()
        self._rate = Cubic()
        self._tokens = 0.0
        self._filled_at = 0.0
        self._limited = False
        self._waking = False

    def ready(self, call: Call) -> None:
        """Take a token as soon as there is one."""
        self._waiting.append(call)
        self._let_through()

    def first_byte(self, attempt: Attempt, headers: Mapping[str, str]) -> None:
        """A success raises the rate."""
        del headers, attempt
        self._rate.success(self.desk.now)
        self._let_through()

    def troubled(self, attempt: Attempt, trouble: Trouble) -> None:
        """A throttle lowers the rate for all; the call itself backs off on top."""
        call, desk = attempt.call, self.desk
        call.attempts += 1
        if trouble.throttled:
            self._rate.throttled(desk.now, limited=self._limited)
            self._limited = True
        seconds = self.draw.random() * min(2.0 ** min(call.attempts - 1, 8), 20.0)
        desk.at(desk.now + seconds, lambda: self.ready(call))

    def _let_through(self) -> None:
        while self._waiting:
            if self._limited and not self._take():
                return
            self._rate.sent(self.desk.now)
            self.desk.send(self._waiting.popleft())

    def _take(self) -> bool:
        now, rate = self.desk.now, max(0.5, self._rate.now)
        self._tokens = min(max(1.0, rate), self._tokens + rate * (now - self._filled_at))
        self._filled_at = now
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return True
        if not self._waking:
            self._waking = True
            self.desk.at(now + (1.0 - self._tokens) / rate + 1e-6, self._wake)
        return False

    def _wake(self) -> None:
        self._waking = False
        self._let_through()


class Cubic:
    """The rate of botocore's `CubicCalculator` and `RateClocker` (scale 0.4, beta 0.7)."""

    def __init__(self) -> None:
        self.now = 0.5
        self._top = 0.0
        self._failed_at = 0.0
        self._measured = 0.0
        self._bucket = 0.0
        self._count = 0

    def sent(self, now: float) -> None:
        """Measure the sending rate in half seconds, smoothed by 0.8."""
        self._count += 1
        bucket = int(now * 2.0) / 2.0
        if bucket > self._bucket:
            current = self._count / (bucket - self._bucket)
            self._measured = 0.8 * current + 0.2 * self._measured
            self._bucket, self._count = bucket, 0

    def success(self, now: float) -> None:
        """Follow the cubic curve, at most to twice what is really sent."""
        curve = (self._top * 0.3 / 0.4) ** (1.0 / 3.0)
        rate = 0.4 * (now - self._failed_at - curve) ** 3 + self._top
        self.now = max(0.5, min(rate, 2.0 * self._measured))

    def throttled(self, now: float, *, limited: bool) -> None:
        """Cut to 0.7 of the rate in use."""
        used = min(self._measured, self.now) if limited else self._measured
        self._top, self._failed_at = used, now
        self.now = max(0.5, 0.7 * used)
