"""Tests that must not run side by side are in one group, and every listed file exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.order import _GROUPS, _LONG, group_of, place_of

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("prefix", [*_GROUPS, *_LONG])
def test_every_listed_file_folder_or_test_exists(prefix: str) -> None:
    path, _, test = prefix.partition("::")
    assert (ROOT / path).exists()
    assert not test or f"def {test}(" in (ROOT / path).read_text()


def test_hurried_drills_are_two_groups_and_what_is_not_hurried_is_in_neither() -> None:
    ours = ("tests/drills/test_drills.py::x", "tests/drills/test_evaluation.py::y[1]")
    theirs = (
        "tests/real_clients/test_drills.py::y[1]",
        "tests/dashboard/test_drills_watched.py::x",
    )
    assert {group_of(each) for each in ours} == {"drills"}
    assert {group_of(each) for each in theirs} == {"drills of real clients"}
    real = "tests/drills/test_drills.py::test_in_real_time_with_a_gateway_of_its_own[some]"
    assert group_of(real) == "real time"


def test_what_takes_long_comes_first() -> None:
    real = "tests/drills/test_flow_drills.py::test_fifty_times_power_cut"
    tests = [real, "tests/drills/x::y", "tests/cli/test_promise_wake.py::y", "tests/cli/z.py::y"]
    mixed = tests[::-1]
    assert sorted(mixed, key=place_of) == tests


def test_modules_of_real_clients_run_side_by_side_and_other_tests_anywhere() -> None:
    first, second = "tests/real_clients/test_hooks.py", "tests/real_clients/test_ends.py"
    assert group_of(f"{first}::x") == first
    assert group_of(f"{second}::x") == second
    assert group_of("tests/lanes/test_lane.py::x") is None


def test_this_run_uses_the_groups(request: pytest.FixtureRequest) -> None:
    """A later version of xdist must not pass them over in silence."""
    plugin = request.config.pluginmanager.get_plugin("tests.order")
    assert hasattr(plugin, "pytest_xdist_make_scheduler")
