"""Look at the runs of a state folder from the store itself, as often as a test wants to.

Rules: (1) a process for each look would cost most of a test's time; (2) looking changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from jackline.flows.records import CallRecord, RunRecord
from jackline.flows.store import open_run_store, run_store_url
from jackline.flows.store.run_store import RunStore

T = TypeVar("T")


def look(state: Path, question: Callable[[RunStore], Awaitable[T]]) -> T:
    """What the store in this folder answers."""

    async def ask() -> T:
        store = open_run_store(run_store_url(state))
        try:
            return await question(store)
        finally:
            await store.close()

    return asyncio.run(ask())


def saved_runs(state: Path) -> Sequence[RunRecord]:
    """All runs, the newest first."""
    return look(state, lambda store: store.runs())


def saved_run(state: Path, run_id: str) -> RunRecord:
    """This run."""
    run = look(state, lambda store: store.run(run_id))
    assert run is not None
    return run


def saved_calls(state: Path, run_id: str) -> dict[str, CallRecord]:
    """The run's calls by label."""
    return {call.label: call for call in look(state, lambda store: store.calls(run_id))}


def notes_of(state: Path, run_id: str) -> str:
    """The words of the run's log."""
    notes = look(state, lambda store: store.notes(run_id))
    return "\n".join(f"{note.what} {note.label} {note.detail}" for note in notes)


def wait_until_due(state: Path, run_id: str) -> None:
    """Wait until the reset that a parked run waits for has passed."""
    run = saved_run(state, run_id)
    assert run.wake_at is not None
    time.sleep(max(0.0, run.wake_at + 0.1 - time.time()))
