"""End a piece of an agent's work when its time is up.

Rules: (1) what was running when the time was up is cancelled, and has ended before the limit is
raised; (2) a result that came first counts. What a limit is and how time is measured is decided by
whoever gives it (flows/time_limits.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from jackline.agents.ports import TimeLimit

T = TypeVar("T")


async def within(limit: TimeLimit | None, work: Awaitable[T]) -> T:
    """The result of `work`; the limit's StopAgentError when that is reached first."""
    if limit is None:
        return await work
    job = asyncio.ensure_future(work)
    limiting = asyncio.ensure_future(limit.reached())
    try:
        await asyncio.wait([job, limiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        is_up = limiting.done()
        limiting.cancel()
        if not job.done():
            job.cancel()
            await asyncio.wait([job])
    if job.cancelled() and is_up:
        raise limiting.result()
    return job.result()
