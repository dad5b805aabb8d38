"""The text that Prometheus reads."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.control.observatory import Histogram
from jackline.telemetry.metrics import Mean, Metric, MetricKind, number, render
from tests.telemetry.promtool import promtool

GAUGE = Metric("jackline_things", MetricKind.GAUGE, "Things there are.", ("name",))
LINE = re.compile(r'jackline_things\{name="((?:[^"\\\n]|\\["\\n])*)"\} 1')
BOUNDS = (0.1, 1.0, 10.0)


def test_a_metric_has_help_and_type_also_without_samples() -> None:
    shown = render({GAUGE: {}}).decode()
    assert shown == "# HELP jackline_things Things there are.\n# TYPE jackline_things gauge\n"


@given(st.text())
def test_whatever_a_label_holds_the_line_stays_a_line_and_the_value_can_be_read_back(
    value: str,
) -> None:
    lines = render({GAUGE: {(value,): 1.0}}).decode("utf-8", "surrogatepass").split("\n")
    assert len(lines) == 4
    match = LINE.fullmatch(lines[2])
    assert match is not None
    back = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], match[1])
    assert back == value


@given(st.lists(st.floats(min_value=0, max_value=1e6), max_size=50))
def test_buckets_hold_everything_that_is_not_above_them(values: list[float]) -> None:
    histogram = Histogram(BOUNDS)
    for value in values:
        histogram.observe(value)
    shown = dict(histogram.cumulative())
    for bound in BOUNDS:
        assert shown[bound] == sum(value <= bound for value in values)
    assert shown[math.inf] == len(values) == histogram.count
    assert histogram.sum == pytest.approx(sum(values))


@given(st.floats())
def test_a_number_is_read_back_as_it_was(value: float) -> None:
    back = float(number(value))
    assert back == value or (math.isnan(back) and math.isnan(value))


def test_promtool_reads_every_kind() -> None:
    histogram = Histogram(BOUNDS)
    histogram.observe(0.5)
    took = Metric("jackline_took_seconds", MetricKind.HISTOGRAM, "How long.", ("name",))
    mean = Metric("jackline_cost_seconds", MetricKind.SUMMARY, "How much.")
    page = render(
        {
            GAUGE: {('a "b" \\ \n c',): 1.5},
            took: {("x",): histogram},
            mean: {(): Mean(1.5, 3)},
        }
    )
    promtool("check", "metrics", stdin=page)
