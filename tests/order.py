"""Which tests run one after the other in one worker, and which come first.

With pytest 9.2, xdist's `xdist_group` marks have no effect, without a word: so groups are listed
here, by file.

Rules: (1) whatever hurries time (drills) is in one of two groups, that of the built-in client and
that of real ones: more of them at once would slow each other down; (2) tests of one module that
drive real clients or a browser stay together and share what they start; (3) groups come first, the
longest before all, then what takes long alone, so that no worker works alone at the end; (4) any
other test runs anywhere; (5) there are more workers than processors, since most tests wait: what
hurries time gets a processor before all others.
"""

from __future__ import annotations

import os
import sys

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

_HURRIED = ("drills", "drills of real clients")
_OTHERS = 5  # how nice they are
# The first that a test's id begins with decides, and groups run in this order, by how long each
# takes; None: each of its modules is a group.
_GROUPS: dict[str, str | None] = {
    # In real time, and nearly all of that is waiting.
    "tests/drills/test_drills.py::test_in_real_time_with_a_gateway_of_its_own": "real time",
    "tests/drills/test_flow_drills.py::test_fifty_times_power_cut": "real time",
    "tests/drills/": "drills",
    "tests/real_clients/test_drills.py": "drills of real clients",
    "tests/real_clients/test_sdk_drills.py": "drills of real clients",
    "tests/real_clients/test_codex.py": "drills of real clients",
    "tests/dashboard/test_drills_watched.py": "drills of real clients",
    "tests/cli/test_timers_for_real.py": "timers",
    "tests/real_clients/test_kills.py": None,
    "tests/dashboard/": "browser",
    "tests/real_clients/test_hooks.py": None,
    "tests/real_clients/test_mcp_patience.py": None,
    "tests/real_clients/": None,
    "tests/examples/": "examples",
    "tests/simulator/test_cloud_sdks.py": None,
    "tests/simulator/test_openai_sdk.py": None,
    "tests/providers/test_against_anthropic_sdk.py": None,
}


# Single tests of these take half a minute and more.
_LONG = (
    "tests/attacks/test_edited_flow.py",
    "tests/cli/test_promise_wake.py",
    "tests/cli/test_wake_and_brakes.py",
    "tests/cli/test_same_totals.py",
)


def group_of(nodeid: str) -> str | None:
    """The group that a test belongs to; None for one that may run anywhere."""
    for prefix, group in _GROUPS.items():
        if nodeid.startswith(prefix):
            return group or nodeid.partition("::")[0]
    return None


def place_of(nodeid: str) -> int:
    """How early a test comes: the lower, the earlier."""
    beginnings = (*_GROUPS, *_LONG)
    found = (place for place, each in enumerate(beginnings) if nodeid.startswith(each))
    return next(found, len(beginnings))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put groups and what takes long first, in every worker alike."""
    items.sort(key=lambda item: place_of(item.nodeid))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Lower the priority of this worker, and of all that it starts, but for hurried time.

    Only root may raise it again.
    """
    if sys.platform != "win32" and "PYTEST_XDIST_WORKER" in os.environ and os.geteuid() == 0:
        priority = 0 if group_of(item.nodeid) in _HURRIED else _OTHERS
        os.setpriority(os.PRIO_PROCESS, 0, priority)


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a group to one worker, and any other test to whoever is free."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid) or nodeid


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> GroupScheduling:
    """Use these groups, in the order of the tests."""
    config.option.loadscopereorder = False
    return GroupScheduling(config, log)
