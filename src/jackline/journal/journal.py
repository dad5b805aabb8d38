"""Record what the gateway did, in a thread of its own, without ever delaying a call.

Rules: (1) `announce` costs an append: it never waits, never raises and never touches the disk;
(2) memory is bounded: of a kind of record that is full the oldest is dropped, and counted; (3) no
error of the disk or of SQLite leaves the thread: `health` reports it; (4) a failed write is tried
again, less and less often, and at once for a flush; (5) a record is committed once; (6) every gap
is reported, in `status` and in the journal's own notes; (7) only the fields of events are
recorded.
Not here: the transaction and retention (store.py), reading (reader.py).
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from jackline.clock import BelievedTime, SystemClock
from jackline.errors import JournalError
from jackline.events import Announce, Event, ServiceNoted
from jackline.journal.sqlite_file import (
    JournalHealth,
    StorageFault,
    cause_of,
    clock_time,
    counted,
    gap_clause,
    is_damage,
    problem_clause,
    put_aside,
)
from jackline.journal.store import (
    DAY,
    LANE_MEMORY,
    NOTES,
    TABLES,
    Batch,
    Connect,
    EventTable,
    JournalSettings,
    JournalStore,
    connect,
)

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


class CommitTimes:
    """How many commits took how long: `counts` by the bounds above, the last without one."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def took(self, seconds: float) -> None:
        """One more commit."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds


class RecordQueue:
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

    def take(self, limit: int) -> dict[EventTable, list[Event]]:
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


_monotonic = SystemClock().monotonic
_TOO_MANY = "more came at once than were written"
_UNSTORABLE = "they hold values that cannot be stored"


@dataclass(slots=True)
class FlushRequest:
    """Someone wants to know when all that waits is kept."""

    done: threading.Event = field(default_factory=threading.Event)
    kept: bool = False


@dataclass(frozen=True, slots=True)
class WriteTrouble:
    """Why nothing can be written, since when, and how many had been lost before it."""

    cause: str
    since: float
    lost_before: int


class JournalWriter:
    """The thread's work and what others may see of it."""

    def __init__(
        self,
        path: Path,
        waiting: RecordQueue,
        settings: JournalSettings,
        wall: Callable[[], float],
        elapsed: Callable[[], float],
        connect: Connect,
    ) -> None:
        self.trouble: WriteTrouble | None = None
        self.notice = ""
        # Records that SQLite cannot take, or that could not be written before the end.
        self.given_up = 0
        # When records were last found lost, and why; None while none are.
        self.last_loss: tuple[float, str] | None = None
        # Taken out of the queues and not yet committed.
        self.held: dict[EventTable, list[Event]] = {}
        self.tried_once = threading.Event()
        self.times = CommitTimes()
        self._path = path
        self._waiting = waiting
        self._settings = settings
        self._wall = wall
        self._elapsed = elapsed
        self._believed: BelievedTime | None = None
        self._connect = connect
        self._store: JournalStore | None = None
        self._asked: deque[FlushRequest] = deque()
        self._stopping = False
        self._stumbles = 0
        self._told_lost = 0
        self._notes: list[Event] = []
        self._memory: list[Event] = []
        self._lost_file = False
        self._swept_at: float | None = None
        self._more_to_sweep = False
        self._wrote = False

    @property
    def lost(self) -> int:
        """How many records will never be kept."""
        return self._waiting.dropped + self.given_up

    def ask(self) -> FlushRequest:
        """Have everything that waits now written at once."""
        ask = FlushRequest()
        self._asked.append(ask)
        self._waiting.ring()
        return ask

    def stop(self) -> None:
        """Write what waits and let go of the file."""
        self._stopping = True
        self._waiting.ring()

    def run(self) -> None:
        """Write until told to stop."""
        self._turn()
        self.tried_once.set()
        while not self._stopping:
            self._rest()
            self._answer(self._turn)
        self._answer(self._turn)
        self._let_go()
        self.given_up += sum(map(len, self.held.values()))
        self.held = {}

    def _rest(self) -> None:
        waiting, settings = self._waiting, self._settings
        if self.trouble is not None:
            pause = settings.retry_first * 2.0 ** min(self._stumbles - 1, 32)
            waiting.sleep_until_rung(min(pause, settings.retry_longest))
            return
        # While records keep coming nobody has to be woken: waking costs their sender more than all
        # the rest of an announcement.
        found_work = (
            self._wrote or self._more_to_sweep or waiting.sleep_until_put(settings.sweep_seconds)
        )
        if found_work and not self._stopping and not self._asked:
            waiting.sleep_until_rung(settings.flush_seconds)

    def _answer(self, turn: Callable[[], bool]) -> None:
        self._waiting.hush()
        # Taken before the turn: what is announced before a flush is then surely part of it.
        asked = [self._asked.popleft() for _ in range(len(self._asked))]
        kept = turn()
        for ask in asked:
            ask.kept = kept
            ask.done.set()

    def _turn(self) -> bool:
        for tries_left in (1, 0):
            try:
                self._write_waiting()
                self._sweep_if_due()
            except (sqlite3.Error, OSError, JournalError) as error:
                if not self._stumbled(error, may_put_aside=tries_left > 0):
                    return False
            else:
                self._recovered()
                return True
        return False

    def _write_waiting(self) -> None:
        self._wrote = False
        self._opened()
        limit = self._settings.commit_records
        # As many commits as what waits now needs, and no more: under load records come without end.
        for _ in range(self._waiting.longest() // limit + 1):
            self.held = self.held or self._waiting.take(limit)
            if not self.held:
                break
            self.given_up += self._commit(self.held)
            self._wrote = True
            self._memory = self.held.get(LANE_MEMORY, self._memory)
            self.held = {}
        if self._notes:
            self._commit({NOTES: self._notes})
            self._notes = []

    def _commit(self, batch: Batch) -> int:
        while True:
            store = self._opened()
            began = _monotonic()
            unkept = store.write(batch)
            self.times.took(_monotonic() - began)
            # Looked at afterwards: a file can be taken away at any moment before.
            if not store.is_gone():
                return unkept

    def _opened(self) -> JournalStore:
        if self._store is not None and self._store.is_gone():
            self._let_go()
            self._began_anew("the journal file was taken away")
        elif self._store is not None and self._store.has_lost_log():
            self._store.rescue()
            self._let_go()
        if self._store is None:
            self._store = JournalStore(self._path, self._settings, self._connect)
            if self._believed is None:
                # Before anything is written: what is kept tells when the clock was last right.
                self._believed = self._time_to_believe(self._store.newest())
            if self._lost_file and self._memory:
                # A new file does not know what the old one knew of the lanes.
                self._store.write({LANE_MEMORY: self._memory})
            self._lost_file = False
        return self._store

    def _sweep_if_due(self) -> None:
        now = self._elapsed()
        due = self._swept_at is None or now - self._swept_at >= self._settings.sweep_seconds
        if (due or self._more_to_sweep) and self._store is not None and self._believed is not None:
            self._swept_at = now
            # One that was set back is followed at once: that only keeps more.
            self._more_to_sweep = self._store.sweep(min(self._believed.now(), self._wall()))

    def _time_to_believe(self, newest: float | None) -> BelievedTime:
        """By what time records grow old; not at once by one at which all of them are too old."""
        all_old = newest is not None and self._wall() - newest > self._settings.keep_days * DAY
        return BelievedTime(self._wall, self._elapsed, newest if all_old else None)

    def _stumbled(self, error: StorageFault, *, may_put_aside: bool) -> bool:
        """Note what went wrong; whether trying again at once makes sense."""
        self._let_go()
        if may_put_aside and is_damage(error):
            try:
                aside = put_aside(self._path)
            except OSError as refused:
                error = refused
            else:
                self._began_anew(f"the journal was damaged and is kept as {aside.name}")
                return True
        self._stumbles += 1
        cause = cause_of(error)
        if self.trouble is None:
            self.trouble = WriteTrouble(cause, self._wall(), self.lost)
        elif self.trouble.cause != cause:
            self.trouble = WriteTrouble(cause, self.trouble.since, self.trouble.lost_before)
        return False

    def _recovered(self) -> None:
        self._stumbles = 0
        over, self.trouble = self.trouble, None
        new, self._told_lost = self.lost - self._told_lost, self.lost
        if not new:
            return
        until = clock_time(self._wall())
        if over is None:
            # The disk is well: more came at once than memory holds, or SQLite could not take them.
            self.last_loss = (self._wall(), _TOO_MANY if self._waiting.dropped else _UNSTORABLE)
            gap = f"before {until}"
        else:
            self.last_loss = (self._wall(), over.cause)
            gap = f"from {clock_time(over.since)} to {until}"
        self._note("records lost", f"{self.last_loss[1]}: {counted(new)} not kept {gap}")

    def _began_anew(self, why: str) -> None:
        self._lost_file = True
        self.notice = f"{why}; a new one was begun at {clock_time(self._wall())}"
        self._note("journal begun anew", self.notice)

    def _note(self, what: str, detail: str) -> None:
        self._notes.append(ServiceNoted(self._wall(), what, detail))

    def _let_go(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None


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
        self._waiting = RecordQueue(self._settings.waiting_records)
        # Not wrapped in a method of its own: every call of every client passes here.
        self.announce: Announce = self._waiting.put
        self._writer = JournalWriter(
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
        gap = gap_clause(lost, loss) if lost else ""
        if trouble is not None:
            problem = problem_clause(
                trouble.cause, lost - trouble.lost_before, waiting, trouble.since
            )
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
