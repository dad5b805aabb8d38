"""Which tests run one after the other in one worker, and which come first.

With pytest 9.2, xdist's `xdist_group` marks have no effect, without a word: so groups are listed
here, by file.

Rules: (1) whatever hurries time (drills) is one group: two of them at once slow each other down;
(2) tests of one module that drive real clients or a browser stay together and share what they
start; (3) groups come first, so that no worker works alone at the end; (4) any other test runs
anywhere; (5) there are more workers than processors, since most tests wait: what hurries time gets
a processor before all others.
"""

from __future__ import annotations

import os
import sys

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

_HURRIED = "drills"
_OTHERS = 5  # how nice they are
# The first that a file's path begins with decides; None: each of its modules is a group.
_GROUPS: dict[str, str | None] = {
    "tests/real_clients/test_drills.py": _HURRIED,
    "tests/real_clients/test_sdk_drills.py": _HURRIED,
    "tests/real_clients/test_codex.py": _HURRIED,
    "tests/dashboard/test_drills_watched.py": _HURRIED,
    "tests/drills/": _HURRIED,
    "tests/real_clients/": None,
    "tests/dashboard/": "browser",
    "tests/examples/": "examples",
    "tests/cli/test_timers_for_real.py": "timers",
    "tests/simulator/test_cloud_sdks.py": None,
    "tests/simulator/test_openai_sdk.py": None,
    "tests/providers/test_against_anthropic_sdk.py": None,
}


def group_of(nodeid: str) -> str | None:
    """The group that a test belongs to; None for one that may run anywhere."""
    path = nodeid.partition("::")[0]
    for prefix, group in _GROUPS.items():
        if path.startswith(prefix):
            return group or path
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put groups first, in every worker alike."""
    items.sort(key=lambda item: group_of(item.nodeid) is None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Lower the priority of this worker, and of all that it starts, but for hurried time.

    Only root may raise it again.
    """
    if sys.platform != "win32" and "PYTEST_XDIST_WORKER" in os.environ and os.geteuid() == 0:
        priority = 0 if group_of(item.nodeid) == _HURRIED else _OTHERS
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
