"""One Chromium for all tests of a module, and a day that does not end during a test."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.dashboard.browser import chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def young_day(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A zone in which it is three in the morning: what takes hours there is done on one day.

    Sums are those of today, and moments on other days are shown with their day.
    """
    if os.name == "nt":
        yield  # it has one zone for all processes
        return
    ahead = (3 - time.gmtime().tm_hour + 12) % 24 - 12
    # By their names these zones are behind, not ahead.
    monkeypatch.setenv("TZ", f"Etc/GMT{-ahead:+d}")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
