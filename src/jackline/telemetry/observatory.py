"""Count what the gateway announces: the fleet, the spending, the forecast; today's past included.

Rules: (1) a call pays next to nothing for being counted: events are queued and counted later, in
one go; (2) the queue is bounded; (3) calls without a session belong to nobody's timeline; (4)
what happened today before the start is read from the journal off the event loop, before the first
request and bounded; what cannot be read is left out, and nothing is written again.
Not here: saving records (journal/), what is shown (control/), what lanes have learned
(gateway/lane_memory.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from jackline.agents.prices import Price, dollars, price_of
from jackline.clock import Clock
from jackline.control.burn import Burn
from jackline.control.fleet import Fleet
from jackline.control.forecast import WindowWatch
from jackline.errors import JournalError
from jackline.events import (
    Announce,
    AttemptFailed,
    CallEnded,
    ClockMoved,
    Event,
    LaneChanged,
    ServiceNoted,
    WindowsReported,
)
from jackline.journal import JournalReader
from jackline.lanes.rate_limits import SeenWindow
from jackline.telemetry.scrape import CallCounters

_PUT_ASIDE = 100_000
_SETTLE_SECONDS = 2.0
_MOST_NEWS = 500
_REFUSED = "auth"
_DELIVERED = ("answered", "shortened")


def account_of_lane(lane: str) -> str:
    """What an account's windows are known by: its lanes share them, the model is not theirs."""
    upstream, _, account = lane.partition("/")
    return f"{upstream}#{account.rpartition('#')[2]}"


class Observatory:
    """Everything that is known beyond the present moment."""

    def __init__(self, clock: Clock, prices: Callable[[], Mapping[str, Price]] = dict) -> None:
        """`prices` gives the user's own, which a new configuration may have changed."""
        self._clock = clock
        self._aside: deque[Event] = deque(maxlen=_PUT_ASIDE)
        self._fleet = Fleet()
        self._prices = prices
        self._burn = Burn(lambda model, usage: dollars(model, usage, prices()))
        self._tally = CallCounters()
        self._windows = WindowWatch()
        self.news: deque[Event] = deque(maxlen=_MOST_NEWS)
        """What a person would want to hear of, the latest last."""
        self.refused: dict[str, float] = {}
        """When each upstream last refused a key or login, and has answered no call since."""
        self.spent_before: dict[str, tuple[float, int]] = {}
        """Dollars and unpriced tokens by lane that an earlier service has told already."""
        self.also: Callable[[Event], None] | None = None
        """Who hears every event besides, in bulk too."""
        # Called for each event; bound once, since every call of the gateway comes here.
        self.announce = self._aside.append

    async def keep_settling(self) -> None:
        """Count what was put aside, again and again, so that it never becomes much."""
        while True:
            await self._clock.sleep(_SETTLE_SECONDS)
            self.settle()

    @property
    def windows(self) -> WindowWatch:
        """What subscriptions' windows hold as of now."""
        self.settle()
        return self._windows

    @property
    def fleet(self) -> Fleet:
        """The fleet as of now."""
        self.settle()
        return self._fleet

    @property
    def burn(self) -> Burn:
        """What was taken as of now."""
        self.settle()
        return self._burn

    @property
    def tally(self) -> CallCounters:
        """What became of calls and attempts, as of now."""
        self.settle()
        return self._tally

    def price_of(self, model: str) -> Price | None:
        """What the model costs; None where nobody knows."""
        return price_of(model, self._prices())

    def settle_past(self) -> None:
        """Take in what an earlier service did: it is shown, but counted and traced already."""
        now_on, self._tally = self._tally, CallCounters()
        also, self.also = self.also, None
        self.settle()
        self._tally, self.also = now_on, also
        self.spent_before = {
            lane: (sums.dollars, sums.unpriced) for lane, sums in self._burn.by_lane.items()
        }

    def settle(self) -> None:
        """Count what was put aside."""
        aside, fleet, burn, tally = self._aside, self._fleet, self._burn, self._tally
        also = self.also
        ended: list[CallEnded] = []
        while aside:
            event = aside.popleft()
            if also is not None:
                also(event)
            if isinstance(event, CallEnded):
                ended.append(event)
                tally.call_ended(event)
                if self.refused and event.outcome in _DELIVERED:
                    self.refused.pop(event.lane.partition("/")[0], None)
                if event.session or event.agent:
                    fleet.call_ended(event)
            elif isinstance(event, AttemptFailed):
                fleet.attempt_failed(event)
                tally.attempt_failed(event)
                if event.kind == _REFUSED:
                    self.refused[event.lane.partition("/")[0]] = event.at
            elif isinstance(event, ClockMoved):
                burn.calls_ended(ended)
                ended = []
                self._follow_clock(event.set_by)
            elif isinstance(event, WindowsReported):
                windows = (SeenWindow(*each) for each in event.windows)
                self._windows.add(event.at, account_of_lane(event.lane), windows)
            elif isinstance(event, LaneChanged | ServiceNoted):
                self.news.append(event)
                if isinstance(event, LaneChanged):
                    fleet.lane_changed(event)
        burn.calls_ended(ended)

    def _follow_clock(self, set_by: float) -> None:
        """Keep what is remembered as long ago as it is, though it was told by another clock."""
        self._fleet.follow_clock(set_by)
        self._burn.follow_clock(set_by)
        self._windows.follow_clock(set_by)
        self.refused = {name: at + set_by for name, at in self.refused.items()}


JournalEvent: TypeAlias = CallEnded | AttemptFailed | LaneChanged | ServiceNoted
_MOST = 20_000
_HOUR = 3600.0


async def recall_past(journal: Path, announce: Announce, clock: Clock) -> None:
    """Announce what the journal knows of today, or at least of the last hour, in its order."""
    now = clock.now()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    since = min(midnight, now.timestamp() - _HOUR)
    for event in await asyncio.to_thread(_read, journal, since, now.timestamp()):
        announce(event)


def _read(journal: Path, since: float, until: float) -> list[JournalEvent]:
    try:
        with JournalReader(journal) as reader:
            found: list[JournalEvent] = [
                *reader.failed_attempts(since, until, _MOST),
                *reader.calls(since, until, _MOST),
                *reader.lane_changes(since),
                *reader.notes(since),
            ]
    except JournalError:
        return []  # whoever keeps the journal has said so; only the past is not shown
    return sorted(found, key=lambda event: event.at)
