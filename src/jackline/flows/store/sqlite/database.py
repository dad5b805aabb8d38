"""One SQLite store as event loops use it: a thread that reads and a thread that writes.

Rules: (1) a write returns after the commit that contains it; (2) writes are made in the order of
their calls, many in one transaction; (3) a refused or impossible write costs no other one; (4) a
write is made even if its caller was cancelled, and every caller gets an answer; (5) the reader
never writes, and sees every write that had returned before; (6) the time of a lease is that of the
call, so that waiting for the disk makes no lease longer; (7) a store in memory has no threads: each
call is done before it returns.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from jackline.clock import SystemClock
from jackline.errors import InternalError, JacklineError, JournalError, LeaseLostError
from jackline.flows.store.run_store import LOCK_SECONDS, Claim
from jackline.flows.store.sqlite.row_checks import MalformedError
from jackline.flows.store.sqlite.store_file import Patience, StoreFile, connect
from jackline.journal.sqlite_file import LOCKED, Connect, cause_of

D = TypeVar("D", bound="Database")
T = TypeVar("T")
P = ParamSpec("P")

# One commit stays short enough for other processes that wait for the lock.
_TOGETHER = 1000
_TOGETHER_BYTES = 8 * 1024 * 1024
# How often a disk that is full or fails is tried again.
_BETWEEN_TRIES = 1.0
# A number beyond 64 bits, or text that is no Unicode: SQLite accepts neither.
_UNSTORABLE = (OverflowError, UnicodeEncodeError)
_LONG_FIELDS = ("value", "outcome", "data")


@dataclass(slots=True)
class Transaction:
    """An open transaction, and what it has read of who owns which run."""

    connection: sqlite3.Connection
    now: float = 0.0
    """When the write was called that is made now."""
    _owners: dict[str, tuple[str, int]] = field(default_factory=dict)

    def must_own(self, claim: Claim, run_id: str = "") -> None:
        """LeaseLostError unless this claim is the latest one of its run, and of `run_id` if given.

        Nobody else can change that while the transaction is open, so it is looked up once.
        """
        if run_id not in ("", claim.run_id):
            raise InternalError(
                f"A record of run {run_id} was written by the owner of {claim.run_id}."
            )
        found = self._owners.get(claim.run_id)
        if found is None:
            found = self.connection.execute(
                "SELECT owner, epoch FROM runs WHERE run_id = ?", (claim.run_id,)
            ).fetchone()
            if found is None:
                raise LeaseLostError(
                    f"Run {claim.run_id} is no longer in the store.",
                    hint="See `jackline ls` for all runs.",
                )
            self._owners[claim.run_id] = found
        if found != (claim.owner, claim.epoch):
            who = f"carried by {found[0]}" if found[0] else "carried by nobody"
            raise LeaseLostError(
                f"Run {claim.run_id} is {who} now; this process writes nothing more to it.",
                hint=f"Follow it with `jackline show {claim.run_id}`.",
            )

    def owner_changed(self, run_id: str) -> None:
        """Look the owner up again: this transaction has changed it."""
        self._owners.pop(run_id, None)


def writes(
    method: Callable[Concatenate[D, Transaction, P], T],
) -> Callable[Concatenate[D, P], Coroutine[Any, Any, T]]:
    """The method, made in the writing thread within a transaction."""

    @wraps(method)
    async def call(store: D, /, *args: P.args, **kwargs: P.kwargs) -> T:
        size = sum(len(getattr(one, name, b"") or b"") for one in args for name in _LONG_FIELDS)
        return await store.write(lambda open_: method(store, open_, *args, **kwargs), size)

    return call


def reads(
    method: Callable[Concatenate[D, sqlite3.Connection, P], T],
) -> Callable[Concatenate[D, P], Coroutine[Any, Any, T]]:
    """The method, made in the reading thread; it must fetch its rows before it returns."""

    @wraps(method)
    async def call(store: D, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store.read(lambda connection: method(store, connection, *args, **kwargs))

    return call


@dataclass(slots=True)
class _Write:
    work: Callable[[Transaction], Any]
    size: int
    now: float
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    result: Any = None
    error: Exception | None = None

    def make(self, transaction: Transaction) -> None:
        self.error, transaction.now = None, self.now
        try:
            self.result = self.work(transaction)
        except JacklineError as refusal:
            # A refusal comes before the first change, so that there is nothing to take back.
            self.error = refusal

    def answer(self) -> None:
        if self.future.done():
            return  # cancelled by its caller
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class Database:
    """The store at `path` (None: in memory), which is made when it is first needed; `close` it.

    Any number of these, in any number of processes, may use one file. `wall` is the time in
    seconds since the epoch; another program's lock is waited for `lock_seconds`, and `patience`
    altogether, as is a disk that is full or reports errors.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        wall: Callable[[], float] = SystemClock.wall,
        connect: Connect = connect,
        lock_seconds: float = LOCK_SECONDS,
        patience: float = 0.0,
    ) -> None:
        self.path = path
        self.wall = wall
        self._written = StoreFile(path, connect, lock_seconds)
        self._read = self._written if path is None else StoreFile(path, connect, lock_seconds)
        # Each its own: readers get through where writers do not.
        self._write_patience, self._read_patience = (
            Patience(path, patience, min(lock_seconds, _BETWEEN_TRIES)) for _ in range(2)
        )
        self._write_thread = ThreadPoolExecutor(1, thread_name_prefix="jackline-flows-write")
        self._read_thread = ThreadPoolExecutor(1, thread_name_prefix="jackline-flows-read")
        self._lock = threading.Lock()
        self._waiting: deque[_Write] = deque()
        self._busy = False
        self._closed = False

    async def read(self, look: Callable[[sqlite3.Connection], T]) -> T:
        """What `look` finds."""
        self._must_be_open()
        return await self._in_thread(self._read_thread, partial(self._look, look))

    def write(self, work: Callable[[Transaction], T], size: int = 0) -> asyncio.Future[T]:
        """What `work` returns, once it is durable; `size` is roughly how many bytes it writes."""
        loop = asyncio.get_running_loop()
        write = _Write(work, size, self.wall(), loop, loop.create_future())
        with self._lock:
            self._must_be_open()
            if self.path is None:
                self._make([write])
                write.answer()
                return write.future
            self._waiting.append(write)
            if not self._busy:
                self._busy = True
                self._write_thread.submit(self._write_waiting)
        return write.future

    async def write_apart(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns, done after all earlier writes, outside a transaction."""

        def do() -> T:
            try:
                return work(self._written.opened())
            except (sqlite3.Error, OSError) as error:
                raise self._explained(error) from error

        return await self._in_thread(self._write_thread, do)

    def on_wait(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Have `listener` called with the reason when a wait begins; returns the undo."""
        both = (self._write_patience.listeners, self._read_patience.listeners)
        for listeners in both:
            listeners.append(listener)

        def undo() -> None:
            for listeners in both:
                listeners.remove(listener)

        return undo

    def hurry(self) -> None:
        """Wait for no lock and no disk beyond one try from now on."""
        self._write_patience.end()
        self._read_patience.end()

    async def close(self) -> None:
        """Finish writing and close the file."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for thread, file in ((self._write_thread, self._written), (self._read_thread, self._read)):
            await self._in_thread(thread, file.close)
            thread.shutdown(wait=False)

    def _must_be_open(self) -> None:
        if self._closed:
            raise JournalError(
                "The store of runs was closed by this process already.",
                hint="Keep the store open until the last run has ended.",
            )

    async def _in_thread(self, thread: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        if self.path is None:
            with self._lock:
                return work()
        return await asyncio.get_running_loop().run_in_executor(thread, work)

    def _look(self, look: Callable[[sqlite3.Connection], T]) -> T:
        while True:
            began = SystemClock().monotonic()
            try:
                found = look(self._read.opened())
            except (sqlite3.Error, OSError) as error:
                self._read.reopen()
                if not self._read_patience.lasts(error, began):
                    raise self._read.unusable(error) from error
            except MalformedError as error:
                raise self._read.unreadable() from error
            else:
                self._read_patience.got_through()
                return found

    def _write_waiting(self) -> None:
        while True:
            batch: list[_Write] = []
            size = 0
            with self._lock:
                while self._waiting and len(batch) < _TOGETHER and size < _TOGETHER_BYTES:
                    batch.append(self._waiting.popleft())
                    size += batch[-1].size
                self._busy = bool(batch)
            if not batch:
                return
            self._make(batch)
            for loop in {write.loop for write in batch}:
                try:
                    mine = [write for write in batch if write.loop is loop]
                    loop.call_soon_threadsafe(_answer, mine)
                except RuntimeError:
                    # The loop is closed: its callers are gone, and their writes are made.
                    continue

    def _make(self, batch: Sequence[_Write]) -> None:
        """Make these writes; afterwards each has its result or its error."""
        while True:
            began = SystemClock().monotonic()
            try:
                self._commit(batch)
            except Exception as error:  # noqa: BLE001 -- handed to the callers, which would hang
                if self._write_patience.lasts(error, began):
                    continue
                locked = cause_of(error) == LOCKED if isinstance(error, sqlite3.Error) else False
                if len(batch) == 1 or locked or isinstance(error, JournalError):
                    for write in batch:
                        write.error = self._explained(error)
                    return
                # Each alone, so that the guilty one is found and the others are saved.
                for write in batch:
                    self._make([write])
                return
            self._write_patience.got_through()
            return

    def _commit(self, batch: Sequence[_Write]) -> None:
        connection = self._written.opened()
        connection.execute("BEGIN IMMEDIATE")
        try:
            transaction = Transaction(connection)
            for write in batch:
                write.make(transaction)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        self._written.must_be_there()

    def _explained(self, error: Exception) -> Exception:
        if isinstance(error, sqlite3.Error | OSError):
            self._written.reopen()
            return self._written.unusable(error)
        if isinstance(error, MalformedError):
            return self._written.unreadable()
        if isinstance(error, _UNSTORABLE):
            return JournalError(
                f"A record cannot be saved: {type(error).__name__}.",
                hint="Look for text that is no Unicode, or for numbers beyond 64 bits.",
            )
        return error


def _answer(writes: Sequence[_Write]) -> None:
    for write in writes:
        write.answer()
