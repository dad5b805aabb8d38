"""Count what the gateway announces: the fleet, the spending, the forecast; since midnight.

Rules: (1) a call pays next to nothing for being counted: events are queued and counted later, in
one go; (2) the queue is bounded; (3) calls without a session are in no agent's timeline; (4) what
happened today before the start is read from the journal off the event loop, before the first
request and bounded; what cannot be read is left out, and nothing is written again; (5) spending is
bounded: a day of minutes, and the most recent runs and lanes; a model whose price is not known
costs "unknown", never nothing.
"""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jackline.agents.prices import Price, dollars, price_of
from jackline.clock import Clock
from jackline.control.answers import AnswerCounts
from jackline.control.fleet import Fleet
from jackline.control.forecast import WindowWatch
from jackline.control.spending import PriceOf, Sums, sums_by
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

_MAX_MINUTES = 24 * 60
_MAX_TAGS = 500
_MAX_LANES = 512
# Of one minute's chart; further lanes are drawn as one.
_MAX_LANES_OF_MINUTE = 64
_PACE_MINUTES = 15


OTHERS = "other-lanes"
_OTHER_LANES = LaneId(OTHERS)


@dataclass(slots=True)
class Minute:
    """One minute, by lane."""

    at: int
    lanes: dict[LaneId, Sums] = field(default_factory=dict)


