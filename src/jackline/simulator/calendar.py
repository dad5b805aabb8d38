"""Turn the model's seconds into the dates and waits that a provider announces.

Laws: (1) dates are in the client's time, so a model that runs faster announces them sooner; (2) a
wait is rounded up: a provider never announces a moment at which it would still refuse.
Not here: reading a clock (server.py hands the epoch in).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

# 2026-11-15T09:00:00Z: virtual runs need some date, and the same one each time.
DEFAULT_EPOCH = 1_794_733_200.0


@dataclass(frozen=True, slots=True)
class Calendar:
    """Where zero lies on the client's wall clock, and how many model seconds pass in one of its."""

    epoch: float = DEFAULT_EPOCH
    speed: float = 1.0

    def epoch_at(self, at: float) -> float:
        """The moment as Unix seconds."""
        return self.epoch + at / self.speed

    def epoch_seconds(self, at: float) -> int:
        """The moment as whole Unix seconds, rounded up."""
        return math.ceil(self.epoch_at(at))

    def rfc3339(self, at: float) -> str:
        """The moment as `2026-11-15T09:00:00Z`, rounded up."""
        return datetime.fromtimestamp(self.epoch_seconds(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def wait(self, seconds: float) -> str:
        """A duration as whole client seconds, at least one."""
        return str(max(1, math.ceil(seconds / self.speed)))

    def clock_text(self, at: float, zone: tzinfo = UTC) -> str:
        """The moment as clients write it, rounded up to the minute: `10:10pm (Europe/Kiev)`."""
        moment = self._minute(at, zone)
        hour = moment.hour % 12 or 12
        minute = f":{moment.minute:02d}" if moment.minute else ""
        half = "am" if moment.hour < 12 else "pm"
        return f"{hour}{minute}{half} ({moment.tzname() if zone is UTC else zone})"

    def day_text(self, at: float, zone: tzinfo = UTC) -> str:
        """The moment as clients write one that is days away: `Nov 18, 7pm (America/Chicago)`."""
        moment = self._minute(at, zone)
        return f"{moment:%b} {moment.day}, {self.clock_text(at, zone)}"

    def _minute(self, at: float, zone: tzinfo) -> datetime:
        return datetime.fromtimestamp(math.ceil(self.epoch_seconds(at) / 60) * 60, zone)
