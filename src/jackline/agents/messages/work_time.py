"""Measure the time that an agent works, and end it when that is used up.

Laws: (1) waiting for leave to call is not work: a parked run times nobody out; (2) what was running
when the time was up is cancelled, and has ended before that is told.
Not here: budgets of a whole run (flows/).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from jackline.clock import Clock

T = TypeVar("T")


class TimeUpError(Exception):
    """The agent has worked for as long as it may."""


class WorkTime:
    """How long an agent may still work; None: for ever."""

    def __init__(self, clock: Clock, limit: float | None) -> None:
        self._clock = clock
        self._left = limit

    async def of(self, work: Coroutine[object, object, T]) -> T:
        """The result of `work`; TimeUpError when the time is up first."""
        if self._left is None:
            return await work
        began = self._clock.monotonic()
        job = asyncio.ensure_future(work)
        timer = asyncio.ensure_future(self._clock.sleep(max(0.0, self._left)))
        try:
            await asyncio.wait([job, timer], return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            if not job.done():
                job.cancel()
                await asyncio.wait([job])
            self._left -= self._clock.monotonic() - began
        if job.cancelled() and timer.done() and not timer.cancelled():
            raise TimeUpError
        return job.result()
