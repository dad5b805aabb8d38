"""Measure how often a wall was met, at what interval, and whether anything waited.

Laws: (1) pure; (2) meetings without a time are counted but not measured; (3) waiting means a pause
of at least half a minute, or a pause as long as the wall itself had asked for.
Not here: which meetings belong together (causes.py), the words (sentences.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jackline.autopsy.causes import Cause

A_REAL_PAUSE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How a wall was run into: `count` meetings from `first` to `last`."""

    count: int
    first: datetime | None
    last: datetime | None
    median_interval: timedelta | None
    longest_pause: timedelta | None
    waited: bool

    @property
    def span(self) -> timedelta | None:
        """From the first meeting to the last."""
        if self.first is None or self.last is None:
            return None
        return self.last - self.first


def rhythm_of(cause: Cause) -> Rhythm:
    """The rhythm of all meetings with one wall, over all agents."""
    timed = [(m.at, m) for m in cause.meetings if m.at is not None]
    moments = [at for at, _ in timed]
    pauses = [later - earlier for earlier, later in pairwise(moments)]
    asked = [m.sighting.failure.wait_from(at) for at, m in timed]
    return Rhythm(
        count=len(cause.meetings),
        first=moments[0] if moments else None,
        last=moments[-1] if moments else None,
        median_interval=_middle(pauses),
        longest_pause=max(pauses, default=None),
        waited=any(
            pause >= A_REAL_PAUSE or timedelta(0) < wait <= pause
            for pause, wait in zip(pauses, asked, strict=False)
        ),
    )


def _middle(pauses: list[timedelta]) -> timedelta | None:
    if not pauses:
        return None
    ordered, half = sorted(pauses), len(pauses) // 2
    return ordered[half] if len(pauses) % 2 else (ordered[half - 1] + ordered[half]) / 2
