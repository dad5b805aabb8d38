"""Read in a thread of its own, so that neither the event loop nor a writer waits for it.

Laws: (1) nothing is ever written; (2) a read sees every write that had returned before it was asked
for; (3) rows are fetched before they are handed out, so that no read keeps the log from shrinking.
Not here: the questions (runs.py, calls.py, …).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from jackline.clock import SystemClock
from jackline.errors import JournalError
from jackline.flows.local.opening import Patience, StoreFile, is_locked
from jackline.flows.local.well_formed import MalformedError

T = TypeVar("T")


class Reader:
    """Takes questions from event loops and hands them to its thread."""

    def __init__(self, file: StoreFile, patience: Patience) -> None:
        self._file = file
        self._patience = patience
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="jackline-flows-read")
        self._closed = False

    async def read(self, look: Callable[[sqlite3.Connection], T]) -> T:
        """What `look` finds."""
        if self._closed:
            raise JournalError(
                "The file of runs was closed by this process already.",
                next="Keep the engine open until the last run has ended.",
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
