"""Carry waiting records to the disk in a thread of its own, through whatever befalls the disk.

Laws: (1) nothing that the disk or SQLite does gets out of this thread, except as words; (2) what
failed is tried again by itself, ever more rarely, and at once when someone asks for a flush; (3) a
record is committed once; (4) every gap is told, in `status` and in the journal's own notes.
Not here: the words (trouble.py), the transaction (store.py), forgetting (retention.py).
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from jackline.clock import BelievedTime, SystemClock
from jackline.errors import JournalError
from jackline.events import Event, ServiceNoted
from jackline.journal.commit_times import CommitTimes
from jackline.journal.files import put_aside
from jackline.journal.records import LANE_MEMORY, NOTES, Table
from jackline.journal.retention import DAY
from jackline.journal.settings import JournalSettings
from jackline.journal.store import Batch, Connect, Store
from jackline.journal.trouble import Stumble, cause_of, clock_time, counted, is_damage
from jackline.journal.waiting import Waiting

_monotonic = SystemClock().monotonic
_TOO_MANY = "more came at once than were written"
_UNSTORABLE = "they hold values that cannot be stored"


@dataclass(slots=True)
class Ask:
    """Someone wants to know when all that waits is kept."""

    done: threading.Event = field(default_factory=threading.Event)
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why nothing can be written, since when, and how many had been lost before it."""

    cause: str
    since: float
    lost_before: int


class Writer:
    """The thread's work and what others may see of it."""

    def __init__(
        self,
        path: Path,
        waiting: Waiting,
        settings: JournalSettings,
        wall: Callable[[], float],
        elapsed: Callable[[], float],
        connect: Connect,
    ) -> None:
        self.trouble: Trouble | None = None
        self.notice = ""
        # Records that SQLite cannot take, or that could not be written before the end.
        self.given_up = 0
        # When records were last found lost, and why; None while none are.
        self.last_loss: tuple[float, str] | None = None
        # Taken out of the queues and not yet committed.
        self.held: dict[Table, list[Event]] = {}
        self.tried_once = threading.Event()
        self.times = CommitTimes()
        self._path = path
        self._waiting = waiting
        self._settings = settings
        self._wall = wall
        self._elapsed = elapsed
        self._believed: BelievedTime | None = None
        self._connect = connect
        self._store: Store | None = None
        self._asked: deque[Ask] = deque()
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

    def ask(self) -> Ask:
        """Have everything that waits now written at once."""
        ask = Ask()
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

    def _opened(self) -> Store:
        if self._store is not None and self._store.is_gone():
            self._let_go()
            self._began_anew("the journal file was taken away")
        elif self._store is not None and self._store.has_lost_log():
            self._store.rescue()
            self._let_go()
        if self._store is None:
            self._store = Store(self._path, self._settings, self._connect)
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

    def _stumbled(self, error: Stumble, *, may_put_aside: bool) -> bool:
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
            self.trouble = Trouble(cause, self._wall(), self.lost)
        elif self.trouble.cause != cause:
            self.trouble = Trouble(cause, self.trouble.since, self.trouble.lost_before)
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
