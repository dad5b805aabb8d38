"""Retry for ever, each agent on its own: every second, or with full jitter.

Rules: (1) nothing is ever surfaced; (2) agents know nothing of each other; (3) hints of the server
are ignored, as in the textbook versions.
Not here: clients that give up (impatient.py), agents that share what they learned (shared.py).
"""

from __future__ import annotations

from lanes_bench.crew import Call
from lanes_bench.policy import Attempt, Policy, Trouble


class FixedSecond(Policy):
    """Try again one second later."""

    def ready(self, call: Call) -> None:
        """Send at once."""
        self.desk.send(call)

    def troubled(self, attempt: Attempt, trouble: Trouble) -> None:
        """Wait as the policy says, then send again."""
        attempt.call.attempts += 1
        call, desk = attempt.call, self.desk
        desk.at(desk.now + self.wait(call.attempts, trouble), lambda: _send(self, call))

    def wait(self, failures: int, trouble: Trouble) -> float:
        """Seconds until the next attempt."""
        del failures, trouble
        return 1.0


class FullJitter(FixedSecond):
    """Wait a random part of 1, 2, 4 ... 60 seconds."""

    def wait(self, failures: int, trouble: Trouble) -> float:
        """Seconds until the next attempt."""
        del trouble
        return self.draw.uniform(0.0, min(60.0, 2.0 ** min(failures - 1, 10)))


def _send(policy: Policy, call: Call) -> None:
    policy.desk.send(call)
