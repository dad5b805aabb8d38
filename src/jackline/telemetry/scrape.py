"""Count calls by lane, watch this process, and answer `/metrics` and `/_jackline/fleet`.

Rules: (1) counting is pure and bounded: only so many lanes have counters of their own, the others
are counted together; whose call it was is ignored; (2) all other work is done on request, and
changes nothing; lanes of several accounts are shown as one; (3) watching the process costs a few
wake-ups a second, and an unknown figure is None; (4) every client that passed the access check may
read; a disk is read off the event loop, every few seconds at most, and a failed read still gets an
answer.
Not here: the list of metrics (metrics.py), prices (control/burn.py), gathering facts (assembly/).
"""

from __future__ import annotations

import asyncio
import mmap
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from jackline.clock import Clock
from jackline.control.board import Facts
from jackline.control.fleet import calls_by_agent
from jackline.control.http_handler import ServiceRequest
from jackline.events import AttemptFailed, CallEnded
from jackline.lane_id import LaneId
from jackline.states import AgentState, LaneState, RunState
from jackline.telemetry import metrics as c
from jackline.telemetry.metrics import (
    CONTENT_TYPE,
    Histogram,
    Mean,
    Metric,
    Samples,
    Value,
    Values,
    render,
)

MOST_LANES = 256
OTHERS = "other-lanes"
NO_LANE = "none"
"""The lane of calls that were refused before they had one."""
# Waits are nothing, a throttle's seconds, an outage's minutes or a quota's hours.
HELD_BOUNDS = (0.005, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 18000.0)
TOOK_BOUNDS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 18000.0)
TOKEN_KINDS = ("input", "output", "cache_read", "cache_write", "wasted_input", "wasted_output")


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


_MAX_WINDOWS = 16
_MAX_LIMITS = 8


@dataclass(frozen=True, slots=True)
class JournalFigures:
    """The state of the journal."""

    ok: bool
    lost: int
    waiting: int
    commits: Histogram


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """What this process has used; `memory` is None where that is not known."""

    cpu_seconds: float
    loop_seconds: float
    """Computing time of the event loop's thread since the service started."""
    memory: int | None
    loop_delay: Histogram


@dataclass(frozen=True, slots=True)
class RunFigures:
    """How many runs the store has, by state, and how many of the parked wait for a person."""

    by_state: Mapping[RunState, int]
    need_you: int


@dataclass(frozen=True, slots=True)
class ScrapeFacts:
    """Everything that a scrape reads."""

    facts: Facts
    tally: CallCounters
    journal: JournalFigures
    process: ProcessFigures
    runs: RunFigures | None
    spent_before: Mapping[LaneId, tuple[float, int]] = field(default_factory=dict)
    """Dollars and unpriced tokens by lane of before the start, which counters leave out."""


def read_metrics(seen: ScrapeFacts) -> dict[Metric, Samples]:
    """Every metric with its samples, in the order of `metrics.METRICS`."""
    head: Mapping[str, Any] = seen.facts.head
    journal, process, runs = seen.journal, seen.process, seen.runs
    calls = sum(x for tally in seen.tally.lanes.values() for x in tally.outcomes.values())
    samples: dict[Metric, Samples] = {
        **_lanes(seen.facts.lanes),
        **_calls(seen.tally),
        **_burn(seen),
        **_windows(head),
        c.BUILD_INFO: {(str(head["version"]),): 1.0},
        c.START_TIME: {(): float(head["started"])},
        c.CALLS_HELD: {(): float(head["held_and_delivered"])},
        c.CALLS_JOINED: {(): float(head["joined"])},
        c.CALLS_WAITING: {(): float(head["calls_waiting"])},
        c.CALLS_IN_FLIGHT: {(): float(head["calls_in_flight"])},
        c.CONNECTIONS: {(): float(head["connections"])},
        c.AGENTS: _agents(seen.facts),
        c.RUNS: {},
        c.RUNS_NEED_YOU: {},
        c.OVERHEAD: {(): Mean(process.loop_seconds, calls)},
        c.LOOP_DELAY: {(): process.loop_delay},
        c.JOURNAL_COMMIT: {(): journal.commits},
        c.JOURNAL_OK: {(): float(journal.ok)},
        c.JOURNAL_LOST: {(): float(journal.lost)},
        c.JOURNAL_WAITING: {(): float(journal.waiting)},
        c.MEMORY: {} if process.memory is None else {(): float(process.memory)},
        c.CPU: {(): process.cpu_seconds},
    }
    if runs is not None:
        samples[c.RUNS] = {(each.value,): float(runs.by_state.get(each, 0)) for each in RunState}
        samples[c.RUNS_NEED_YOU] = {(): float(runs.need_you)}
    return {metric: samples[metric] for metric in c.METRICS}


