"""Tests that must not run side by side are in one group, and every listed file exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.order import _GROUPS, group_of

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("prefix", _GROUPS)
def test_every_listed_file_or_folder_exists(prefix: str) -> None:
    assert (ROOT / prefix).exists()


def test_drills_are_one_group_wherever_they_are() -> None:
    drills = ("tests/drills/test_drills.py::x", "tests/real_clients/test_drills.py::y[1]")
    assert {group_of(each) for each in drills} == {"drills"}


def test_modules_of_real_clients_run_side_by_side_and_other_tests_anywhere() -> None:
    first, second = "tests/real_clients/test_hooks.py", "tests/real_clients/test_ends.py"
    assert group_of(f"{first}::x") == first
    assert group_of(f"{second}::x") == second
    assert group_of("tests/lanes/test_lane.py::x") is None


def test_this_run_uses_the_groups(request: pytest.FixtureRequest) -> None:
    """A later version of xdist must not pass them over in silence."""
    plugin = request.config.pluginmanager.get_plugin("tests.order")
    assert hasattr(plugin, "pytest_xdist_make_scheduler")
