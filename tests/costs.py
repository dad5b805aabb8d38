"""Print what each test costs: seconds that passed, and seconds of processor time.

Rules: (1) set-up, call and clean-up count together, and so do the processes that a test has started
and waited for; (2) a test that waits shows as much time and little processor time; (3) the table is
for looking at, never a reason to fail. `TEST_COSTS=file.json` saves all of it.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import pytest

_SHOWN_FOLDERS = 12
_SHOWN_TESTS = 25
_MANY_TESTS = 1_000
_PROPERTY = "cost"


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one test, or of many."""

    wall: float = 0.0
    processor: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.wall + other.wall, self.processor + other.processor)


def _now() -> Cost:
    times = os.times()
    work = times.user + times.system + times.children_user + times.children_system
    return Cost(time.monotonic(), work)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Remember when the test began."""
    item.stash[_BEGAN] = _now()
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Hand the cost to the process that prints, with the report of the last phase."""
    if call.when == "teardown":
        began, now = item.stash[_BEGAN], _now()
        cost = Cost(now.wall - began.wall, now.processor - began.processor)
        item.user_properties.append((_PROPERTY, [cost.wall, cost.processor]))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect the costs of all workers."""
    for name, value in report.user_properties:
        if name == _PROPERTY and report.when == "teardown":
            wall, processor = cast("list[float]", value)
            _COSTS[report.nodeid] = Cost(wall, processor)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table where many tests ran."""
    saved = os.environ.get("TEST_COSTS")
    if saved:
        rows = {name: asdict(cost) for name, cost in _COSTS.items()}
        Path(saved).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    if saved or len(_COSTS) > _MANY_TESTS:
        terminalreporter.section("what the tests cost")
        for line in table(_COSTS):
            terminalreporter.write_line(line)


def table(costs: Mapping[str, Cost]) -> list[str]:
    """The sum, the dearest folders and the dearest tests."""
    folders: dict[str, Cost] = defaultdict(Cost)
    for name, cost in costs.items():
        folders["/".join(name.partition("::")[0].split("/")[:2])] += cost
    total = sum(costs.values(), Cost())
    lines = [f"all tests: {total.wall:.1f} s, processor {total.processor:.1f} s"]
    for most, rows in ((_SHOWN_FOLDERS, folders), (_SHOWN_TESTS, costs)):
        dearest = sorted(rows.items(), key=lambda row: -row[1].wall)[:most]
        lines += ["", f"{'seconds':>8} {'processor':>9}"]
        lines += [f"{cost.wall:8.1f} {cost.processor:9.1f}  {name}" for name, cost in dearest]
    return lines


_BEGAN = pytest.StashKey[Cost]()
_COSTS: dict[str, Cost] = {}