class Burn:
    """What was used lately."""

    def __init__(self, price_of: PriceOf) -> None:
        self._price_of = price_of
        self._minutes: OrderedDict[int, Minute] = OrderedDict()
        self.by_tag: OrderedDict[str, Sums] = OrderedDict()
        self.by_lane: dict[LaneId, Sums] = {}
        """The most recently used lane last."""
        self.of_other_lanes = Sums()
        """Of lanes that were dropped, since many others were used after them."""
        self.total = Sums()

    def calls_ended(self, events: Iterable[CallEnded]) -> None:
        """Count calls that have ended; one that was never answered used nothing."""

        def sort_of(event: CallEnded) -> tuple[int, LaneId, str | None]:
            return int(event.at // 60), event.lane or _OTHER_LANES, event.tag

        for (minute, lane, tag), used in sums_by(events, sort_of, self._price_of).items():
            self._add(minute, lane, tag, used)

    def _add(self, number: int, lane: LaneId, tag: str | None, used: Sums) -> None:
        self.total.join(used)
        minute = self._minutes.get(number)
        if minute is None:
            minute = self._minutes[number] = Minute(number)
            while len(self._minutes) > _MAX_MINUTES:
                self._minutes.popitem(last=False)
        is_charted = lane in minute.lanes or len(minute.lanes) < _MAX_LANES_OF_MINUTE
        minute.lanes.setdefault(lane if is_charted else _OTHER_LANES, Sums()).join(used)
        self.by_lane[lane] = self.by_lane.pop(lane, Sums())
        self.by_lane[lane].join(used)
        while len(self.by_lane) > _MAX_LANES:
            self.of_other_lanes.join(self.by_lane.pop(next(iter(self.by_lane))))
        if tag:
            self.by_tag.setdefault(tag, Sums()).join(used)
            self.by_tag.move_to_end(tag)
            while len(self.by_tag) > _MAX_TAGS:
                self.by_tag.popitem(last=False)

    def series(self, now: float, minutes: int) -> list[Minute]:
        """The last minutes, the oldest first, empty ones included."""
        last = int(now // 60)
        return [self._minutes.get(at, Minute(at)) for at in range(last - minutes + 1, last + 1)]

    def since(self, at: float) -> Sums:
        """What was used since then, as far back as minutes are saved."""
        first, found = at // 60, Sums()
        for number, minute in self._minutes.items():
            if number >= first:
                for sums in minute.lanes.values():
                    found.join(sums)
        return found

    def dollars_per_hour(self, now: float) -> float:
        """The present pace, as far as prices are known."""
        return self.since(now - _PACE_MINUTES * 60).dollars * 60 / _PACE_MINUTES

    def follow_clock(self, set_by: float) -> None:
        """The wall clock was set by so much: minutes stay as long ago as they are."""
        moved = round(set_by / 60)
        for minute in self._minutes.values():
            minute.at += moved
        self._minutes = OrderedDict((minute.at, minute) for minute in self._minutes.values())


_MAX_QUEUED = 100_000
# Failures of attempts that say something about the upstream.
_FAULTS = frozenset(("upstream_5xx", "network_edge", "timeout", "truncated_stream", "overloaded"))
_SETTLE_SECONDS = 2.0
_MAX_NEWS = 500
_MAX_RECALLED = 20_000
MOST_LANES = 256
NO_LANE = "none"
"""The lane of calls that were refused before they had one."""
# Waits are nothing, a throttle's seconds, an outage's minutes or a quota's hours.
HELD_BOUNDS = (0.005, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 18000.0)
TOOK_BOUNDS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 18000.0)
TOKEN_KINDS = ("input", "output", "cache_read", "cache_write", "wasted_input", "wasted_output")


class Histogram:
    """Counts of values by bucket."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    @classmethod
    def of(cls, bounds: tuple[float, ...], counts: Sequence[int], total: float) -> Histogram:
        """One that was counted elsewhere."""
        made = cls(bounds)
        made.counts = list(counts)
        made.sum = total
        return made

    def observe(self, value: float) -> None:
        """Count one more value."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Each bucket's upper bound, and how many values were not above it."""
        so_far = 0
        for bound, count in zip((*self._bounds, math.inf), self.counts, strict=True):
            so_far += count
            yield bound, so_far


class LaneCounters:
    """The outcomes of the calls of one lane."""

    __slots__ = ("cuts", "failures", "held", "outcomes", "tokens", "took", "upstream")

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.outcomes: dict[str, int] = {}
        self.failures: dict[str, int] = {}
        self.cuts = 0
        self.held = Histogram(HELD_BOUNDS)
        self.took = Histogram(TOOK_BOUNDS)
        self.tokens = [0] * len(TOKEN_KINDS)


class CallCounters:
    """The sums of all lanes since the service started."""

    def __init__(self) -> None:
        # By the lane, so that a known lane costs one look-up; several may share sums.
        self._found: dict[LaneId | None, LaneCounters] = {}
        self._lanes: dict[str, LaneCounters] = {}

    @property
    def lanes(self) -> Mapping[str, LaneCounters]:
        """The sums by the label of a lane."""
        return self._lanes

    def call_ended(self, event: CallEnded) -> None:
        """Count a call."""
        tally = self._found.get(event.lane) or self._counters(event.lane)
        outcomes = tally.outcomes
        outcomes[event.outcome] = outcomes.get(event.outcome, 0) + 1
        tally.held.observe(event.waited)
        tally.took.observe(event.took)
        if event.input_tokens or event.output_tokens or event.wasted_input_tokens:
            tokens = tally.tokens
            # In the order of TOKEN_KINDS.
            counts = (
                event.input_tokens,
                event.output_tokens,
                event.cache_read_tokens,
                event.cache_write_tokens,
                event.wasted_input_tokens,
                event.wasted_output_tokens,
            )
            for place, count in enumerate(counts):
                tokens[place] += count

    def attempt_failed(self, event: AttemptFailed) -> None:
        """Count a failed attempt."""
        tally = self._found.get(event.lane) or self._counters(event.lane)
        tally.failures[event.kind] = tally.failures.get(event.kind, 0) + 1
        # It has a good status and failed nevertheless: the answer had begun.
        tally.cuts += event.status is not None and event.status < 300

    def _counters(self, lane: LaneId | None) -> LaneCounters:
        name = NO_LANE if lane is None else lane.label
        if name not in self._lanes and len(self._lanes) >= MOST_LANES:
            name = OTHERS
        tally = self._lanes.get(name)
        if tally is None:
            upstream = name if lane is None or name == OTHERS else lane.upstream
            tally = self._lanes[name] = LaneCounters(upstream)
        if len(self._found) < 2 * MOST_LANES:
            self._found[lane] = tally
        return tally


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
        self._answers = AnswerCounts()
        self.news: deque[Event] = deque(maxlen=_MAX_NEWS)
        """Events worth showing to a person, the latest last."""
        self.refused: dict[str, float] = {}
        """When each upstream last refused a key or login, and has answered no call since."""
        self.answered_at: dict[str, float] = {}
        """When each upstream answered a call last."""
        self.failed_at: dict[str, float] = {}
        """When an attempt on each upstream last failed by its fault, without an answer since."""
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
    def answers(self) -> AnswerCounts:
        """Which upstream answered which model."""
        self.settle()
        return self._answers

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
                self._answers.call_ended(event)
                if event.lane and event.outcome in ("answered", "shortened"):
                    self._upstream_answered(event.lane.upstream, event.at)
                if event.session or event.agent:
                    fleet.call_ended(event)
            elif isinstance(event, AttemptFailed):
                fleet.attempt_failed(event)
                tally.attempt_failed(event)
                self._upstream_failed(event)
            elif isinstance(event, ClockMoved):
                burn.calls_ended(ended)
                ended = []
                fleet.follow_clock(event.set_by)
                burn.follow_clock(event.set_by)
                self._windows.follow_clock(event.set_by)
                self._answers.follow_clock(event.set_by)
                for moments in (self.refused, self.answered_at, self.failed_at):
                    moments.update({name: at + event.set_by for name, at in moments.items()})
            elif isinstance(event, WindowsReported):
                windows = (SeenWindow(*each) for each in event.windows)
                self._windows.add(event.at, event.lane.payer, windows)
            elif isinstance(event, LaneChanged | ServiceNoted):
                self.news.append(event)
                if isinstance(event, LaneChanged):
                    fleet.lane_changed(event)
        burn.calls_ended(ended)

    def _upstream_failed(self, event: AttemptFailed) -> None:
        if event.kind == "auth":
            self.refused[event.lane.upstream] = event.at
        elif event.kind in _FAULTS:
            self.failed_at[event.lane.upstream] = event.at

    def _upstream_answered(self, upstream: str, at: float) -> None:
        self.answered_at[upstream] = at
        self.refused.pop(upstream, None)
        self.failed_at.pop(upstream, None)


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
