"""Settings that every test shares.

Laws: (1) no test depends on wall-clock speed; (2) CI draws the same examples each time, so that a
red run can be repeated; (3) a run that wrote a planted secret anywhere has failed; (4) the home of
whoever runs the tests is neither read nor written.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from tests.leak_guard import pytest_sessionfinish
from tests.own_home import settle

__all__ = ["pytest_sessionfinish"]

settle()

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.fixture(autouse=True, scope="session")
def own_state_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The installation's key of these tests lies in a folder of theirs, not in the user's."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state-home"))
