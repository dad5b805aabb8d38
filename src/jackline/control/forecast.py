"""Foretell when a subscription's window will be used up, from what headers said and how fast.

Laws: (1) pure: `now` comes in; (2) nothing is foretold from less than a few minutes of watching, or
when the window refills first; (3) a window that has refilled begins anew.
Not here: reading headers (lanes/windows_seen.py), what caches cost (cache_advice.py), stopping
agents because of it (gateway/).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from math import inf

from jackline.control.cache_advice import Rewriting, rewriting_words
from jackline.failures.sentences import moment_in_words
from jackline.lanes.windows_seen import SeenWindow
from jackline.outside_names import cut_name

# How far back the pace is measured: longer than a burst, shorter than a change of work.
_PACE_SECONDS = 1200.0
_LEAST_SECONDS = 120.0
# One point in so many seconds tells the pace as well as each answer would.
_POINT_EVERY = 5.0
_MOST_WINDOWS = 512
_MOST_OF_AN_ACCOUNT = 16
_FREE: Mapping[str, Rewriting] = {}
_NAMES = {"5h": "5-hour", "7d": "7-day", "7d_opus": "7-day Opus", "7d-sonnet": "7-day Sonnet"}


@dataclass(frozen=True, slots=True)
class Forecast:
    """One window of one account: its standing, and its end at the present pace if there is one."""

    account: str
    window: str
    used: float
    resets_at: float
    per_hour: float
    """The share that an hour takes at the present pace; 0 while that is not known."""
    ends_at: float | None
    """When it will be used up; None when it refills first, or the pace is not known."""

    def to_json(self) -> dict[str, object]:
        """As every face shows it."""
        return {
            "account": self.account,
            "window": self.window,
            "used": round(self.used, 4),
            "resets_at": self.resets_at,
            "per_hour": round(self.per_hour, 4),
            "ends_at": self.ends_at,
        }


class WindowWatch:
    """What was seen of the windows of all accounts."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], deque[tuple[float, float]]] = {}
        self._resets: dict[tuple[str, str], float] = {}

    def heard(self, now: float, account: str, windows: Iterable[SeenWindow]) -> None:
        """An answer told of its account's windows."""
        for window in islice(windows, _MOST_OF_AN_ACCOUNT):
            key = (account, cut_name(window.name))
            points = self._seen.get(key)
            if points is None:
                points = self._seen[key] = deque()
                self._forget_oldest()
            if points and (
                window.resets_at > self._resets[key] + 60 or window.used < points[-1][1] - 0.02
            ):
                points.clear()
            self._resets[key] = window.resets_at
            if points and now - points[-1][0] < _POINT_EVERY:
                points[-1] = (points[-1][0], max(points[-1][1], window.used))
            else:
                points.append((now, window.used))
            while len(points) > 2 and points[0][0] < now - _PACE_SECONDS:
                points.popleft()

    def _forget_oldest(self) -> None:
        if len(self._seen) > _MOST_WINDOWS:
            oldest = min(self._seen, key=self._last_heard)
            del self._seen[oldest]
            self._resets.pop(oldest, None)

    def _last_heard(self, key: tuple[str, str]) -> float:
        points = self._seen[key]
        return points[-1][0] if points else inf

    def follow_clock(self, set_by: float) -> None:
        """The wall clock was set by so much: what was seen stays as long ago, resets are dates."""
        for key, points in self._seen.items():
            self._seen[key] = deque((at + set_by, used) for at, used in points)

    def forecasts(self, now: float) -> list[Forecast]:
        """Every window that has not refilled since it was heard of, the fullest first."""
        told = [
            self._forecast(key, points, now)
            for key, points in self._seen.items()
            if points and self._resets[key] > now
        ]
        return sorted(told, key=lambda each: -each.used)

    def _forecast(
        self, key: tuple[str, str], points: deque[tuple[float, float]], now: float
    ) -> Forecast:
        account, window = key
        resets_at = self._resets[key]
        begun, before = points[0]
        used = points[-1][1]
        watched = now - begun
        pace = max(0.0, used - before) / watched if watched >= _LEAST_SECONDS else 0.0
        ends_at = None
        if used >= 1.0:
            ends_at = points[-1][0]
        elif pace > 0.0 and now + (1.0 - used) / pace < resets_at:
            ends_at = now + (1.0 - used) / pace
        return Forecast(account, window, used, resets_at, pace * 3600.0, ends_at)


def foretold(
    forecasts: Iterable[Forecast],
    agents: int,
    now: datetime,
    costs: Mapping[str, Rewriting] = _FREE,
) -> str:
    """The sentence about the window that ends first; empty when none does.

    `costs` is what an account's wall takes because prompt caches do not outlast it.
    """
    ending = [each for each in forecasts if each.ends_at is not None and each.used < 1.0]
    if not ending:
        return ""
    first = min(ending, key=lambda each: each.ends_at or 0.0)
    ends = datetime.fromtimestamp(round(first.ends_at or 0.0), now.tzinfo)
    # The minute is what a person plans by.
    ends = ends.replace(second=0) + timedelta(minutes=ends.second >= 30)
    cut = "" if agents == 0 else f"; {agents} {'agent' if agents == 1 else 'agents'} would be cut"
    name = _NAMES.get(first.window, first.window)
    lost = ""
    if first.account in costs:
        lost = f"; their prompt caches would lapse: {rewriting_words(costs[first.account])}"
    return f"At this pace the {name} window ends at {moment_in_words(ends, now)}{cut}{lost}."
