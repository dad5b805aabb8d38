"""The metrics of `/metrics`: types, the text that Prometheus reads (0.0.4), and the full list.

Rules: (1) pure: families in, bytes out; (2) a metric that is not in the list is not rendered, and
every metric of the list always is, with its help and type, also without samples; (3) no label names
a run, session, agent, call or account; (4) names follow Prometheus' customs: base units, `_total`
for counters; (5) whatever a label holds, a line stays a line.
Not here: the values (scrape.py), the page about them (docs/metrics.md, compared by a test).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

Values: TypeAlias = tuple[str, ...]
"""The values of a sample's labels, in the order of the metric's."""


class MetricKind(StrEnum):
    """What Prometheus may do with a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric's name, meaning and labels."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()


class Histogram:
    """How often a value fell into which bucket."""

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
        """One more value."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Each bucket's upper bound, and how many values were not above it."""
        so_far = 0
        for bound, count in zip((*self._bounds, math.inf), self.counts, strict=True):
            so_far += count
            yield number(bound), so_far


@dataclass(frozen=True, slots=True)
class Mean:
    """A sum and a count, from which a mean over any stretch of time can be had."""

    sum: float
    count: int


Value: TypeAlias = float | Histogram | Mean
Samples: TypeAlias = Mapping[Values, Value]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its values of now."""

    metric: Metric
    samples: Samples = field(default_factory=dict)


def render(families: Iterable[Family]) -> bytes:
    """The page that Prometheus is given."""
    lines: list[str] = []
    for family in families:
        metric = family.metric
        lines.append(f"# HELP {metric.name} {_help(metric.help)}")
        lines.append(f"# TYPE {metric.name} {metric.kind.value}")
        for values, value in family.samples.items():
            lines.extend(_sample(metric, values, value))
    return ("\n".join(lines) + "\n").encode()


def number(value: float) -> str:
    """A number as Prometheus writes it."""
    if value == math.inf:
        return "+Inf"
    if value == -math.inf:
        return "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def _sample(metric: Metric, values: Values, value: Value) -> Iterator[str]:
    pairs = [f'{n}="{_label(v)}"' for n, v in zip(metric.labels, values, strict=True)]
    if isinstance(value, Histogram):
        for bound, count in value.cumulative():
            labels = _labels([*pairs, f'le="{bound}"'])
            yield f"{metric.name}_bucket{labels} {count}"
    if isinstance(value, Histogram | Mean):
        yield f"{metric.name}_sum{_labels(pairs)} {number(value.sum)}"
        yield f"{metric.name}_count{_labels(pairs)} {value.count}"
    else:
        yield f"{metric.name}{_labels(pairs)} {number(value)}"


def _labels(pairs: list[str]) -> str:
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


BUILD_INFO = Metric("jackline_build_info", MetricKind.GAUGE, "Always 1; the version.", ("version",))
START_TIME = Metric(
    "jackline_start_time_seconds", MetricKind.GAUGE, "When the service started, since the epoch."
)

LANE_STATE = Metric(
    "jackline_lane_state",
    MetricKind.GAUGE,
    "How many accounts have this lane in this state.",
    ("lane", "state"),
)
LANE_PAUSED = Metric("jackline_lane_paused", MetricKind.GAUGE, "1 while closed by hand.", ("lane",))
LANE_IN_FLIGHT = Metric(
    "jackline_lane_in_flight", MetricKind.GAUGE, "Attempts under way on the lane.", ("lane",)
)
LANE_WINDOW = Metric(
    "jackline_lane_window", MetricKind.GAUGE, "How many attempts the lane takes at once.", ("lane",)
)
LANE_WAITING = Metric(
    "jackline_lane_waiting", MetricKind.GAUGE, "Calls that wait for the lane.", ("lane",)
)
LANE_UNTIL = Metric(
    "jackline_lane_until_seconds",
    MetricKind.GAUGE,
    "When a closed lane is tried again or resets, since the epoch; absent while not known.",
    ("lane",),
)
LIMIT_LEFT = Metric(
    "jackline_limit_left_ratio",
    MetricKind.GAUGE,
    "The share left of a per-minute limit, of the account that has least.",
    ("lane", "limit"),
)

CALLS = Metric(
    "jackline_calls_total",
    MetricKind.COUNTER,
    "Calls that have ended, by how.",
    ("lane", "outcome"),
)
CALLS_HELD = Metric(
    "jackline_calls_held_and_delivered_total",
    MetricKind.COUNTER,
    "Calls that waited for a second or more and were answered.",
)
CALLS_JOINED = Metric(
    "jackline_calls_joined_total",
    MetricKind.COUNTER,
    "Requests that were asked again while they waited, and joined to the first.",
)
CALL_HELD = Metric(
    "jackline_call_held_seconds",
    MetricKind.HISTOGRAM,
    "How long calls waited to be sent.",
    ("lane",),
)
CALL_TOOK = Metric(
    "jackline_call_seconds",
    MetricKind.HISTOGRAM,
    "How long calls took altogether, waiting included.",
    ("lane",),
)
CALLS_WAITING = Metric("jackline_calls_waiting", MetricKind.GAUGE, "Calls that wait now.")
CALLS_IN_FLIGHT = Metric(
    "jackline_calls_in_flight", MetricKind.GAUGE, "Calls that are under way now."
)
CONNECTIONS = Metric("jackline_connections", MetricKind.GAUGE, "Open connections of clients.")
FAILED_ATTEMPTS = Metric(
    "jackline_failed_attempts_total",
    MetricKind.COUNTER,
    "Attempts that failed, by the kind of failure; most of their calls went on.",
    ("lane", "kind"),
)
STREAM_CUTS = Metric(
    "jackline_stream_cuts_total",
    MetricKind.COUNTER,
    "Answers of an upstream that had begun and broke off.",
    ("lane",),
)

TOKENS = Metric(
    "jackline_tokens_total",
    MetricKind.COUNTER,
    "Tokens of answered calls, and those that broken attempts wasted.",
    ("lane", "kind"),
)
SPEND = Metric(
    "jackline_spend_usd_total",
    MetricKind.COUNTER,
    "Dollars at list prices, of calls whose model's price is known.",
    ("lane",),
)
UNPRICED = Metric(
    "jackline_unpriced_tokens_total",
    MetricKind.COUNTER,
    "Tokens of models whose price is not known.",
    ("lane",),
)

WINDOW_USED = Metric(
    "jackline_window_used_ratio",
    MetricKind.GAUGE,
    "The used share of a subscription's window, of the account that used most.",
    ("window",),
)
WINDOW_RESETS = Metric(
    "jackline_window_reset_time_seconds",
    MetricKind.GAUGE,
    "When that window refills, since the epoch.",
    ("window",),
)
WINDOW_ENDS = Metric(
    "jackline_window_forecast_end_time_seconds",
    MetricKind.GAUGE,
    "When it will be used up at the present pace, since the epoch; absent if it refills first.",
    ("window",),
)

AGENTS = Metric(
    "jackline_agents", MetricKind.GAUGE, "Agents heard of lately, by what they do.", ("state",)
)
RUNS = Metric(
    "jackline_runs", MetricKind.GAUGE, "Runs of flows that are kept, by state.", ("state",)
)
RUNS_NEED_YOU = Metric(
    "jackline_runs_need_you",
    MetricKind.GAUGE,
    "Parked runs that wait for a person, not for a time.",
)

OVERHEAD = Metric(
    "jackline_gateway_overhead_seconds",
    MetricKind.SUMMARY,
    "Computing time of the event loop, over the calls that have ended.",
)
LOOP_DELAY = Metric(
    "jackline_loop_delay_seconds",
    MetricKind.HISTOGRAM,
    "How much later than due the event loop woke, sampled all the time.",
)
JOURNAL_COMMIT = Metric(
    "jackline_journal_commit_seconds", MetricKind.HISTOGRAM, "How long commits of the journal took."
)
JOURNAL_OK = Metric("jackline_journal_ok", MetricKind.GAUGE, "1 while records are being kept.")
JOURNAL_LOST = Metric(
    "jackline_journal_lost_records_total", MetricKind.COUNTER, "Records that will never be kept."
)
JOURNAL_WAITING = Metric(
    "jackline_journal_waiting_records", MetricKind.GAUGE, "Records that wait for the disk."
)
MEMORY = Metric(
    "process_resident_memory_bytes",
    MetricKind.GAUGE,
    "Memory of the service, where that can be told.",
)
CPU = Metric("process_cpu_seconds_total", MetricKind.COUNTER, "Computing time of the service.")

METRICS: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
"""All of them, in the order above."""
