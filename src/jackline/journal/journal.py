"""Record what the gateway did, in a thread of its own, without ever delaying a call.

Rules: (1) `announce` costs an append: it never waits, never raises and never touches the disk;
(2) memory is bounded: of a kind of record that is full the oldest is dropped, and counted; (3) no
error of the disk or of SQLite leaves the thread: `health` reports it; (4) a failed write is
retried, less and less often, and at once for a flush; (5) a record is committed once; (6) every gap
is reported, in `status` and in the journal's own notes; (7) only the fields of events are
recorded.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from jackline.clock import BelievedTime, SystemClock
from jackline.errors import JournalError
from jackline.events import Announce, Event, ServiceNoted
from jackline.journal.sqlite_file import (
    Connect,
    StorageFault,
    cause_of,
    clock_time,
    connect,
    is_damage,
    rename_damaged,
)
from jackline.journal.store import (
    LANE_MEMORY,
    NOTES,
    TABLES,
    Batch,
    EventTable,
    JournalSettings,
    JournalStore,
)

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


class CommitTimes:
    """How many commits took how long: `counts` by `BOUNDS`, the last without a bound."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count one more commit."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds


class RecordQueue:
    """One bounded queue for each kind of record, and the signal that wakes the writer.

    `append` and `popleft` are atomic, so there is no lock. `put` is for one thread at a time, as
    only then is `dropped` exact.
    """

    def __init__(self, bound: int) -> None:
        self.dropped = 0
        self._bound = bound
        # Of the lanes' state only the latest counts; the one before is replaced, not lost.
        self._queues: dict[type[Event], deque[Event]] = {
            table.kind: deque(maxlen=1 if table.only_latest else bound) for table in TABLES
        }
        self._signal: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._asleep = False

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def put(self, event: Event) -> None:
        """Queue the event if it is of a kind that is recorded."""
        waiting = self._queues.get(type(event))
        if waiting is None:
            return
        if len(waiting) == self._bound:
            self.dropped += 1
        waiting.append(event)
        if self._asleep:
            self._asleep = False
            self._signal.put(None)

    def take(self, limit: int) -> dict[EventTable, list[Event]]:
        """Remove and return the oldest records, at most so many of each kind."""
        removed = {}
        for table in TABLES:
            waiting = self._queues.get(table.kind)
            if waiting and (count := min(len(waiting), limit)):
                removed[table] = [waiting.popleft() for _ in range(count)]
        return removed

    def longest(self) -> int:
        """The length of the longest queue."""
        return max(map(len, self._queues.values()), default=0)

    def shut(self) -> None:
        """Accept nothing any more; what still waits is dropped, and counted."""
        self.dropped += len(self)
        self._queues = {}

    def wake(self) -> None:
        """Wake the writer now."""
        self._signal.put(None)

    def clear_signals(self) -> None:
        """Forget earlier signals, because their reason is handled now."""
        while self.sleep_until_woken(0):
            pass

    def sleep_until_put(self, timeout: float) -> bool:
        """Sleep until something is put or `wake` is called; returns whether it was."""
        self._asleep = True
        # Checked after "asleep" is set: what is put from now on wakes, what was put is seen.
        woken = len(self) > 0 or self.sleep_until_woken(timeout)
        self._asleep = False
        return woken

    def sleep_until_woken(self, timeout: float) -> bool:
        """Sleep though records come, unless `wake` is called; returns whether it was."""
        try:
            self._signal.get(timeout=timeout)
        except queue.Empty:
            return False
        return True


_monotonic = SystemClock().monotonic
_TOO_MANY = "more came at once than were written"
_UNSTORABLE = "they have values that cannot be stored"


@dataclass(frozen=True, slots=True)
class WriteFailure:
    """Why nothing can be written, since when, and how many records were lost before it."""

    cause: str
    since: float
    lost_before: int


