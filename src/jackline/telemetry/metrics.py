"""The metrics of `/metrics`: types, the text that Prometheus reads (0.0.4), and the full list.

Rules: (1) pure: samples in, bytes out; (2) a metric that is not in the list is not rendered, and
every metric of the list always is, with its help and type, also without samples; (3) no label names
a run, session, agent, call or account; (4) names follow Prometheus' customs: base units, `_total`
for counters; (5) whatever a label holds, a line stays a line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from jackline.control.observatory import Histogram

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

Values: TypeAlias = tuple[str, ...]
"""The values of a sample's labels, in the order of the metric's."""


class MetricKind(StrEnum):
    """Prometheus' type of a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"


GAUGE, COUNTER, HISTOGRAM, SUMMARY = MetricKind


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric's name, meaning and labels."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()

    def sample(self, values: Values, value: Value) -> Iterator[str]:
        """The lines of one sample."""
        pairs = []
        for name, label in zip(self.labels, values, strict=True):
            escaped = label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            pairs.append(f'{name}="{escaped}"')
        labels = f"{{{','.join(pairs)}}}" if pairs else ""
        if isinstance(value, Histogram):
            for bound, count in value.cumulative():
                bucket = ",".join([*pairs, f'le="{number(bound)}"'])
                yield f"{self.name}_bucket{{{bucket}}} {count}"
        if isinstance(value, Histogram | Mean):
            yield f"{self.name}_sum{labels} {number(value.sum)}"
            yield f"{self.name}_count{labels} {value.count}"
        else:
            yield f"{self.name}{labels} {number(value)}"


@dataclass(frozen=True, slots=True)
class Mean:
    """A sum and a count, from which a mean over any time can be computed."""

    sum: float
    count: int


Value: TypeAlias = float | Histogram | Mean
Samples: TypeAlias = Mapping[Values, Value]


def render(metrics: Mapping[Metric, Samples]) -> bytes:
    """The text that Prometheus reads, in the order of the mapping."""
    lines: list[str] = []
    for metric, samples in metrics.items():
        text = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
        lines += [f"# HELP {metric.name} {text}", f"# TYPE {metric.name} {metric.kind.value}"]
        for values, value in samples.items():
            lines.extend(metric.sample(values, value))
    return ("\n".join(lines) + "\n").encode()


def number(value: float) -> str:
    """A number as Prometheus writes it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


BUILD_INFO = Metric("jackline_build_info", GAUGE, "Always 1; the version.", ("version",))
START_TIME = Metric(
    "jackline_start_time_seconds", GAUGE, "When the service started, since the epoch."
)

LANE_STATE = Metric(
    "jackline_lane_state",
    GAUGE,
    "How many accounts have this lane in this state.",
    ("lane", "state"),
)
LANE_PAUSED = Metric("jackline_lane_paused", GAUGE, "1 while paused by an operator.", ("lane",))
LANE_IN_FLIGHT = Metric(
    "jackline_lane_in_flight", GAUGE, "Attempts under way on the lane.", ("lane",)
)
LANE_WINDOW = Metric(
    "jackline_lane_window", GAUGE, "How many attempts the lane takes at once.", ("lane",)
)
LANE_WAITING = Metric("jackline_lane_waiting", GAUGE, "Calls that wait for the lane.", ("lane",))
LANE_UNTIL = Metric(
    "jackline_lane_until_seconds",
    GAUGE,
    "When a closed lane is tried again or resets, since the epoch; absent while not known.",
    ("lane",),
)
LIMIT_LEFT = Metric(
    "jackline_limit_left_ratio",
    GAUGE,
    "The share left of a per-minute limit, of the account that has least.",
    ("lane", "limit"),
)

CALLS = Metric(
    "jackline_calls_total", COUNTER, "Calls that have ended, by how.", ("lane", "outcome")
)
CALLS_HELD = Metric(
    "jackline_calls_held_and_delivered_total",
    COUNTER,
    "Calls that waited for a second or more and were answered.",
)
CALLS_JOINED = Metric(
    "jackline_calls_joined_total",
    COUNTER,
    "Requests that a client sent again while they waited, joined to the first.",
)
CALL_HELD = Metric(
    "jackline_call_held_seconds", HISTOGRAM, "How long calls waited to be sent.", ("lane",)
)
CALL_TOOK = Metric(
    "jackline_call_seconds",
    HISTOGRAM,
    "How long calls took altogether, waiting included.",
    ("lane",),
)
CALLS_WAITING = Metric("jackline_calls_waiting", GAUGE, "Calls that wait now.")
CALLS_IN_FLIGHT = Metric("jackline_calls_in_flight", GAUGE, "Calls that are under way now.")
CONNECTIONS = Metric("jackline_connections", GAUGE, "Open connections of clients.")
FAILED_ATTEMPTS = Metric(
    "jackline_failed_attempts_total",
    COUNTER,
    "Attempts that failed, by the kind of failure; most of their calls went on.",
    ("lane", "kind"),
)
STREAM_CUTS = Metric(
    "jackline_stream_cuts_total",
    COUNTER,
    "Answers of an upstream that had begun and broke off.",
    ("lane",),
)

TOKENS = Metric(
    "jackline_tokens_total",
    COUNTER,
    "Tokens of answered calls, and those that broken attempts wasted.",
    ("lane", "kind"),
)
SPEND = Metric(
    "jackline_spend_usd_total",
    COUNTER,
    "Dollars at list prices, of calls whose model's price is known.",
    ("lane",),
)
UNPRICED = Metric(
    "jackline_unpriced_tokens_total",
    COUNTER,
    "Tokens of models whose price is not known.",
    ("lane",),
)

WINDOW_USED = Metric(
    "jackline_window_used_ratio",
    GAUGE,
    "The used share of a subscription's window, of the account that used most.",
    ("window",),
)
WINDOW_RESETS = Metric(
    "jackline_window_reset_time_seconds",
    GAUGE,
    "When that window refills, since the epoch.",
    ("window",),
)
WINDOW_ENDS = Metric(
    "jackline_window_forecast_end_time_seconds",
    GAUGE,
    "When it will be used up at the present pace, since the epoch; absent if it refills first.",
    ("window",),
)

AGENTS = Metric("jackline_agents", GAUGE, "Agents that made a call lately, by state.", ("state",))
RUNS = Metric("jackline_runs", GAUGE, "Runs of flows in the store, by state.", ("state",))
RUNS_NEED_YOU = Metric(
    "jackline_runs_need_you", GAUGE, "Runs that need a person, by the rules of `jackline status`."
)

OVERHEAD = Metric(
    "jackline_gateway_overhead_seconds",
    SUMMARY,
    "Computing time of the event loop, over the calls that have ended.",
)
LOOP_DELAY = Metric(
    "jackline_loop_delay_seconds",
    HISTOGRAM,
    "How much later than due the event loop woke, sampled all the time.",
)
JOURNAL_COMMIT = Metric(
    "jackline_journal_commit_seconds", HISTOGRAM, "How long commits of the journal took."
)
JOURNAL_OK = Metric("jackline_journal_ok", GAUGE, "1 while records are saved.")
JOURNAL_LOST = Metric(
    "jackline_journal_lost_records_total", COUNTER, "Records that could not be saved."
)
JOURNAL_WAITING = Metric(
    "jackline_journal_waiting_records", GAUGE, "Records that wait for the disk."
)
MEMORY = Metric(
    "process_resident_memory_bytes", GAUGE, "Memory of the service, where that is known."
)
CPU = Metric("process_cpu_seconds_total", COUNTER, "Computing time of the service.")

METRICS: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
"""All of them, in the order above."""
