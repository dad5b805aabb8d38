"""Put together what `/metrics` tells, from what is known at that moment.

Laws: (1) looking changes nothing, and all work is done when somebody asks; (2) every metric of the
catalogue is told, with the values that are known; (3) lanes of several accounts are told as one,
and beyond a bound all further lanes as one.
Not here: counting (tally.py), gathering the facts (assembly/).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from jackline.control.board import Facts
from jackline.control.fleet import Doing, Key, resting
from jackline.flows.records import RunState
from jackline.lanes.states import State
from jackline.telemetry import catalogue as c
from jackline.telemetry.exposition import Family, Histogram, Mean, Metric, Samples, Value, Values
from jackline.telemetry.tally import MOST_LANES, OTHERS, TOKEN_KINDS, Tally

_MOST_WINDOWS = 16
_MOST_LIMITS = 8
_LaneRow: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class JournalTold:
    """How recording goes."""

    ok: bool
    lost: int
    waiting: int
    commits: Histogram


@dataclass(frozen=True, slots=True)
class ProcessTold:
    """What the process itself has used; `memory` is None where that cannot be told."""

    cpu_seconds: float
    loop_seconds: float
    """Computing time of the event loop's thread since the service started."""
    memory: int | None
    loop_delay: Histogram


@dataclass(frozen=True, slots=True)
class RunsTold:
    """How many runs are kept, by state, and how many of the parked wait for a person."""

    by_state: Mapping[RunState, int]
    need_you: int


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that a scrape is made of."""

    facts: Facts
    tally: Tally
    journal: JournalTold
    process: ProcessTold
    runs: RunsTold | None
    spent_before: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    """Dollars and unpriced tokens by lane of before the start, which counters leave out."""


def families(seen: Seen) -> list[Family]:
    """Every metric of the catalogue with its samples, in the catalogue's order."""
    samples: dict[Metric, Samples] = {
        **_lanes(seen.facts.lanes),
        **_calls(seen.tally),
        **_head(seen.facts.head),
        **_burn(seen),
        **_windows(seen.facts.head),
        c.AGENTS: _agents(seen.facts),
        **_runs(seen.runs),
        **_own(seen),
    }
    return [Family(metric, samples[metric]) for metric in c.METRICS]


# --- lanes ------------------------------------------------------------------------------------


def _lanes(lanes: Mapping[str, object]) -> dict[Metric, Samples]:
    rows: dict[str, list[_LaneRow]] = {}
    for row in lanes.values():
        if isinstance(row, Mapping):
            name = str(row["name"])
            known = name in rows or len(rows) < MOST_LANES
            rows.setdefault(name if known else OTHERS, []).append(row)
    states: dict[Values, Value] = {
        (name, state.value): float(sum(row["state"] == state.value for row in found))
        for name, found in rows.items()
        for state in State
    }
    untils: dict[Values, Value] = {
        (name,): float(min(times))
        for name, found in rows.items()
        if (times := [row["until"] for row in found if row["until"] is not None])
    }
    return {
        c.LANE_STATE: states,
        c.LANE_PAUSED: _by_lane(rows, lambda found: any(row["paused"] for row in found)),
        c.LANE_IN_FLIGHT: _summed(rows, "in_flight"),
        c.LANE_WINDOW: _summed(rows, "window"),
        c.LANE_WAITING: _summed(rows, "waiting"),
        c.LANE_UNTIL: untils,
        c.LIMIT_LEFT: dict(_limits(rows)),
    }


def _by_lane(
    rows: Mapping[str, list[_LaneRow]], of: Callable[[list[_LaneRow]], float]
) -> dict[Values, Value]:
    return {(name,): float(of(found)) for name, found in rows.items()}


def _summed(rows: Mapping[str, list[_LaneRow]], column: str) -> dict[Values, Value]:
    return _by_lane(rows, lambda found: sum(row[column] for row in found))


def _limits(rows: Mapping[str, list[_LaneRow]]) -> Iterator[tuple[Values, Value]]:
    for name, found in rows.items():
        limits = {limit for row in found for limit in row["limits"]}
        for limit in sorted(limits)[:_MOST_LIMITS]:
            left = min(row["limits"][limit] for row in found if limit in row["limits"])
            yield (name, limit), float(max(0.0, min(1.0, left)))


# --- calls ------------------------------------------------------------------------------------


