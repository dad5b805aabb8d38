"""Answer `/metrics` on the service's port.

Laws: (1) reading is open to whoever passed the door; (2) what has to be read from a disk is read
off the event loop, and not more often than every few seconds.
Not here: what is told (scrape.py), the door (gateway/doors.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from jackline.clock import Clock
from jackline.control.face import Asked
from jackline.telemetry.exposition import CONTENT_TYPE, render
from jackline.telemetry.scrape import RunsTold, Seen, families

PATH = b"/metrics"
_RUNS_EVERY = 5.0


class MetricsFace:
    """The page for Prometheus; `serve` must run for as long as the service does."""

    def __init__(
        self,
        look: Callable[[RunsTold | None], Seen],
        count_runs: Callable[[], RunsTold | None],
        clock: Clock,
    ) -> None:
        self._look = look
        self._count_runs = count_runs
        self._clock = clock
        self._runs: RunsTold | None = None
        self._runs_at = float("-inf")
        self._answers: set[asyncio.Task[None]] = set()

    def knows(self, asked: Asked) -> bool:
        """Whether this asks for the metrics."""
        return asked.path == PATH

    def answer(self, asked: Asked) -> None:
        """Tell them."""
        if asked.method not in (b"GET", b"HEAD"):
            asked.respond(405, [(b"content-type", b"text/plain")], b"metrics are only read\n")
            return
        if self._clock.monotonic() - self._runs_at < _RUNS_EVERY:
            self._tell(asked)
            return
        task = asyncio.get_running_loop().create_task(self._after_counting(asked))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def serve(self) -> None:
        """See to it that nobody is left waiting when the service ends."""
        try:
            await asyncio.Event().wait()
        finally:
            for task in self._answers:
                task.cancel()
            await asyncio.gather(*self._answers, return_exceptions=True)

    async def _after_counting(self, asked: Asked) -> None:
        try:
            self._runs = await asyncio.to_thread(self._count_runs)
            self._runs_at = self._clock.monotonic()
        finally:
            # A count that fails is logged by the loop; the other metrics are told all the same.
            self._tell(asked)

    def _tell(self, asked: Asked) -> None:
        page = render(families(self._look(self._runs)))
        asked.respond(200, [(b"content-type", CONTENT_TYPE), (b"cache-control", b"no-store")], page)
