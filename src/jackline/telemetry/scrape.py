"""Make the documents of `/metrics` and `/_jackline/fleet`.

Rules: (1) work is done on request, and changes nothing, but for a few wake-ups a second that
measure the event loop's delay; (2) lanes of several accounts are shown as one; (3) a disk is read
off the event loop, every few seconds at most, and a failed read leaves out its own metrics only.
"""

from __future__ import annotations

import logging
import mmap
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from jackline.clock import Clock
from jackline.control.board import NO_FLOW_FACTS, Facts, FlowFacts
from jackline.control.fleet import calls_by_agent
from jackline.control.needs import About
from jackline.control.observatory import (
    MOST_LANES,
    OTHERS,
    TOKEN_KINDS,
    Burn,
    CallCounters,
    Histogram,
    Observatory,
)
from jackline.control.open_documents import IsWanted, OpenDocument, Parameters
from jackline.control.stored_runs import StoredRuns
from jackline.errors import JacklineError
from jackline.journal import Journal
from jackline.journal.journal import BOUNDS
from jackline.lane_id import LaneId
from jackline.states import AgentState, LaneState, RunState
from jackline.telemetry import metrics as c
from jackline.telemetry.metrics import CONTENT_TYPE, Mean, Metric, Samples, Value, Values, render

_log = logging.getLogger(__name__)
_MAX_WINDOWS = 16
_MAX_LIMITS = 8


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


def _burn(burn: Burn, spent_before: Mapping[LaneId, tuple[float, int]]) -> dict[Metric, Samples]:
    dollars: dict[str, float] = {}
    unpriced: dict[str, float] = {}
    for lane, sums in burn.by_lane.items():
        paid, unpaid = spent_before.get(lane, (0.0, 0))
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


_SAMPLE_EVERY = 0.25
_DELAY_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
METRICS = b"/metrics"
FLEET = b"/_jackline/fleet"
_REFRESH_EVERY = 2.0


class FleetFigures:
    """The figures of the whole service; `watch_delay` must run for as long as it does.

    Make it in the thread of the event loop, whose computing time it measures.
    """

    def __init__(
        self,
        facts: Callable[[FlowFacts], Facts],
        observatory: Observatory,
        journal: Journal,
        stored_runs: StoredRuns,
        clock: Clock,
    ) -> None:
        self._facts = facts
        self._observatory = observatory
        self._journal = journal
        self._stored_runs = stored_runs
        self._clock = clock
        self._flows = NO_FLOW_FACTS
        self._runs: Mapping[RunState, tuple[int, int]] | None = None
        self._delay = Histogram(_DELAY_BOUNDS)
        # Imports are not part of a call's computing time.
        self._begun = time.thread_time()
        self._refreshed = float("-inf")

    @property
    def documents(self) -> dict[bytes, OpenDocument]:
        """What is read on which path."""
        return {
            METRICS: OpenDocument(self._metrics, content_type=CONTENT_TYPE),
            FLEET: OpenDocument(self._fleet),
        }

    async def watch_delay(self) -> None:
        """Measure how late the event loop is, again and again."""
        while True:
            due = self._clock.monotonic() + _SAMPLE_EVERY
            await self._clock.sleep(_SAMPLE_EVERY)
            self._delay.observe(max(0.0, self._clock.monotonic() - due))

    async def _metrics(self, _parameters: Parameters, _is_wanted: IsWanted) -> bytes:
        await self._refresh()
        return render(self.read())

    async def _fleet(self, _parameters: Parameters, _is_wanted: IsWanted) -> bytes:
        await self._refresh()
        return msgspec.json.encode(self._facts(self._flows).fleet_document())

    async def _refresh(self) -> None:
        if self._clock.monotonic() - self._refreshed >= _REFRESH_EVERY:
            self._flows = await self._stored_runs.look()
            self._runs = await self._count_runs()
            self._refreshed = self._clock.monotonic()

    async def _count_runs(self) -> Mapping[RunState, tuple[int, int]] | None:
        try:
            return await self._stored_runs.count()
        except JacklineError as error:
            _log.warning("the metrics of runs are missing: %s", error.message)
            return None

    def read(self) -> dict[Metric, Samples]:
        """Every metric with its samples, in the order of `metrics.METRICS`."""
        # First the facts: looking at the fleet counts what was queued.
        facts = self._facts(self._flows)
        head: Mapping[str, Any] = facts.head
        tally = self._observatory.tally
        calls = sum(x for each in tally.lanes.values() for x in each.outcomes.values())
        health, commits = self._journal.health, self._journal.commit_times
        samples: dict[Metric, Samples] = {
            **_lanes(facts.lanes),
            **_calls(tally),
            **_burn(facts.burn, self._observatory.spent_before),
            **_windows(head),
            c.BUILD_INFO: {(str(head["version"]),): 1.0},
            c.START_TIME: {(): float(head["started"])},
            c.CALLS_HELD: {(): float(head["held_and_delivered"])},
            c.CALLS_JOINED: {(): float(head["joined"])},
            c.CALLS_WAITING: {(): float(head["calls_waiting"])},
            c.CALLS_IN_FLIGHT: {(): float(head["calls_in_flight"])},
            c.CONNECTIONS: {(): float(head["connections"])},
            c.AGENTS: _agents(facts),
            c.RUNS: {},
            c.RUNS_NEED_YOU: {},
            c.OVERHEAD: {(): Mean(time.thread_time() - self._begun, calls)},
            c.LOOP_DELAY: {(): self._delay},
            c.JOURNAL_COMMIT: {(): Histogram.of(BOUNDS, commits.counts, commits.seconds)},
            c.JOURNAL_OK: {(): float(health.ok)},
            c.JOURNAL_LOST: {(): float(health.dropped)},
            c.JOURNAL_WAITING: {(): float(health.waiting)},
            c.MEMORY: {},
            c.CPU: {(): time.process_time()},
        }
        with suppress(OSError, ValueError, IndexError):  # only Linux has this file
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            samples[c.MEMORY] = {(): float(pages * mmap.PAGESIZE)}
        runs = self._runs
        if runs is not None:
            nothing = (0, 0)
            samples[c.RUNS] = {(e.value,): float(runs.get(e, nothing)[0]) for e in RunState}
            needs = sum(need["about"] in (About.RUN, About.ENDED_RUN) for need in head["needs"])
            samples[c.RUNS_NEED_YOU] = {(): float(needs)}
        return {metric: samples[metric] for metric in c.METRICS}