def _calls(tally: Tally) -> dict[Metric, Samples]:
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


def _head(head: Mapping[str, Any]) -> dict[Metric, Samples]:
    return {
        c.BUILD_INFO: {(str(head["version"]),): 1.0},
        c.START_TIME: {(): float(head["started"])},
        c.CALLS_HELD: {(): float(head["held_and_delivered"])},
        c.CALLS_JOINED: {(): float(head["joined"])},
        c.CALLS_WAITING: {(): float(head["calls_waiting"])},
        c.CALLS_IN_FLIGHT: {(): float(head["calls_in_flight"])},
        c.CONNECTIONS: {(): float(head["connections"])},
    }


def _burn(seen: Seen) -> dict[Metric, Samples]:
    dollars: dict[Values, Value] = {}
    unpriced: dict[Values, Value] = {}
    for lane, sums in seen.facts.burn.by_lane.items():
        paid, unpaid = seen.spent_before.get(lane, (0.0, 0))
        name = lane.partition("#")[0]
        key = (name if (name,) in dollars or len(dollars) < MOST_LANES else OTHERS,)
        dollars[key] = _plus(dollars.get(key), max(0.0, sums.dollars - paid))
        unpriced[key] = _plus(unpriced.get(key), max(0, sums.unpriced - unpaid))
    others = seen.facts.burn.of_other_lanes
    if others.calls:
        key = (OTHERS,)
        dollars[key] = _plus(dollars.get(key), others.dollars)
        unpriced[key] = _plus(unpriced.get(key), others.unpriced)
    return {c.SPEND: dollars, c.UNPRICED: unpriced}


def _plus(known: Value | None, more: float) -> float:
    return more + (known if isinstance(known, float) else 0.0)


def _windows(head: Mapping[str, Any]) -> dict[Metric, Samples]:
    fullest: dict[str, Mapping[str, Any]] = {}
    for each in head["forecast"]:
        window = str(each["window"])
        known = fullest.get(window)
        if known is None and len(fullest) >= _MOST_WINDOWS:
            continue
        if known is None or each["used"] > known["used"]:
            fullest[window] = each
    return {
        c.WINDOW_USED: {(name,): float(each["used"]) for name, each in fullest.items()},
        c.WINDOW_RESETS: {(name,): float(each["resets_at"]) for name, each in fullest.items()},
        c.WINDOW_ENDS: {
            (name,): float(each["ends_at"])
            for name, each in fullest.items()
            if each["ends_at"] is not None
        },
    }


# --- agents, runs, the process ------------------------------------------------------------------


def _agents(facts: Facts) -> Samples:
    doing = dict.fromkeys(Doing, 0)
    live: dict[Key, Doing] = {}
    for call in facts.live:
        key = (call.session, call.agent)
        # Of several calls that one which waits, since that is what holds the agent up.
        if key != ("", "") and live.get(key, Doing.ANSWERING) is Doing.ANSWERING:
            live[key] = call.doing
    for state in live.values():
        doing[state] += 1
    for key in facts.fleet.known():
        member = facts.fleet.member(key)
        if key not in live and member is not None:
            doing[facts.flows.ended.get(member.agent) or resting(member, facts.at)] += 1
    return {(state.value,): float(count) for state, count in doing.items()}


def _runs(runs: RunsTold | None) -> dict[Metric, Samples]:
    if runs is None:
        return {c.RUNS: {}, c.RUNS_NEED_YOU: {}}
    return {
        c.RUNS: {(state.value,): float(runs.by_state.get(state, 0)) for state in RunState},
        c.RUNS_NEED_YOU: {(): float(runs.need_you)},
    }


def _own(seen: Seen) -> dict[Metric, Samples]:
    journal, process = seen.journal, seen.process
    calls = sum(x for tally in seen.tally.lanes.values() for x in tally.outcomes.values())
    return {
        c.OVERHEAD: {(): Mean(process.loop_seconds, calls)},
        c.LOOP_DELAY: {(): process.loop_delay},
        c.JOURNAL_COMMIT: {(): journal.commits},
        c.JOURNAL_OK: {(): float(journal.ok)},
        c.JOURNAL_LOST: {(): float(journal.lost)},
        c.JOURNAL_WAITING: {(): float(journal.waiting)},
        c.MEMORY: {} if process.memory is None else {(): float(process.memory)},
        c.CPU: {(): process.cpu_seconds},
    }
