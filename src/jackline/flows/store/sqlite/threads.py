"""The reading and the writing thread of the store, so that no event loop waits for the disk.

Rules: (1) a write's future resolves after the commit that contains it; (2) writes are made in the
order in which they came, many in one transaction; (3) a refused or impossible write costs no other
one; (4) a write is made even if nobody waits for it any more, and every future is answered; (5) the
reader never writes, and sees every write that had returned before; rows are fetched before they are
returned.
Not here: what is read and written (flows/store/sqlite/runs.py, flows/store/sqlite/calls.py, …), the
faults of the file (store_file.py).
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from jackline.clock import SystemClock
from jackline.errors import JacklineError, JournalError
from jackline.flows.store import store_rules
from jackline.flows.store.run_store import Claim
from jackline.flows.store.sqlite.row_checks import MalformedError
from jackline.flows.store.sqlite.store_file import LockPatience, StoreFile, is_locked

T = TypeVar("T")


class StoreReader:
    """Takes questions from event loops and hands them to its thread."""

    def __init__(self, file: StoreFile, patience: LockPatience) -> None:
        self._file = file
        self._patience = patience
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="jackline-flows-read")
        self._closed = False

    async def read(self, look: Callable[[sqlite3.Connection], T]) -> T:
        """What `look` finds."""
        if self._closed:
            raise JournalError(
                "The file of runs was closed by this process already.",
                hint="Keep the engine open until the last run has ended.",
            )
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._look, look)

    async def close(self) -> None:
        """Let go of the file once what was asked is answered."""
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self._file.let_go)
        self._thread.shutdown(wait=False)

    def _look(self, look: Callable[[sqlite3.Connection], T]) -> T:
        while True:
            began = SystemClock().monotonic()
            try:
                found = look(self._file.opened())
            except (sqlite3.Error, OSError) as error:
                self._file.let_go()
                if not is_locked(error) or not self._patience.lasts(began):
                    raise self._file.unusable(error) from error
            except MalformedError as error:
                raise self._file.unreadable() from error
            else:
                self._patience.got_through()
                return found


# One commit stays short enough for other processes that wait for the lock.
_TOGETHER = 1000
_TOGETHER_BYTES = 8 * 1024 * 1024
# A number beyond 64 bits, or text that is no Unicode: SQLite's doors do not take them.
_UNSTORABLE = (OverflowError, UnicodeEncodeError)


@dataclass(slots=True)
class Transaction:
    """An open transaction, and what it has learnt of who owns which run."""

    connection: sqlite3.Connection
    _owners: dict[str, tuple[str, int]] = field(default_factory=dict)

    def must_own(self, claim: Claim) -> None:
        """LeaseLostError unless this claim is the latest one of its run.

        Nobody else can change that while the transaction is open, so it is looked up once.
        """
        found = self._owners.get(claim.run_id)
        if found is None:
            found = self.connection.execute(
                "SELECT owner, epoch FROM runs WHERE run_id = ?", (claim.run_id,)
            ).fetchone()
            if found is None:
                raise store_rules.lease_lost(claim, None)
            self._owners[claim.run_id] = found
        if found != (claim.owner, claim.epoch):
            raise store_rules.lease_lost(claim, found[0])

    def owner_changed(self, run_id: str) -> None:
        """Look it up again: this transaction has given the run to someone."""
        self._owners.pop(run_id, None)


Work: TypeAlias = Callable[[Transaction], T]


@dataclass(frozen=True, slots=True)
class _Waiting:
    work: Work[Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    size: int


@dataclass(frozen=True, slots=True)
class _Verdict:
    result: Any = None
    error: Exception | None = None


class StoreWriter:
    """Takes writes from event loops and hands them to its thread."""

    def __init__(self, file: StoreFile, patience: LockPatience) -> None:
        self._file = file
        self._patience = patience
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="jackline-flows-write")
        self._lock = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._busy = False
        self._closed = False

    def write(self, work: Work[T], size: int = 0) -> asyncio.Future[T]:
        """What `work` gives, once it is durable; `size` is roughly how many bytes it writes."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            if self._closed:
                raise JournalError(
                    "The file of runs was closed by this process already.",
                    hint="Keep the engine open until the last run has ended.",
                )
            self._waiting.append(_Waiting(work, future, loop, size))
            if not self._busy:
                self._busy = True
                self._thread.submit(self._write_waiting)
        return future

    async def apart(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` gives, done after all that was asked for before, outside a transaction."""

        def do() -> T:
            try:
                return work(self._file.opened())
            except (sqlite3.Error, OSError) as error:
                raise self._in_words(error) from error

        return await asyncio.get_running_loop().run_in_executor(self._thread, do)

    async def close(self) -> None:
        """Write what waits and let go of the file."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self._file.let_go)
        self._thread.shutdown(wait=False)

    def _write_waiting(self) -> None:
        while batch := self._next_batch():
            verdicts = self._verdicts(batch)
            for loop in {waiting.loop for waiting in batch}:
                told = [
                    (waiting.future, verdict)
                    for waiting, verdict in zip(batch, verdicts, strict=True)
                    if waiting.loop is loop
                ]
                try:
                    loop.call_soon_threadsafe(_tell, told)
                except RuntimeError:
                    # The loop is closed: those who waited are gone, and their writes are made.
                    continue

    def _next_batch(self) -> list[_Waiting]:
        with self._lock:
            batch: list[_Waiting] = []
            size = 0
            while self._waiting and len(batch) < _TOGETHER and size < _TOGETHER_BYTES:
                batch.append(self._waiting.popleft())
                size += batch[-1].size
            self._busy = bool(batch)
            return batch

    def _verdicts(self, batch: Sequence[_Waiting]) -> list[_Verdict]:
        while True:
            began = SystemClock().monotonic()
            try:
                verdicts = self._commit(batch)
            except Exception as error:  # noqa: BLE001 -- handed to those who wait, or would hang
                locked = isinstance(error, sqlite3.Error | OSError) and is_locked(error)
                if locked and self._patience.lasts(began):
                    continue
                if len(batch) == 1 or locked or isinstance(error, JournalError):
                    return [_Verdict(error=self._in_words(error)) for _ in batch]
                break
            self._patience.got_through()
            return verdicts
        # Each alone, so that the guilty one is found and the others are kept.
        return [verdict for waiting in batch for verdict in self._verdicts([waiting])]

    def _commit(self, batch: Sequence[_Waiting]) -> list[_Verdict]:
        connection = self._file.opened()
        connection.execute("BEGIN IMMEDIATE")
        try:
            transaction = Transaction(connection)
            verdicts = [_verdict(waiting.work, transaction) for waiting in batch]
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        self._file.must_be_there()
        return verdicts

    def _in_words(self, error: Exception) -> Exception:
        if isinstance(error, sqlite3.Error | OSError):
            self._file.let_go()
            return self._file.unusable(error)
        if isinstance(error, MalformedError):
            return self._file.unreadable()
        if isinstance(error, _UNSTORABLE):
            return JournalError(
                f"A record cannot be kept: {type(error).__name__}.",
                hint="Look for text that is no Unicode, or for numbers beyond 64 bits.",
            )
        return error


def _verdict(work: Work[Any], transaction: Transaction) -> _Verdict:
    try:
        return _Verdict(work(transaction))
    except JacklineError as refusal:
        # A refusal comes before the first change, so that there is nothing to take back.
        return _Verdict(error=refusal)


def _tell(told: Sequence[tuple[asyncio.Future[Any], _Verdict]]) -> None:
    for future, verdict in told:
        if future.done():
            continue  # cancelled by the one who waited
        if verdict.error is None:
            future.set_result(verdict.result)
        else:
            future.set_exception(verdict.error)
