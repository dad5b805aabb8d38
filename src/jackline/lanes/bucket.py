"""Know how much a per-minute limit still allows, from what its headers said last.

Laws: (1) the level is never above the cap; (2) what was sent since a header was computed is
subtracted from it; (3) 2 % of the rate is left unused, because clocks and counts differ.
Not here: reading header names (limits_seen.py), deciding to send (lane.py).
"""

from __future__ import annotations

from dataclasses import dataclass

MARGIN = 0.98


@dataclass(slots=True)
class Bucket:
    """A token bucket as seen from outside: rate per second, cap, and the level at a time."""

    rate: float
    cap: float
    level: float
    at: float

    @classmethod
    def per_minute(cls, limit: float, now: float) -> Bucket:
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
