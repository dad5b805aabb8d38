"""Say whether one more call on a working lane may be asked for twice.

Rules: (1) hedges that were not needed cost at most a small share of the answers, whatever the
provider does; (2) one that was needed costs nothing and opens the way for others.
Not here: when an attempt is silent for too long (patience.py), sending (controller.py).
"""

from __future__ import annotations

from jackline.lanes.settings import HedgeSettings


class HedgeBudget:
    """The hedges that a lane may still spend."""

    __slots__ = ("_left", "_settings")

    def __init__(self, settings: HedgeSettings) -> None:
        self._settings = settings
        self._left = settings.at_first

    @property
    def is_open(self) -> bool:
        """Whether one more may be sent."""
        return self._left >= 1.0

    def spend(self) -> None:
        """One is sent."""
        self._left -= 1.0

    def returned(self) -> None:
        """It has come to nothing, and has cost nothing."""
        self._left = min(self._settings.most, self._left + 1.0)

    def answered(self) -> None:
        """The lane has answered a call: a little more may be spent."""
        if self._left < self._settings.most:
            self._left += self._settings.per_answer

    def needed(self) -> None:
        """A hedge was answered while the silent attempt was not."""
        self._left = min(self._settings.most, self._left + self._settings.when_needed)
