"""Schedule the whole work knowing everything: the reference that every policy is divided by.

Rules: (1) it never sends a request that fails; (2) the longest true remaining path goes first, on
every lane that can carry it; (3) the best of a few such schedules counts. A strong heuristic, not
a proven bound: a policy may come out slightly below 1.
Not here: anything a real client could do.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from lanes_bench.crew import Call, Crew
from lanes_bench.scenarios import FOREVER, Lane, Scenario
from lanes_bench.workload import MEAN_SERVICE, Fleet, Step

TICK = 1.0


@dataclass(frozen=True, slots=True)
class Manner:
    """One way to schedule: leave room for output under way, and look past a call that must wait."""

    reserves_output: bool
    looks_ahead: int


WITHOUT_BUCKETS = (
    Manner(reserves_output=False, looks_ahead=1),
    Manner(reserves_output=False, looks_ahead=24),
)
WITH_BUCKETS = (
    Manner(reserves_output=False, looks_ahead=1),
    Manner(reserves_output=True, looks_ahead=1),
    Manner(reserves_output=True, looks_ahead=8),
)


def best_makespan(fleet: Fleet, scenario: Scenario) -> float:
    """The shortest makespan that the oracle finds."""
    metered = any(lane.rates is not None for lane in scenario.lanes)
    manners = WITH_BUCKETS if metered else WITHOUT_BUCKETS
    return min(Schedule(fleet, scenario, manner).makespan() for manner in manners)


class _Meter:
    """The true level of one bucket."""

    def __init__(self, rate: float, burst: float) -> None:
        self.rate, self.cap, self.level, self.at = rate, rate * burst, rate * burst, 0.0

    def fill(self, now: float) -> float:
        self.level = min(self.cap, self.level + self.rate * (now - self.at))
        self.at = now
        return self.level


class _Road:
    """One lane as the oracle sees it."""

    def __init__(self, lane: Lane, manner: Manner) -> None:
        self.lane = lane
        self.busy = 0
        self._reserves = manner.reserves_output
        self._streaming = 0
        self._meters: tuple[_Meter, _Meter, _Meter] | None = None
        if lane.rates is not None:
            requests, tokens_in, tokens_out = (_Meter(*each) for each in lane.rates.buckets())
            self._meters = (requests, tokens_in, tokens_out)

    def opens_at(self, now: float, step: Step) -> float:
        """`now` when the call can start and will succeed, else when to look again."""
        closed = self._closed_until(now, step)
        if closed > now:
            return closed
        slots = self.lane.slots_at(now)
        if self.busy + 1 > slots:
            moving = bool(self.lane.shares) or slots < self.lane.slots
            return now + TICK if moving else FOREVER
        return self._paid_at(now, step)

    def start(self, now: float, step: Step) -> None:
        """Take what the call needs."""
        self.busy += 1
        if self._meters is not None:
            self._meters[0].fill(now)
            self._meters[0].level -= 1.0
            self._meters[1].fill(now)
            self._meters[1].level -= step.input_tokens
            self._streaming += step.output_tokens

    def end(self, now: float, step: Step) -> None:
        """Give the slot back, and pay for the output."""
        self.busy -= 1
        if self._meters is not None:
            self._meters[2].fill(now)
            self._meters[2].level -= step.output_tokens
            self._streaming -= step.output_tokens

    def _closed_until(self, now: float, step: Step) -> float:
        wall, outage = self.lane.wall, self.lane.outage
        if wall is not None and wall.start <= now < wall.end:
            return wall.end
        if outage is not None and now < outage.end and now + step.service > outage.start:
            return outage.end
        return now

    def _paid_at(self, now: float, step: Step) -> float:
        if self._meters is None:
            return now
        requests, tokens_in, tokens_out = self._meters
        need_out = 1.0
        if self._reserves:
            need_out = max(1.0, self._streaming - tokens_out.rate * MEAN_SERVICE)
        needs = ((requests, 1.0), (tokens_in, float(step.input_tokens)), (tokens_out, need_out))
        wait = max((min(need, m.cap) - m.fill(now)) / m.rate for m, need in needs)
        return now if wait <= 1e-9 else now + wait + 1e-6


class Schedule:
    """One schedule of the whole work; `starts` are its sends: when, which call, on which lane."""

    def __init__(self, fleet: Fleet, scenario: Scenario, manner: Manner) -> None:
        self._crew = Crew(fleet)
        self._roads = [_Road(lane, manner) for lane in scenario.lanes]
        self._ahead = manner.looks_ahead
        self._ready: list[tuple[float, int, Call]] = []
        self._events: list[tuple[float, int, Call | None, _Road | None]] = []
        self._count = 0
        self._wake = FOREVER
        self.starts: list[tuple[float, Step, int]] = []

    def makespan(self) -> float:
        """Play it to the end: when the last agent is done."""
        for call in self._crew.start():
            self._push(call.ready_at, call, None)
        while self._crew.unfinished:
            now = self._events[0][0]
            while self._events and self._events[0][0] <= now:
                _, _, subject, road = heapq.heappop(self._events)
                self._happens(now, subject, road)
            self._dispatch(now)
        return self._crew.makespan

    def _happens(self, now: float, call: Call | None, road: _Road | None) -> None:
        if call is None:
            self._wake = FOREVER
        elif road is None:
            heapq.heappush(self._ready, (-call.path_left, call.id, call))
        else:
            road.end(now, call.plan)
            for following in self._crew.advance(now, call.agent):
                self._push(following.ready_at, following, None)

    def _dispatch(self, now: float) -> None:
        passed: list[tuple[float, int, Call]] = []
        look_again = FOREVER
        while self._ready and len(passed) < self._ahead:
            entry = heapq.heappop(self._ready)
            call = entry[2]
            for lane, road in enumerate(self._roads):
                opens = road.opens_at(now, call.plan)
                if opens <= now:
                    road.start(now, call.plan)
                    self.starts.append((now, call.plan, lane))
                    took = road.lane.delay(now, call.plan) + call.plan.service
                    self._push(now + took, call, road)
                    break
                look_again = min(look_again, opens)
            else:
                passed.append(entry)
        for entry in passed:
            heapq.heappush(self._ready, entry)
        if passed and look_again < self._wake:
            self._wake = look_again
            self._push(look_again, None, None)

    def _push(self, when: float, call: Call | None, road: _Road | None) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, call, road))
