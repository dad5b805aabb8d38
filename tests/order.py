"""Begin with the tests that take longest, so that no worker works alone at the end.

Rules: (1) tests of one module that drive real clients stay together and share what they start; (2)
modules of real clients, then groups, then all others, each in their usual order.
"""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group and sort what was collected, in every worker alike."""
    for item in items:
        if item.get_closest_marker("real_client"):
            item.add_marker(pytest.mark.xdist_group(f"real_client {item.path.stem}"))
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    if item.get_closest_marker("real_client"):
        return 0
    return 1 if item.get_closest_marker("xdist_group") else 2
