"""Do in a thread, once for all who wait, what a vendor's library can only do while blocking.

Laws: (1) one fetch at a time, however many ask; (2) whoever stops waiting does not stop it for the
others; (3) nobody waits longer than the given time.
Not here: what is fetched (aws_credentials.py, vertex.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from jackline.errors import UsageError

_LONGEST_SECONDS = 30.0


class Fetching:
    """One thing that has to be fetched now and then."""

    def __init__(self, fetch: Callable[[], None], seconds: float = _LONGEST_SECONDS) -> None:
        self._fetch = fetch
        self._seconds = seconds
        self._under_way: asyncio.Future[None] | None = None

    async def once(self) -> None:
        """Return when it is there; what the fetch raises, or TimeoutError, which is an OSError."""
        loop = asyncio.get_running_loop()
        running = self._under_way
        if running is None or running.done() or running.get_loop() is not loop:
            running = loop.run_in_executor(None, self._fetch)
            # Whoever waited for it may be gone by then; that is no error to report.
            running.add_done_callback(lambda word: word.cancelled() or word.exception())
            self._under_way = running
        async with asyncio.timeout(self._seconds):
            await asyncio.shield(running)


def missing(what: str, extra: str) -> UsageError:
    """A vendor's library is not there."""
    return UsageError(
        f"{what} needs a library that is not installed.",
        next=f"Run: pip install 'jackline[{extra}]'",
    )
