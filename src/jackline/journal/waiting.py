"""Hold records between the moment they are announced and their commit.

Laws: (1) `put` never blocks, never raises and never touches the disk; (2) memory is bounded: of a
kind that is full the oldest gives way, and is counted; (3) the writer is woken only from sleep, so
at most once for each commit.
Not here: the thread that empties it (writer.py).
"""

from __future__ import annotations

import queue
from collections import deque

from jackline.events import Event
from jackline.journal.records import TABLES, Table


class Waiting:
    """One bounded queue for each kind of record, and the bell that wakes the writer.

    `append` and `popleft` are atomic, so there is no lock. `put` is for one thread at a time, as
    only then is `dropped` exact.
    """

    def __init__(self, bound: int) -> None:
        self.dropped = 0
        self._bound = bound
        # Of what lanes know only the latest counts; the one before is replaced, not lost.
        self._queues: dict[type[Event], deque[Event]] = {
            table.kind: deque(maxlen=1 if table.only_latest else bound) for table in TABLES
        }
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._asleep = False

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def put(self, event: Event) -> None:
        """Take the event if it is of a kind that is recorded."""
        line = self._queues.get(type(event))
        if line is None:
            return
        if len(line) == self._bound:
            self.dropped += 1
        line.append(event)
        if self._asleep:
            self._asleep = False
            self._bell.put(None)

    def take(self, limit: int) -> dict[Table, list[Event]]:
        """The oldest records, at most so many of each kind; they are the caller's now."""
        taken = {}
        for table in TABLES:
            line = self._queues.get(table.kind)
            if line and (count := min(len(line), limit)):
                taken[table] = [line.popleft() for _ in range(count)]
        return taken

    def longest(self) -> int:
        """How many wait of the kind of which most wait."""
        return max(map(len, self._queues.values()), default=0)

    def shut(self) -> None:
        """Take nothing any more; what still waits is given up, and counted."""
        self.dropped += len(self)
        self._queues = {}

    def ring(self) -> None:
        """Wake the writer now."""
        self._bell.put(None)

    def hush(self) -> None:
        """Forget that the bell rang: its reason is about to be looked at."""
        while self.sleep_until_rung(0):
            pass

    def sleep_until_put(self, timeout: float) -> bool:
        """Sleep until something is put or the bell rings; whether it was for that."""
        self._asleep = True
        # Looked at after saying "asleep": what is put from now on rings, what was put is seen.
        woken = len(self) > 0 or self.sleep_until_rung(timeout)
        self._asleep = False
        return woken

    def sleep_until_rung(self, timeout: float) -> bool:
        """Sleep though records come, unless the bell rings; whether it did."""
        try:
            self._bell.get(timeout=timeout)
        except queue.Empty:
            return False
        return True
