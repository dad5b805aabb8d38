"""End a test that hangs, with the stacks of all threads: else nobody learns which one it was.

Rules: (1) the limit is far above what any test takes on a slow machine; (2) only where the system
has alarms.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

SECONDS = 1200


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Set an alarm for as long as the test runs."""
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        return (yield)

    def over(_signal: int, _frame: FrameType | None) -> None:
        faulthandler.dump_traceback(sys.__stderr__ or sys.stderr)
        raise TimeoutError(f"{item.nodeid} has not ended within {SECONDS} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(SECONDS)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