class JournalWriter:
    """The work of the thread, and its state for other threads."""

    def __init__(
        self,
        path: Path,
        waiting: RecordQueue,
        settings: JournalSettings,
        wall: Callable[[], float],
        elapsed: Callable[[], float],
        connect: Connect,
    ) -> None:
        self.failure: WriteFailure | None = None
        self.notice = ""
        # Records that SQLite cannot store, or that could not be written before the end.
        self.unsaved = 0
        # When a loss of records was last found, and why; None while none are lost.
        self.last_loss: tuple[float, str] | None = None
        # Removed from the queues and not yet committed.
        self.batch: dict[EventTable, list[Event]] = {}
        self.tried_once = threading.Event()
        self.times = CommitTimes()
        self._path = path
        self._waiting = waiting
        self._settings = settings
        self._wall = wall
        self._elapsed = elapsed
        self.believed: BelievedTime | None = None
        self._connect = connect
        self._store: JournalStore | None = None
        self._flushes: deque[Future[bool]] = deque()
        self._stopping = False
        self._failures = 0
        self._reported_lost = 0
        self._notes: list[Event] = []
        self._memory: list[Event] = []
        self._lost_file = False
        self._swept_at: float | None = None
        self._more_to_sweep = False
        self._wrote = False

    @property
    def lost(self) -> int:
        """How many records will never be saved."""
        return self._waiting.dropped + self.unsaved

    def flush(self) -> Future[bool]:
        """Have everything that is queued now written at once; gives whether it is saved."""
        request: Future[bool] = Future()
        self._flushes.append(request)
        self._waiting.wake()
        return request

    def stop(self) -> None:
        """Write what is queued and close the file."""
        self._stopping = True
        self._waiting.wake()

    def run(self) -> None:
        """Write until `stop` is called."""
        self._write_and_sweep()
        self.tried_once.set()
        while not self._stopping:
            self._rest()
            self._answer_flushes()
        self._answer_flushes()
        self._close_store()
        self.unsaved += sum(map(len, self.batch.values()))
        self.batch = {}

    def _rest(self) -> None:
        waiting, settings = self._waiting, self._settings
        if self.failure is not None:
            pause = settings.retry_first * 2.0 ** min(self._failures - 1, 32)
            waiting.sleep_until_woken(min(pause, settings.retry_longest))
            return
        # While records keep coming no signal is needed: it costs their sender more than the rest of
        # an announcement.
        found_work = (
            self._wrote or self._more_to_sweep or waiting.sleep_until_put(settings.sweep_seconds)
        )
        if found_work and not self._stopping and not self._flushes:
            waiting.sleep_until_woken(settings.flush_seconds)

    def _answer_flushes(self) -> None:
        self._waiting.clear_signals()
        # Removed before writing: what is announced before a flush is then surely part of it.
        requests = [self._flushes.popleft() for _ in range(len(self._flushes))]
        saved = self._write_and_sweep()
        for request in requests:
            request.set_result(saved)

    def _write_and_sweep(self) -> bool:
        for tries_left in (1, 0):
            try:
                self._write_waiting()
                now, every = self._elapsed(), self._settings.sweep_seconds
                due = self._swept_at is None or now - self._swept_at >= every
                if (due or self._more_to_sweep) and self._store and self.believed:
                    self._swept_at = now
                    # A clock that was set back is followed at once: that only keeps more records.
                    at = min(self.believed.now(), self._wall())
                    self._more_to_sweep = self._store.sweep(at)
            except (sqlite3.Error, OSError, JournalError) as error:
                if not self._failed(error, may_rename=tries_left > 0):
                    return False
            else:
                self._recovered()
                return True
        return False

    def _write_waiting(self) -> None:
        self._wrote = False
        self._opened()
        limit = self._settings.commit_records
        # As many commits as the records of this moment need: under load they come without end.
        for _ in range(self._waiting.longest() // limit + 1):
            self.batch = self.batch or self._waiting.take(limit)
            if not self.batch:
                break
            self.unsaved += self._commit(self.batch)
            self._wrote = True
            self._memory = self.batch.get(LANE_MEMORY, self._memory)
            self.batch = {}
        if self._notes:
            self._commit({NOTES: self._notes})
            self._notes = []

    def _commit(self, batch: Batch) -> int:
        while True:
            store = self._opened()
            began = _monotonic()
            unstored = store.write(batch)
            self.times.add(_monotonic() - began)
            # Checked afterwards: a file can be deleted at any moment before.
            if not store.is_gone():
                return unstored

    def _opened(self) -> JournalStore:
        if self._store is not None and self._store.is_gone():
            self._close_store()
            self._recreated("the journal file was deleted")
        elif self._store is not None and self._store.has_lost_log():
            self._store.rescue()
            self._close_store()
        if self._store is None:
            self._store = JournalStore(self._path, self._settings, self._connect)
            if self.believed is None:
                # Before anything is written: the newest record shows when the clock was last right.
                # A time at which all records are too old is not believed at once.
                newest, age = self._store.newest(), self._settings.keep
                all_old = newest is not None and self._wall() - newest > age
                last_right = newest if all_old else None
                self.believed = BelievedTime(self._wall, self._elapsed, last_right)
            if self._lost_file and self._memory:
                # A new file does not have the lanes' state of the old one.
                self._store.write({LANE_MEMORY: self._memory})
            self._lost_file = False
        return self._store

    def _failed(self, error: StorageFault, *, may_rename: bool) -> bool:
        """Record what went wrong; returns whether an immediate retry makes sense."""
        self._close_store()
        if may_rename and is_damage(error):
            try:
                renamed = rename_damaged(self._path)
            except OSError as refused:
                error = refused
            else:
                self._recreated(f"the journal was damaged and renamed to {renamed.name}")
                return True
        self._failures += 1
        cause = cause_of(error)
        if self.failure is None:
            self.failure = WriteFailure(cause, self._wall(), self.lost)
        elif self.failure.cause != cause:
            self.failure = WriteFailure(cause, self.failure.since, self.failure.lost_before)
        return False

    def _recovered(self) -> None:
        self._failures = 0
        over, self.failure = self.failure, None
        new, self._reported_lost = self.lost - self._reported_lost, self.lost
        if not new:
            return
        until = clock_time(self._wall())
        if over is None:
            # The disk works: more came at once than fit into memory, or SQLite cannot store them.
            self.last_loss = (self._wall(), _TOO_MANY if self._waiting.dropped else _UNSTORABLE)
            gap = f"before {until}"
        else:
            self.last_loss = (self._wall(), over.cause)
            gap = f"from {clock_time(over.since)} to {until}"
        self._note("records lost", f"{self.last_loss[1]}: {_counted(new)} not saved {gap}")

    def _recreated(self, why: str) -> None:
        self._lost_file = True
        self.notice = f"{why}; a new one was created at {clock_time(self._wall())}"
        self._note("journal recreated", self.notice)

    def _note(self, what: str, detail: str) -> None:
        self._notes.append(ServiceNoted(self._wall(), what, detail))

    def _close_store(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None


def _counted(records: int) -> str:
    return "1 record" if records == 1 else f"{records} records"


@dataclass(frozen=True, slots=True)
class JournalHealth:
    """The state of recording; `problem` is empty while all is well.

    `dropped` counts since the process started, `waiting` is what is in memory now, `since` is when
    the present problem began. `notice` is what happened to the file earlier, if anything did; `gap`
    is what is missing in it for good.
    """

    ok: bool
    problem: str
    dropped: int
    waiting: int
    since: float | None
    notice: str = ""
    gap: str = ""


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
        self._wall = wall
        self._settings = settings or JournalSettings()
        self._waiting = RecordQueue(self._settings.waiting_records)
        # No method of its own, because every call of every client passes here.
        self.announce: Announce = self._waiting.put
        clock = SystemClock()
        # Real seconds, also those of the machine's sleep, whatever the wall clock shows.
        elapsed = elapsed or (lambda: clock.monotonic() + clock.slept())
        self._writer = JournalWriter(path, self._waiting, self._settings, wall, elapsed, connect)
        self._thread = threading.Thread(
            target=self._writer.run, name="jackline-journal", daemon=True
        )
        self._closed = False

    def open(self) -> None:
        """Begin to write; `health` reports a file that cannot be opened, which is retried."""
        self._thread.start()
        self._writer.tried_once.wait(self._settings.close_seconds)

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until all announced events are saved; False if that fails or takes too long."""
        if not self._thread.is_alive():
            return not len(self._waiting)
        try:
            return self._writer.flush().result(timeout)
        except TimeoutError:
            return False

    def close(self) -> None:
        """Write what is queued, if the disk works, and stop."""
        if self._closed:
            return
        self._closed = True
        self._writer.stop()
        if self._thread.is_alive():
            self._thread.join(self._settings.close_seconds)
        self._waiting.shut()

    @property
    def health(self) -> JournalHealth:
        """The state of recording, in numbers and sentences."""
        writer, failure = self._writer, self._writer.failure
        lost, loss = writer.lost, writer.last_loss
        waiting = len(self._waiting) + sum(map(len, list(writer.batch.values())))
        gap = f"{_counted(lost)} not saved" if lost else ""
        if lost and loss is not None:
            gap += f", the last at {clock_time(loss[0])} ({loss[1]})"
        if failure is None:
            running = self._closed or self._thread.is_alive()
            problem = "" if running else "its writer is not running"
            return JournalHealth(running, problem, lost, waiting, None, writer.notice, gap)
        start, new = clock_time(failure.since), lost - failure.lost_before
        if new:
            problem = f"{failure.cause}: {_counted(new)} not saved since {start}"
            problem += f", {waiting} wait in memory" if waiting else ""
        else:
            problem = f"{failure.cause}: {_counted(waiting)} waiting in memory since {start}"
        return JournalHealth(False, problem, lost, waiting, failure.since, writer.notice, gap)

    @property
    def believed_at(self) -> float:
        """The time that old records are judged by: not yet that of a clock that was just set."""
        believed = self._writer.believed
        return self._wall() if believed is None else min(believed.now(), self._wall())

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