def _lanes(lanes: Mapping[str, object]) -> dict[Metric, Samples]:
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for row in lanes.values():
        if isinstance(row, Mapping):
            name = str(row["name"])
            is_counted = name in by_name or len(by_name) < MOST_LANES
            by_name.setdefault(name if is_counted else OTHERS, []).append(row)
    states: dict[Values, Value] = {}
    paused: dict[Values, Value] = {}
    untils: dict[Values, Value] = {}
    left: dict[Values, Value] = {}
    sums: dict[str, dict[Values, Value]] = {"in_flight": {}, "window": {}, "waiting": {}}
    for name, rows in by_name.items():
        for state in LaneState:
            states[name, state.value] = float(sum(row["state"] == state.value for row in rows))
        paused[(name,)] = float(any(row["paused"] for row in rows))
        for column, samples in sums.items():
            samples[(name,)] = float(sum(row[column] for row in rows))
        times = [row["until"] for row in rows if row["until"] is not None]
        if times:
            untils[(name,)] = float(min(times))
        limits = {limit for row in rows for limit in row["limits"]}
        for limit in sorted(limits)[:_MAX_LIMITS]:
            least = min(row["limits"][limit] for row in rows if limit in row["limits"])
            left[name, limit] = float(max(0.0, min(1.0, least)))
    return {
        c.LANE_STATE: states,
        c.LANE_PAUSED: paused,
        c.LANE_IN_FLIGHT: sums["in_flight"],
        c.LANE_WINDOW: sums["window"],
        c.LANE_WAITING: sums["waiting"],
        c.LANE_UNTIL: untils,
        c.LIMIT_LEFT: left,
    }


def _calls(tally: CallCounters) -> dict[Metric, Samples]:
    lanes = tally.lanes.items()
    return {
        c.CALLS: {(n, how): float(x) for n, t in lanes for how, x in t.outcomes.items()},
        c.FAILED_ATTEMPTS: {
            (n, kind): float(x) for n, t in lanes for kind, x in t.failures.items()
        },
        c.STREAM_CUTS: {(n,): float(t.cuts) for n, t in lanes},
        c.CALL_HELD: {(n,): t.held for n, t in lanes},
        c.CALL_TOOK: {(n,): t.took for n, t in lanes},
        c.TOKENS: {
            (n, kind): float(x)
            for n, t in lanes
            for kind, x in zip(TOKEN_KINDS, t.tokens, strict=True)
        },
    }


def _burn(seen: ScrapeFacts) -> dict[Metric, Samples]:
    dollars: dict[str, float] = {}
    unpriced: dict[str, float] = {}
    burn = seen.facts.burn
    for lane, sums in burn.by_lane.items():
        paid, unpaid = seen.spent_before.get(lane, (0.0, 0))
        name = lane.label
        name = name if name in dollars or len(dollars) < MOST_LANES else OTHERS
        dollars[name] = dollars.get(name, 0.0) + max(0.0, sums.dollars - paid)
        unpriced[name] = unpriced.get(name, 0.0) + max(0, sums.unpriced - unpaid)
    others = burn.of_other_lanes
    if others.calls:
        dollars[OTHERS] = dollars.get(OTHERS, 0.0) + others.dollars
        unpriced[OTHERS] = unpriced.get(OTHERS, 0.0) + others.unpriced
    return {
        c.SPEND: {(name,): figure for name, figure in dollars.items()},
        c.UNPRICED: {(name,): figure for name, figure in unpriced.items()},
    }


