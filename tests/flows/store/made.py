"""The stores under the contract, records for tests, and a world to open a store in.

Rules: (1) a new kind of store is put under the whole contract by one line in `STORES`; (2) time
stands still until a test moves it; (3) what is opened is closed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from jackline import event_loop
from jackline.flows.records import (
    CallKind,
    CallRecord,
    CallState,
    EntryRecord,
    HookRecord,
    ResourceRecord,
    ResourceState,
    RunRecord,
    RunState,
)
from jackline.flows.store import open_run_store, run_store_url
from jackline.flows.store.run_store import RunStore

T = TypeVar("T")

NOON = 1_800_000_000.0
LEASE = 30.0
LONG = b'"' + b"long " * 20_000 + b'"'


STORES: dict[str, Callable[[Path], str]] = {
    "file": run_store_url,
    "memory": lambda _folder: "sqlite:///:memory:",
}
"""By name: the URL of an empty store for a test that has this folder to itself."""
LOST_WHEN_CLOSED = frozenset({"memory"})


class World:
    """A clock to set, and a store that is opened for each story."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.path = folder / "state" / "flows.db"
        self.url = STORES[kind](folder / "state")
        self.now = NOON
        self.outlives_close = kind not in LOST_WHEN_CLOSED
        self._only = None if self.outlives_close else open_run_store(self.url, wall=self.wall)

    def wall(self) -> float:
        """What the stores take for the time."""
        return self.now

    def engine(self) -> RunStore:
        """A store over the same runs."""
        return self._only or open_run_store(self.url, wall=self.wall, lock_seconds=5.0)

    def run(self, story: Callable[[RunStore], Awaitable[T]]) -> T:
        """Run a story on a store that is opened for it."""

        async def whole() -> T:
            engine = self.engine()
            try:
                return await story(engine)
            finally:
                if self.outlives_close:
                    await engine.close()

        return event_loop.run(whole())


def run(run_id: str = "run-1", state: RunState = RunState.RUNNING, **more: object) -> RunRecord:
    """A run."""
    whole: dict[str, object] = {"created_at": NOON, "updated_at": NOON, "state": state, **more}
    return RunRecord(run_id, "research", "flow.py", b'{"q": 1}', **whole)  # type: ignore[arg-type]


def call(
    key: str = "a",
    state: CallState = CallState.RUNNING,
    *,
    occurrence: int = 0,
    run_id: str = "run-1",
    **more: object,
) -> CallRecord:
    """A call; its agent is named after run, key and occurrence."""
    task_id = f"{run_id}/{key}/{occurrence}"
    whole: dict[str, object] = {"started_at": NOON, "task_id": task_id, "label": key, **more}
    return CallRecord(
        run_id=run_id,
        key=key,
        occurrence=occurrence,
        kind=CallKind.AGENT,
        phase="search",
        state=state,
        **whole,  # type: ignore[arg-type]
    )


def done(key: str = "a", value: bytes = b"1", **more: object) -> CallRecord:
    """A call that is done."""
    whole: dict[str, object] = {"value": value, "ended_at": NOON, **more}
    return call(key, CallState.DONE, **whole)  # type: ignore[arg-type]


def entry(number: int, task_id: str = "run-1/a/0", **more: object) -> EntryRecord:
    """A notebook's line."""
    whole: dict[str, object] = {"kind": "turn", "data": b'{"n": %d}' % number, "at": NOON, **more}
    return EntryRecord(task_id, number, **whole)  # type: ignore[arg-type]


def resource(
    name: str = "gpu", state: ResourceState = ResourceState.HELD, **more: object
) -> ResourceRecord:
    """Something rented."""
    whole: dict[str, object] = {
        "run_id": "run-1",
        "task_id": "run-1/a/0",
        "release": "release it",
        "release_on_park": True,
        "lease_until": NOON + 7200,
        "taken_at": NOON,
        **more,
    }
    return ResourceRecord(name=name, state=state, **whole)  # type: ignore[arg-type]


def hook(**more: object) -> HookRecord:
    """A clean-up hook."""
    whole: dict[str, object] = {"run_id": "run-1", "end_id": "run-1/a/0#1", "hook": "tidy", **more}
    return HookRecord(outcome=b'{"terminated_by": "quota"}', **whole)  # type: ignore[arg-type]
