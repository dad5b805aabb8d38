"""List every metric that `/metrics` tells, with its meaning and its labels.

Laws: (1) what is not in this list is not rendered, and what is in it is always rendered; (2) no
label names a run, session, agent, call or account; (3) names follow Prometheus' customs: base
units, `_total` for counters.
Not here: the values (scrape.py), the page about them (docs/metrics.md, compared by a test).
"""

from __future__ import annotations

from jackline.telemetry.exposition import Kind, Metric

BUILD_INFO = Metric("jackline_build_info", Kind.GAUGE, "Always 1; the version.", ("version",))
START_TIME = Metric(
    "jackline_start_time_seconds", Kind.GAUGE, "When the service started, since the epoch."
)

LANE_STATE = Metric(
    "jackline_lane_state",
    Kind.GAUGE,
    "How many accounts have this lane in this state.",
    ("lane", "state"),
)
LANE_PAUSED = Metric("jackline_lane_paused", Kind.GAUGE, "1 while closed by hand.", ("lane",))
LANE_IN_FLIGHT = Metric(
    "jackline_lane_in_flight", Kind.GAUGE, "Attempts under way on the lane.", ("lane",)
)
LANE_WINDOW = Metric(
    "jackline_lane_window", Kind.GAUGE, "How many attempts the lane takes at once.", ("lane",)
)
LANE_WAITING = Metric(
    "jackline_lane_waiting", Kind.GAUGE, "Calls that wait for the lane.", ("lane",)
)
LANE_UNTIL = Metric(
    "jackline_lane_until_seconds",
    Kind.GAUGE,
    "When a closed lane is tried again or resets, since the epoch; absent while not known.",
    ("lane",),
)
LIMIT_LEFT = Metric(
    "jackline_limit_left_ratio",
    Kind.GAUGE,
    "The share left of a per-minute limit, of the account that has least.",
    ("lane", "limit"),
)

CALLS = Metric(
    "jackline_calls_total", Kind.COUNTER, "Calls that have ended, by how.", ("lane", "outcome")
)
CALLS_HELD = Metric(
    "jackline_calls_held_and_delivered_total",
    Kind.COUNTER,
    "Calls that waited for a second or more and were answered.",
)
CALLS_JOINED = Metric(
    "jackline_calls_joined_total",
    Kind.COUNTER,
    "Requests that were asked again while they waited, and joined to the first.",
)
CALL_HELD = Metric(
    "jackline_call_held_seconds", Kind.HISTOGRAM, "How long calls waited to be sent.", ("lane",)
)
CALL_TOOK = Metric(
    "jackline_call_seconds",
    Kind.HISTOGRAM,
    "How long calls took altogether, waiting included.",
    ("lane",),
)
CALLS_WAITING = Metric("jackline_calls_waiting", Kind.GAUGE, "Calls that wait now.")
CALLS_IN_FLIGHT = Metric("jackline_calls_in_flight", Kind.GAUGE, "Calls that are under way now.")
CONNECTIONS = Metric("jackline_connections", Kind.GAUGE, "Open connections of clients.")
FAILED_ATTEMPTS = Metric(
    "jackline_failed_attempts_total",
    Kind.COUNTER,
    "Attempts that failed, by the kind of failure; most of their calls went on.",
    ("lane", "kind"),
)
STREAM_CUTS = Metric(
    "jackline_stream_cuts_total",
    Kind.COUNTER,
    "Answers of an upstream that had begun and broke off.",
    ("lane",),
)

TOKENS = Metric(
    "jackline_tokens_total",
    Kind.COUNTER,
    "Tokens of answered calls, and those that broken attempts wasted.",
    ("lane", "kind"),
)
SPEND = Metric(
    "jackline_spend_usd_total",
    Kind.COUNTER,
    "Dollars at list prices, of calls whose model's price is known.",
    ("lane",),
)
UNPRICED = Metric(
    "jackline_unpriced_tokens_total",
    Kind.COUNTER,
    "Tokens of models whose price is not known.",
    ("lane",),
)

WINDOW_USED = Metric(
    "jackline_window_used_ratio",
    Kind.GAUGE,
    "The used share of a subscription's window, of the account that used most.",
    ("window",),
)
WINDOW_RESETS = Metric(
    "jackline_window_reset_time_seconds",
    Kind.GAUGE,
    "When that window refills, since the epoch.",
    ("window",),
)
WINDOW_ENDS = Metric(
    "jackline_window_forecast_end_time_seconds",
    Kind.GAUGE,
    "When it will be used up at the present pace, since the epoch; absent if it refills first.",
    ("window",),
)

AGENTS = Metric(
    "jackline_agents", Kind.GAUGE, "Agents heard of lately, by what they do.", ("state",)
)
RUNS = Metric("jackline_runs", Kind.GAUGE, "Runs of flows that are kept, by state.", ("state",))
RUNS_NEED_YOU = Metric(
    "jackline_runs_need_you", Kind.GAUGE, "Parked runs that wait for a person, not for a time."
)

OVERHEAD = Metric(
    "jackline_gateway_overhead_seconds",
    Kind.SUMMARY,
    "Computing time of the event loop, over the calls that have ended.",
)
LOOP_DELAY = Metric(
    "jackline_loop_delay_seconds",
    Kind.HISTOGRAM,
    "How much later than due the event loop woke, sampled all the time.",
)
JOURNAL_COMMIT = Metric(
    "jackline_journal_commit_seconds", Kind.HISTOGRAM, "How long commits of the journal took."
)
JOURNAL_OK = Metric("jackline_journal_ok", Kind.GAUGE, "1 while records are being kept.")
JOURNAL_LOST = Metric(
    "jackline_journal_lost_records_total", Kind.COUNTER, "Records that will never be kept."
)
JOURNAL_WAITING = Metric(
    "jackline_journal_waiting_records", Kind.GAUGE, "Records that wait for the disk."
)
MEMORY = Metric(
    "process_resident_memory_bytes", Kind.GAUGE, "Memory of the service, where that can be told."
)
CPU = Metric("process_cpu_seconds_total", Kind.COUNTER, "Computing time of the service.")

METRICS: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
"""All of them, in the order above."""
