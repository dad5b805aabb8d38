"""Retry a few times and then give up: the official SDK, Claude Code, and a LiteLLM-like router.

Rules: (1) constants are those of the clients' sources (facts: retry-practice); (2) giving up kills
the agent; (3) all three wait up to 600 s for a silent stream.
Not here: what happens to a dead agent (stage.py).
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections import deque

from lanes_bench.crew import Call
from lanes_bench.policy import Attempt, Desk, Ill, Policy, Trouble

PATIENCE_OF_ROUTER = 3
COOL_DOWN = 5.0
MINUTE = 60.0


class Impatient(Policy):
    """The frame of all clients that give up; `wait` says None when it is time to."""

    idle_limit: float | None = 600.0

    def ready(self, call: Call) -> None:
        """Send at once."""
        self.desk.send(call)

    def troubled(self, attempt: Attempt, trouble: Trouble) -> None:
        """Wait and send again, or give up."""
        call = attempt.call
        call.attempts += 1
        seconds = self.wait(call, trouble)
        if seconds is None:
            self.desk.give_up(call)
        else:
            self.desk.at(self.desk.now + seconds, lambda: self.ready(call))

    @abstractmethod
    def wait(self, call: Call, trouble: Trouble) -> float | None:
        """Seconds until the next attempt, or None to give up."""


class OfficialSdk(Impatient):
    """Two retries; min(0.5 * 2^n, 8) s less up to a quarter; Retry-After up to a minute."""

    def wait(self, call: Call, trouble: Trouble) -> float | None:
        """Seconds until the next attempt, or None to give up."""
        if call.attempts > 2:
            return None
        asked = trouble.retry_after
        if asked is not None and 0 < asked <= MINUTE:
            return asked
        return min(0.5 * 2.0 ** (call.attempts - 1), 8.0) * self.draw.uniform(0.75, 1.0)


class ClaudeCode(Impatient):
    """Ten retries up to 32 s plus a quarter; three 529 in a row, or a long Retry-After, end it."""

    def wait(self, call: Call, trouble: Trouble) -> float | None:
        """Seconds until the next attempt, or None to give up."""
        overloads = call.memory.get("529", 0.0) + 1.0 if trouble.status == 529 else 0.0
        call.memory["529"] = overloads
        asked = trouble.retry_after or 0.0
        if call.attempts > 10 or overloads >= 3 or asked > MINUTE:
            return None
        backoff = min(0.5 * 2.0 ** (call.attempts - 1), 32.0) * self.draw.uniform(1.0, 1.25)
        return max(asked, backoff)


class LiteLlmRouter(Impatient):
    """Three retries over all lanes; a lane cools for 5 s after a 429 or when half of it fails."""

    def __init__(self, desk: Desk, draw: random.Random) -> None:
        super().__init__(desk, draw)
        self._cool_until = [0.0] * desk.lanes
        self._recent: list[deque[tuple[float, bool]]] = [deque() for _ in range(desk.lanes)]
        self._failures = [0] * desk.lanes

    def ready(self, call: Call) -> None:
        """Send to a lane that is not cooling; if there is none, that is one more failure."""
        warm = [i for i, until in enumerate(self._cool_until) if until <= self.desk.now]
        if warm:
            self.desk.send(call, self.draw.choice(warm))
            return
        call.attempts += 1
        seconds = self.wait(call, Trouble(Ill.REFUSED, 429))
        if seconds is None:
            self.desk.give_up(call)
        else:
            self.desk.at(self.desk.now + seconds, lambda: self.ready(call))

    def answered(self, attempt: Attempt, output_tokens: int) -> None:
        """Count a success."""
        del output_tokens
        self._count(attempt.lane, failed=False)

    def troubled(self, attempt: Attempt, trouble: Trouble) -> None:
        """Cool the lane when it deserves it, then wait or give up."""
        failing = self._count(attempt.lane, failed=True)
        if trouble.status == 429 or failing:
            self._cool_until[attempt.lane] = self.desk.now + COOL_DOWN
        super().troubled(attempt, trouble)

    def wait(self, call: Call, trouble: Trouble) -> float | None:
        """Seconds until the next attempt, or None to give up."""
        if call.attempts > PATIENCE_OF_ROUTER:
            return None
        asked = trouble.retry_after
        if asked is not None and 0 < asked <= MINUTE:
            return asked
        return min(0.5 * 2.0 ** (call.attempts - 1), 8.0) + self.draw.uniform(0.0, 0.75)

    def _count(self, lane: int, *, failed: bool) -> bool:
        recent, now = self._recent[lane], self.desk.now
        recent.append((now, failed))
        self._failures[lane] += failed
        while recent[0][0] < now - MINUTE:
            self._failures[lane] -= recent.popleft()[1]
        return len(recent) >= 5 and self._failures[lane] > len(recent) / 2