def _windows(head: Mapping[str, Any]) -> dict[Metric, Samples]:
    fullest: dict[str, Mapping[str, Any]] = {}
    for each in head["forecast"]:
        window = str(each["window"])
        known = fullest.get(window)
        if known is None and len(fullest) >= _MAX_WINDOWS:
            continue
        if known is None or each["used"] > known["used"]:
            fullest[window] = each
    ends = [(name, each["ends_at"]) for name, each in fullest.items()]
    return {
        c.WINDOW_USED: {(name,): float(each["used"]) for name, each in fullest.items()},
        c.WINDOW_RESETS: {(name,): float(each["resets_at"]) for name, each in fullest.items()},
        c.WINDOW_ENDS: {(name,): float(at) for name, at in ends if at is not None},
    }


def _agents(facts: Facts) -> Samples:
    live = calls_by_agent(facts.live)
    counts = dict.fromkeys(AgentState, 0)
    for call in live.values():
        counts[call.state] += 1
    for key in facts.fleet.known():
        member = facts.fleet.member(key)
        if key not in live and member is not None:
            state = facts.flows.agent_states.get(member.agent) or member.resting_state(facts.at)
            counts[state] += 1
    return {(state.value,): float(count) for state, count in counts.items()}


_EVERY = 0.25
_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


class OwnProcess:
    """The figures of this process; use it in the event loop's thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._delay = Histogram(_BOUNDS)
        # Imports are not part of a call's computing time.
        self._begun = time.thread_time()

    async def watch(self) -> None:
        """Measure how late the loop is, again and again."""
        while True:
            due = self._clock.monotonic() + _EVERY
            await self._clock.sleep(_EVERY)
            self._delay.observe(max(0.0, self._clock.monotonic() - due))

    def figures(self) -> ProcessFigures:
        """The present figures."""
        try:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            memory: int | None = pages * mmap.PAGESIZE
        except (OSError, ValueError, IndexError):
            memory = None  # only Linux has this file
        loop = time.thread_time() - self._begun
        return ProcessFigures(time.process_time(), loop, memory, self._delay)


METRICS = b"/metrics"
FLEET = b"/_jackline/fleet"
_REFRESH_EVERY = 2.0


class ScrapeHandler:
    """Answers programs; `serve` must run for as long as the service does."""

    def __init__(
        self,
        look: Callable[[], ScrapeFacts],
        fleet: Callable[[], Mapping[str, object]],
        refresh: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._look = look
        self._fleet = fleet
        self._refresh = refresh
        self._clock = clock
        self._refreshed = float("-inf")
        self._answers: set[asyncio.Task[None]] = set()

    def knows(self, request: ServiceRequest) -> bool:
        """Whether this asks for metrics or the fleet."""
        return request.path in (METRICS, FLEET)

    def answer(self, request: ServiceRequest) -> None:
        """Send the document, read anew if the last one is old."""
        if request.method not in (b"GET", b"HEAD"):
            request.respond(405, [(b"content-type", b"text/plain")], b"this is only read\n")
            return
        if self._clock.monotonic() - self._refreshed < _REFRESH_EVERY:
            self._send(request)
            return
        task = asyncio.get_running_loop().create_task(self._send_refreshed(request))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def serve(self) -> None:
        """Cancel open requests when the service ends."""
        try:
            await asyncio.Event().wait()
        finally:
            for task in self._answers:
                task.cancel()
            await asyncio.gather(*self._answers, return_exceptions=True)

    async def _send_refreshed(self, request: ServiceRequest) -> None:
        try:
            await self._refresh()
            self._refreshed = self._clock.monotonic()
        finally:
            self._send(request)

    def _send(self, request: ServiceRequest) -> None:
        if request.path == METRICS:
            kind, body = CONTENT_TYPE, render(read_metrics(self._look()))
        else:
            kind, body = b"application/json", msgspec.json.encode(self._fleet())
        request.respond(200, [(b"content-type", kind), (b"cache-control", b"no-store")], body)
