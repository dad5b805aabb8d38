"""Count what the gateway announces: the fleet, the spending, the forecast; since midnight.

Rules: (1) a call pays next to nothing for being counted: events are queued and counted later, in
one go; (2) the queue is bounded; (3) calls without a session are in no agent's timeline; (4)
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
from jackline.lane_id import LaneId
from jackline.lanes.rate_limits import SeenWindow
from jackline.telemetry.scrape import CallCounters

_MAX_QUEUED = 100_000
_SETTLE_SECONDS = 2.0
_MAX_NEWS = 500
_MAX_RECALLED = 20_000


class Observatory:
    """Everything that is counted over time."""

    def __init__(self, clock: Clock, prices: Callable[[], Mapping[str, Price]] = dict) -> None:
        """`prices` returns the user's own, which a new configuration may have changed."""
        self._clock = clock
        self._queue: deque[Event] = deque(maxlen=_MAX_QUEUED)
        self._fleet = Fleet()
        self._prices = prices
        self._burn = Burn(lambda model, usage: dollars(model, usage, prices()))
        self._tally = CallCounters()
        self._windows = WindowWatch()
        self.news: deque[Event] = deque(maxlen=_MAX_NEWS)
        """Events worth showing to a person, the latest last."""
        self.refused: dict[str, float] = {}
        """When each upstream last refused a key or login, and has answered no call since."""
        self.spent_before: dict[LaneId, tuple[float, int]] = {}
        """Dollars and unpriced tokens by lane that an earlier service has counted already."""
        self.also: Callable[[Event], None] | None = None
        """Also called with every event."""
        # Called for each event; bound once, since every call of the gateway comes here.
        self.announce = self._queue.append

    async def keep_settling(self) -> None:
        """Count queued events again and again, so that there are never many."""
        while True:
            await self._clock.sleep(_SETTLE_SECONDS)
            self.settle()

    @property
    def windows(self) -> WindowWatch:
        """The windows of subscriptions."""
        self.settle()
        return self._windows

    @property
    def fleet(self) -> Fleet:
        """The agents."""
        self.settle()
        return self._fleet

    @property
    def burn(self) -> Burn:
        """Tokens and dollars."""
        self.settle()
        return self._burn

    @property
    def tally(self) -> CallCounters:
        """The outcomes of calls and attempts."""
        self.settle()
        return self._tally

    def price_of(self, model: str) -> Price | None:
        """The model's price, if it is known."""
        return price_of(model, self._prices())

    def settle_past(self) -> None:
        """Read what an earlier service did: it is shown, but was counted and traced already."""
        now_on, self._tally = self._tally, CallCounters()
        also, self.also = self.also, None
        self.settle()
        self._tally, self.also = now_on, also
        self.spent_before = {
            lane: (sums.dollars, sums.unpriced) for lane, sums in self._burn.by_lane.items()
        }

    def settle(self) -> None:
        """Count the queued events."""
        queue, fleet, burn, tally = self._queue, self._fleet, self._burn, self._tally
        also = self.also
        ended: list[CallEnded] = []
        while queue:
            event = queue.popleft()
            if also is not None:
                also(event)
            if isinstance(event, CallEnded):
                ended.append(event)
                tally.call_ended(event)
                if self.refused and event.lane and event.outcome in ("answered", "shortened"):
                    self.refused.pop(event.lane.upstream, None)
                if event.session or event.agent:
                    fleet.call_ended(event)
            elif isinstance(event, AttemptFailed):
                fleet.attempt_failed(event)
                tally.attempt_failed(event)
                if event.kind == "auth":
                    self.refused[event.lane.upstream] = event.at
            elif isinstance(event, ClockMoved):
                burn.calls_ended(ended)
                ended = []
                fleet.follow_clock(event.set_by)
                burn.follow_clock(event.set_by)
                self._windows.follow_clock(event.set_by)
                self.refused = {name: at + event.set_by for name, at in self.refused.items()}
            elif isinstance(event, WindowsReported):
                windows = (SeenWindow(*each) for each in event.windows)
                self._windows.add(event.at, event.lane.payer, windows)
            elif isinstance(event, LaneChanged | ServiceNoted):
                self.news.append(event)
                if isinstance(event, LaneChanged):
                    fleet.lane_changed(event)
        burn.calls_ended(ended)


async def recall_past(journal: Path, announce: Announce, clock: Clock) -> None:
    """Announce what the journal has of today, or at least of the last hour, in its order."""
    now = clock.now()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    until = now.timestamp()
    since = min(midnight, until - 3600.0)

    def read() -> list[CallEnded | AttemptFailed | LaneChanged | ServiceNoted]:
        try:
            with JournalReader(journal) as reader:
                return [
                    *reader.failed_attempts(since, until, _MAX_RECALLED),
                    *reader.calls(since, until, _MAX_RECALLED),
                    *reader.lane_changes(since),
                    *reader.notes(since),
                ]
        except JournalError:
            return []  # the journal's writer has logged it; only the past is not shown

    for event in sorted(await asyncio.to_thread(read), key=lambda event: event.at):
        announce(event)
