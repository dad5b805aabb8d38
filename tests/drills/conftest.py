"""Keep long drills apart: they run with `-m soak`, and two of them in CI."""

from __future__ import annotations

import os

import pytest

# Three minutes each, mostly waiting; the others take up to a quarter of an hour.
_ALSO_IN_CI = ("throttle-storm", "power_cut")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "soak" in config.getoption("-m"):
        return
    in_ci = bool(os.environ.get("CI"))
    apart = [
        item
        for item in items
        if item.get_closest_marker("soak")
        and not (in_ci and any(name in item.name for name in _ALSO_IN_CI))
    ]
    if apart:
        config.hook.pytest_deselected(items=apart)
        items[:] = [item for item in items if item not in apart]
