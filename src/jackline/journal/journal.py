"""Record what the gateway did, without ever standing in its way.

Laws: (1) `announce` costs an append, never waits and never raises; (2) no trouble with the disk
reaches the caller: `health` tells it; (3) nothing is recorded but the fields of events.
Not here: the thread (writer.py), reading (reading.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from jackline.clock import SystemClock
from jackline.events import Announce
from jackline.journal.commit_times import CommitTimes
from jackline.journal.settings import JournalSettings
from jackline.journal.store import Connect, connect
from jackline.journal.trouble import JournalHealth, missing, told
from jackline.journal.waiting import Waiting
from jackline.journal.writer import Writer


def _elapsed() -> Callable[[], float]:
    """Real seconds, in sleep too, whatever the wall clock shows."""
    clock = SystemClock()
    return lambda: clock.monotonic() + clock.slept()


class Journal:
    """The durable record of a running gateway; `with` opens and closes it.

    `announce` is for one thread. `open`, `flush` and `close` wait for the disk, within limits: a
    running event loop calls them in another thread.
    """

    def __init__(
        self,
        path: Path,
        *,
        settings: JournalSettings | None = None,
        wall: Callable[[], float] = SystemClock.wall,
        elapsed: Callable[[], float] | None = None,
        connect: Connect = connect,
    ) -> None:
        self.path = path
        self._settings = settings or JournalSettings()
        self._waiting = Waiting(self._settings.waiting_records)
        # Not wrapped in a method of its own: every call of every client passes here.
        self.announce: Announce = self._waiting.put
        self._writer = Writer(
            path, self._waiting, self._settings, wall, elapsed or _elapsed(), connect
        )
        self._thread = threading.Thread(
            target=self._writer.run, name="jackline-journal", daemon=True
        )
        self._closed = False

    def open(self) -> None:
        """Begin to write; a file that cannot be opened is told by `health`, and tried again."""
        self._thread.start()
        self._writer.tried_once.wait(self._settings.close_seconds)

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until all that was announced is kept; False if it could not be, or not in time."""
        if not self._thread.is_alive():
            return not len(self._waiting)
        ask = self._writer.ask()
        return ask.done.wait(timeout) and ask.kept

    def close(self) -> None:
        """Write what waits, if the disk lets us, and stop."""
        if self._closed:
            return
        self._closed = True
        self._writer.stop()
        if self._thread.is_alive():
            self._thread.join(self._settings.close_seconds)
        self._waiting.shut()

    @property
    def health(self) -> JournalHealth:
        """How recording is going, in numbers and words."""
        writer, trouble = self._writer, self._writer.trouble
        lost = writer.lost
        waiting = len(self._waiting) + sum(map(len, list(writer.held.values())))
        loss = writer.last_loss
        gap = missing(lost, loss) if lost else ""
        if trouble is not None:
            problem = told(trouble.cause, lost - trouble.lost_before, waiting, trouble.since)
            return JournalHealth(False, problem, lost, waiting, trouble.since, writer.notice, gap)
        running = self._closed or self._thread.is_alive()
        problem = "" if running else "its writer is not running"
        return JournalHealth(running, problem, lost, waiting, None, writer.notice, gap)

    @property
    def commit_times(self) -> CommitTimes:
        """How long commits took since the start."""
        return self._writer.times

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
