"""What is shipped for Prometheus and Grafana works, and speaks of metrics that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jackline.telemetry.metrics import METRICS, MetricKind
from tests.telemetry.promtool import promtool

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
GRAFANA = ROOT / "deploy" / "grafana" / "jackline.json"
DOCS = ROOT / "docs" / "metrics.md"
NAME = re.compile(r"\b(?:jackline|process)_[a-z_]+\b")
ENDINGS = {
    MetricKind.HISTOGRAM: ("_bucket", "_sum", "_count"),
    MetricKind.SUMMARY: ("_sum", "_count"),
}
SERIES = {m.name + end: m.name for m in METRICS for end in ENDINGS.get(m.kind, ("",))}


def expressions(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("expr"), str):
            yield node["expr"]
        for value in node.values():
            yield from expressions(value)
    elif isinstance(node, list):
        for value in node:
            yield from expressions(value)


def series_of(text: str) -> set[str]:
    return set(NAME.findall(text))


def test_the_dashboard_asks_for_every_metric_and_for_no_other() -> None:
    dashboard = json.loads(GRAFANA.read_text(encoding="utf-8"))
    asked = series_of(" ".join(expressions(dashboard)))
    assert asked <= set(SERIES)
    assert {SERIES[name] for name in asked} == {metric.name for metric in METRICS}


def test_panels_of_the_dashboard_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = json.loads(GRAFANA.read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_every_panel_says_what_it_shows() -> None:
    panels = json.loads(GRAFANA.read_text(encoding="utf-8"))["panels"]
    assert all(panel["title"] for panel in panels)
    assert all(panel["description"] for panel in panels if panel["type"] != "row")


def test_alerts_speak_of_metrics_that_exist() -> None:
    for name in ("jackline-alerts.yml", "jackline-alerts-test.yml"):
        assert series_of((PROMETHEUS / name).read_text(encoding="utf-8")) <= set(SERIES)


def test_alerts_hold_what_their_tests_say() -> None:
    promtool("check", "rules", "jackline-alerts.yml", cwd=PROMETHEUS)
    promtool("test", "rules", "jackline-alerts-test.yml", cwd=PROMETHEUS)


def test_every_alert_has_a_test_in_which_it_rises_and_one_in_which_it_does_not() -> None:
    rules = (PROMETHEUS / "jackline-alerts.yml").read_text(encoding="utf-8")
    tests = (PROMETHEUS / "jackline-alerts-test.yml").read_text(encoding="utf-8")
    names = re.findall(r"- alert: (\w+)", rules)
    assert names
    for name in names:
        assert f"alertname: {name}, exp_alerts: []" in tests
        assert re.search(rf"alertname: {name}\n\s+exp_alerts:\n\s+- exp_labels", tests), name


def test_the_scrape_job_is_one_that_prometheus_takes() -> None:
    promtool("check", "config", "prometheus.yml", cwd=PROMETHEUS)


def test_documented_metrics_are_those_that_are_told() -> None:
    rows = re.findall(
        r"^\| `([a-z_]+)` \| (gauge|counter|histogram|summary) \| (.*?) \| (.*) \|$",
        DOCS.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    told = [
        (m.name, m.kind.value, ", ".join(f"`{label}`" for label in m.labels) or "–", m.help)
        for m in METRICS
    ]
    assert rows == told
