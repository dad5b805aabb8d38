"""The store of runs over one SQLite file: the contract of ../run_store.py.

Rules: (1) no logic: each method names the work and the thread that does it; (2) the time of a lease
is taken when the method is called, so that waiting for the disk makes no lease longer.
Not here: the work (flows/store/sqlite/runs.py, flows/store/sqlite/calls.py, agent_logs.py,
cleanup_rows.py), the threads (threads.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from jackline.clock import SystemClock
from jackline.flows.records import (
    AgentOrder,
    CallRecord,
    EntryRecord,
    HookRecord,
    NoteRecord,
    ResourceRecord,
    RunRecord,
    RunState,
)
from jackline.flows.store.run_store import Claim
from jackline.flows.store.sqlite import agent_logs, cleanup_rows, row_checks, runs
from jackline.flows.store.sqlite import calls as keyed_calls
from jackline.flows.store.sqlite.store_file import (
    LOCK_SECONDS,
    Connect,
    LockPatience,
    StoreFile,
    connect,
)
from jackline.flows.store.sqlite.threads import StoreReader, StoreWriter


class SqliteRunStore:
    """Keeps runs in the file at `path`, which is made when it is first needed; `close` it.

    Any number of engines, in any number of processes, may use one file. `wall` tells the time in
    seconds since the epoch; another program's lock is waited for `lock_seconds`, and by whoever
    carries a run for `patience` altogether.
    """

    def __init__(
        self,
        path: Path,
        *,
        wall: Callable[[], float] = SystemClock.wall,
        connect: Connect = connect,
        lock_seconds: float = LOCK_SECONDS,
        patience: float = 0.0,
    ) -> None:
        self.path = path
        self._wall = wall
        # Each its own: readers get through where writers do not.
        self._patience = (LockPatience(patience), LockPatience(patience))
        self._writer = StoreWriter(StoreFile(path, connect, lock_seconds), self._patience[0])
        self._reader = StoreReader(StoreFile(path, connect, lock_seconds), self._patience[1])

    async def create(self, run: RunRecord, *, owner: str, lease: float) -> Claim:
        """Keep a new run, claimed by `owner` for `lease` seconds."""
        return await self._writer.write(runs.create(run, owner, lease, self._wall()))

    async def claim(
        self, run_id: str, *, owner: str, lease: float, instead_of: str = ""
    ) -> Claim | None:
        """Take a run over; None while another owner's lease holds, or when it is unknown."""
        work = runs.claim(run_id, owner, lease, self._wall(), instead_of)
        return await self._writer.write(work)

    async def renew(self, claim: Claim, *, lease: float) -> None:
        """Hold the run for longer."""
        await self._writer.write(runs.renew(claim, lease, self._wall()))

    async def let_go(self, claim: Claim, run: RunRecord) -> None:
        """Keep the run's new standing and give up the lease."""
        await self._writer.write(runs.change(claim, run, let_go=True), len(run.outcome or b""))

    async def change(self, claim: Claim, run: RunRecord) -> None:
        """Keep the run's new standing and go on carrying it."""
        await self._writer.write(runs.change(claim, run, let_go=False), len(run.outcome or b""))

    async def allow_waking(self, run_id: str) -> None:
        """A person confirms the next waking of a parked run."""
        await self._writer.write(runs.allow_waking(run_id))

    async def ask_to_stop(self, run_id: str, how: str) -> None:
        """Leave word for the owner, who may be another process: `stop` or `cancel`."""
        await self._writer.write(runs.ask_to_stop(run_id, how))

    async def asked_to_stop(self, run_id: str) -> str:
        """What was asked, or an empty string."""
        return await self._reader.read(runs.asked_to_stop(run_id))

    async def run(self, run_id: str) -> RunRecord | None:
        """The run, by its id or an unambiguous beginning of it."""
        return await self._reader.read(runs.find(run_id))

    async def runs(
        self, *, states: Collection[RunState] | None = None, limit: int = 200
    ) -> Sequence[RunRecord]:
        """Runs, the newest first."""
        return await self._reader.read(runs.newest(states, limit))

    async def fork(
        self,
        run_id: str,
        new: RunRecord,
        *,
        owner: str,
        lease: float,
        without: Collection[tuple[str, int]],
    ) -> Claim:
        """A new run that begins with the other's done calls, except those named."""
        owned = replace(new, owner=owner, lease_until=self._wall() + lease, epoch=1)
        return await self._writer.write(runs.fork(run_id, owned, lease, without))

    async def delete_run(self, run_id: str, *, force: bool = False) -> None:
        """Drop an ended run and all that is kept of it."""
        await self._writer.write(runs.delete(run_id, self._wall(), force=force))

    async def wipe(self) -> bool:
        """Overwrite what was deleted, also in files beside the store; False: others use it now."""
        return await self._writer.apart(runs.wipe)

    async def calls(self, run_id: str) -> Sequence[CallRecord]:
        """All calls of a run, in the order they were begun; values included."""
        return await self._reader.read(keyed_calls.of_run(run_id))

    async def begin_call(self, claim: Claim, call: CallRecord) -> None:
        """Keep that a call was begun (again)."""
        await self._writer.write(keyed_calls.keep(claim, call, self._wall()))

    async def end_call(self, claim: Claim, call: CallRecord) -> None:
        """Keep how a call ended; done ones stay for good."""
        size = len(call.value or b"") + len(call.outcome or b"")
        await self._writer.write(keyed_calls.keep(claim, call, self._wall()), size)

    async def forget_calls(
        self,
        claim: Claim,
        calls: Collection[tuple[str, int]],
        *,
        leaving: Sequence[EntryRecord] = (),
    ) -> None:
        """Drop what these calls gave, so that they run again, with a new notebook."""
        await self._writer.write(keyed_calls.forget(claim, calls, leaving))

    async def order_end(self, order: AgentOrder) -> None:
        """Keep the order to end the agents of this name."""
        await self._writer.write(runs.keep(order))

    async def ordered_ends(self, run_id: str) -> Sequence[AgentOrder]:
        """The orders to agents of a run, the oldest first."""
        return await self._reader.read(runs.of_run(run_id))

    async def answer_order(self, claim: Claim, order: AgentOrder) -> None:
        """Keep what came of an order, unless it was taken back or given anew."""
        await self._writer.write(runs.answer(claim, order))

    async def take_back_order(self, run_id: str, name: str) -> bool:
        """Drop the order of this name; False when there is none."""
        return await self._writer.write(runs.drop(run_id, name))

    async def entries(self, task_id: str) -> Sequence[EntryRecord]:
        """An agent's notebook, the oldest line first."""
        return await self._reader.read(agent_logs.lines(task_id))

    async def write_entry(self, claim: Claim, entry: EntryRecord) -> None:
        """Add a line to a notebook; its number must be the next one."""
        await self._writer.write(agent_logs.write(claim, entry), len(entry.data))

    async def find_session(self, session_id: str) -> CallRecord | None:
        """The agent call that was the last to carry this session."""
        return await self._reader.read(keyed_calls.of_session(session_id))

    async def find_task(self, task_id: str) -> CallRecord | None:
        """The agent call with this task id."""
        return await self._reader.read(keyed_calls.of_task(task_id))

    async def keep_resource(self, resource: ResourceRecord) -> None:
        """Keep a resource's standing, by run and name."""
        await self._writer.write(cleanup_rows.keep_resource(resource))

    async def resources(self, *, held_only: bool = True) -> Sequence[ResourceRecord]:
        """What was rented, the oldest first."""
        return await self._reader.read(cleanup_rows.resources(held_only=held_only))

    async def begin_hook(self, hook: HookRecord, *, again: bool = False) -> bool:
        """Mark a hook as running; False when it is not to be run."""
        return await self._writer.write(cleanup_rows.begin_hook(hook, again=again))

    async def end_hook(self, hook: HookRecord) -> None:
        """Keep how it ended."""
        await self._writer.write(cleanup_rows.end_hook(hook))

    async def hooks(self, run_id: str) -> Sequence[HookRecord]:
        """All hooks of a run and how they ended."""
        return await self._reader.read(cleanup_rows.hooks(run_id))

    async def owing_hooks(self) -> Sequence[str]:
        """The ids of the runs with a hook that is not done."""
        return await self._reader.read(cleanup_rows.owing_hooks)

    async def note(
        self, run_id: str, at: float, what: str, label: str, detail: dict[str, object]
    ) -> None:
        """Add a line to the run's keyed_calls."""
        await self._writer.write(keyed_calls.note(run_id, at, what, label, detail))

    async def notes(self, run_id: str, *, after: int = 0) -> Sequence[NoteRecord]:
        """The run's log after the line of that number."""
        return await self._reader.read(keyed_calls.notes(run_id, after))

    async def notebooks(self, run_id: str) -> Sequence[str]:
        """The ids of the agents whose notebooks this run has written."""
        return await self._reader.read(agent_logs.of_run(run_id))

    async def untrusted_rows(self, run_id: str) -> int:
        """How many calls of this run, or lines that unfinished ones go on from, are not ours."""
        return await self._reader.read(runs.untrusted_rows(run_id))

    async def digest(self, run_id: str) -> str:
        """A hash of all that is kept of this run and leads to code."""
        return await self._reader.read(lambda connection: row_checks.digest(connection, run_id))

    async def accept(self, run_id: str, digest: str) -> None:
        """Count all records of this run as ours, unless they changed since `digest`."""
        await self._writer.write(runs.accept(run_id, digest))

    async def spent_since(self, at: float) -> tuple[int, float]:
        """Tokens and dollars of all runs' calls since then."""
        return await self._reader.read(keyed_calls.spent_since(at))

    def tell_of_locks(self, told: Callable[[], None]) -> Callable[[], None]:
        """Have `told` called when another program's lock is waited for; gives what undoes that."""
        undo = [patience.tell(told) for patience in self._patience]

        def forget() -> None:
            for each in undo:
                each()

        return forget

    def hurry(self) -> None:
        """Wait for no lock beyond one try from now on."""
        for patience in self._patience:
            patience.end()

    async def close(self) -> None:
        """Finish writing and let go of the file."""
        await self._writer.close()
        await self._reader.close()
