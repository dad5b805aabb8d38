"""Settings that every test shares.

Rules: (1) no test depends on wall-clock speed; (2) CI draws the same examples each time, so that a
red run can be repeated; (3) a run that wrote a planted secret anywhere has failed; (4) the home of
whoever runs the tests is neither read nor written.
"""

from __future__ import annotations

import os

from hypothesis import settings

from tests.leak_guard import pytest_sessionfinish
from tests.own_home import settle

__all__ = ["pytest_sessionfinish"]

pytest_plugins = ["tests.costs", "tests.order", "tests.time_limit"]

settle()

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")
