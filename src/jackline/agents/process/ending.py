"""End a process and all that it started, in good order if it can, by force if it must.

Laws: (1) only a process that is known by its mark; (2) it may end by itself first, if the caller
has the patience; then it is asked to, and after a grace made to; (3) what it started ends with it,
also where that runs in a group of its own.
Not here: knowing processes again (marks.py), starting them (child.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress

from jackline.agents.process.marks import Mark, is_alive
from jackline.batches.strays import end_strays
from jackline.clock import Clock
from jackline.programs import system_program

GRACE_S = 5.0
_LOOK_EVERY_S = 0.05
_PATIENCE_S = 30.0


async def end(mark: Mark, clock: Clock, *, wait_first: float = 0.0, grace: float = GRACE_S) -> None:
    """When this returns, neither it nor what it started runs."""
    if not await _gone(mark, clock, wait_first):
        _ask(mark)
        if not await _gone(mark, clock, grace):
            _force(mark)
            await _gone(mark, clock, grace)
    # A program that ends in good order has ended its own by now; one that was killed has not.
    if mark.family:
        end_strays(mark.family)


async def _gone(mark: Mark, clock: Clock, within: float) -> bool:
    until = clock.monotonic() + within
    while is_alive(mark):
        if clock.monotonic() >= until:
            return False
        await clock.sleep(_LOOK_EVERY_S)
    return True


if sys.platform == "win32":

    def _ask(mark: Mark) -> None:
        """Nothing: a console program cannot be asked by another one. It is made to."""

    def _force(mark: Mark) -> None:
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(  # noqa: S603 -- a fixed program of the system, and a number
                [system_program("taskkill"), "/T", "/F", "/PID", str(mark.pid)],
                capture_output=True,
                timeout=_PATIENCE_S,
                check=False,
            )

else:

    def _ask(mark: Mark) -> None:
        _send(mark, signal.SIGTERM)

    def _force(mark: Mark) -> None:
        _send(mark, signal.SIGKILL)

    def _send(mark: Mark, number: signal.Signals) -> None:
        # Between looking and sending it may end: then there is nothing left to do.
        with suppress(ProcessLookupError, PermissionError):
            if os.getpgid(mark.pid) == mark.pid:
                os.killpg(mark.pid, number)
            else:
                os.kill(mark.pid, number)
