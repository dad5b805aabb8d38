"""A run store in memory, under the same contract as the one on disk.

Rules: (1) the same results and the same refusals as the SQLite store: one suite tests both; (2)
each method acts without a pause, so that it happens completely or not at all; (3) nothing
survives the process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from jackline.clock import SystemClock
from jackline.flows.records import (
    ENDED,
    AgentOrder,
    CallRecord,
    CallState,
    EntryRecord,
    HookRecord,
    NoteRecord,
    ResourceRecord,
    ResourceState,
    RunRecord,
    RunState,
)
from jackline.flows.store import store_rules
from jackline.flows.store.run_store import Claim

_CallName = tuple[str, int]


@dataclass(slots=True)
class _Run:
    record: RunRecord
    lease_seconds: float
    stop_request: str = ""
    calls: dict[_CallName, CallRecord] = field(default_factory=dict)
    notes: list[NoteRecord] = field(default_factory=list)
    orders: dict[str, AgentOrder] = field(default_factory=dict)


@dataclass(slots=True)
class _AgentLog:
    run_id: str
    lines: list[EntryRecord] = field(default_factory=list)


class MemoryRunStore:
    """A store for tests and for flows that need not outlive their process."""

    def __init__(self, *, wall: Callable[[], float] = SystemClock.wall) -> None:
        self._wall = wall
        self._runs: dict[str, _Run] = {}
        self._logs: dict[str, _AgentLog] = {}
        # The tasks of each session, the latest last.
        self._sessions: dict[str, list[str]] = {}
        self._resources: dict[tuple[str, str], ResourceRecord] = {}
        self._hooks: dict[tuple[str, str, str], HookRecord] = {}
        self._spending: list[tuple[float, int, float]] = []

    async def create(self, run: RunRecord, *, owner: str, lease: float) -> Claim:
        """Save a new run, claimed by `owner` for `lease` seconds."""
        if run.run_id in self._runs:
            raise store_rules.taken_id(run.run_id)
        owned = replace(run, owner=owner, lease_until=self._wall() + lease, epoch=1)
        self._runs[run.run_id] = _Run(owned, lease)
        return Claim(run.run_id, owner, 1)

    async def claim(
        self, run_id: str, *, owner: str, lease: float, instead_of: str = ""
    ) -> Claim | None:
        """Take a run over; None while another owner's lease holds, or when it is unknown."""
        run, now = self._runs.get(run_id), self._wall()
        if run is None:
            return None
        if run.record.owner not in (owner, instead_of) and self._is_leased(run):
            return None
        epoch = run.record.epoch + 1
        run.record = replace(run.record, owner=owner, lease_until=now + lease, epoch=epoch)
        run.lease_seconds = lease
        run.stop_request = store_rules.word_after_claim(run.stop_request)
        return Claim(run_id, owner, epoch)

    async def renew(self, claim: Claim, *, lease: float) -> None:
        """Hold the run for longer."""
        run = self._owned(claim)
        run.record = replace(run.record, lease_until=self._wall() + lease)
        run.lease_seconds = lease

    async def let_go(self, claim: Claim, run: RunRecord) -> None:
        """Save the run's new state and give up the lease."""
        await self.change(claim, run)
        saved = self._owned(claim)
        saved.record = replace(saved.record, owner="", lease_until=0.0)
        if store_rules.answers_the_word(run.state):
            saved.stop_request = ""

    async def change(self, claim: Claim, run: RunRecord) -> None:
        """Save the run's new state and hold the lease."""
        store_rules.must_be_of(claim, run.run_id)
        saved = self._owned(claim)
        saved.record = store_rules.with_standing(saved.record, run)

    async def allow_waking(self, run_id: str) -> None:
        """A person confirms the next waking of a parked run."""
        run = self._known(run_id)
        store_rules.must_be_parked(run.record)
        run.record = replace(run.record, confirmed=True)

    async def ask_to_stop(self, run_id: str, how: str) -> None:
        """Save a request to the owner: `stop` or `cancel`."""
        run = self._known(run_id)
        word = store_rules.word_after_asking(run.stop_request, how)
        if run.record.owner or run.record.state not in ENDED:
            run.stop_request = word

    async def asked_to_stop(self, run_id: str) -> str:
        """What was requested, or an empty string."""
        return self._runs[run_id].stop_request if run_id in self._runs else ""

    async def run(self, run_id: str) -> RunRecord | None:
        """The run, by its id or an unambiguous beginning of it."""
        if run_id in self._runs:
            return self._runs[run_id].record
        found = [known for known in self._runs if run_id and known.startswith(run_id)]
        if len(found) > 1:
            raise store_rules.ambiguous(run_id, found)
        return self._runs[found[0]].record if found else None

    async def runs(
        self, *, states: Collection[RunState] | None = None, limit: int = 200
    ) -> Sequence[RunRecord]:
        """Runs, the newest first."""
        chosen = [run.record for run in self._runs.values()]
        chosen = [run for run in chosen if states is None or run.state in states]
        return sorted(chosen, key=lambda run: run.created_at)[::-1][:limit]

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
        source = self._known(run_id)
        claim = await self.create(replace(new, forked_from=run_id), owner=owner, lease=lease)
        self._runs[new.run_id].calls = {
            name: replace(call, run_id=new.run_id, tokens=0, cost=0.0)
            for name, call in source.calls.items()
            if call.state is CallState.DONE and name not in set(without)
        }
        return claim

    async def wipe(self) -> bool:
        """Memory needs no wiping."""
        return True

    async def delete_run(self, run_id: str, *, force: bool = False) -> None:
        """Drop an ended run and all that is saved of it."""
        run = self._known(run_id)
        saved = [one for one in self._resources.values() if one.run_id == run_id]
        held = [one for one in saved if one.state is not ResourceState.RELEASED]
        hooks = [hook for hook in self._hooks.values() if hook.run_id == run_id]
        store_rules.must_be_deletable(
            run.record,
            carried=self._is_leased(run),
            held=[] if force else held,
            owed=[] if force else [hook for hook in hooks if hook.state != "done"],
        )
        del self._runs[run_id]
        for resource in saved:
            del self._resources[run_id, resource.name]
        self._hooks = {name: hook for name, hook in self._hooks.items() if name[0] != run_id}
        named = {call.task_id for other in self._runs.values() for call in other.calls.values()}
        for task_id, log in list(self._logs.items()):
            if log.run_id == run_id and task_id not in named:
                self._drop_log(task_id)

    async def calls(self, run_id: str) -> Sequence[CallRecord]:
        """All calls of a run, in the order they were begun."""
        return list(self._runs[run_id].calls.values()) if run_id in self._runs else []

    async def begin_call(self, claim: Claim, call: CallRecord) -> None:
        """Save that a call was begun (again)."""
        store_rules.must_be_of(claim, call.run_id)
        run = self._owned(claim)
        known = run.calls.get((call.key, call.occurrence))
        if known is not None:
            store_rules.must_not_be_done(known.state, call)
        tokens = call.tokens - (known.tokens if known else 0)
        cost = call.cost - (known.cost if known else 0.0)
        at = self._wall() if call.ended_at is None else call.ended_at
        run.calls[call.key, call.occurrence] = call
        self._spending.append((at, max(tokens, 0), max(cost, 0.0)))

    async def end_call(self, claim: Claim, call: CallRecord) -> None:
        """Save how a call ended; done ones are final."""
        await self.begin_call(claim, call)

    async def forget_calls(
        self,
        claim: Claim,
        calls: Collection[tuple[str, int]],
        *,
        leaving: Sequence[EntryRecord] = (),
    ) -> None:
        """Drop what these calls gave, so that they run again, with a new log."""
        run = self._owned(claim)
        for line in leaving:
            await self.write_entry(claim, line)
        for name in calls:
            call = run.calls.pop(name, None)
            log = self._logs.get(call.task_id) if call else None
            if call and log and log.run_id == claim.run_id:
                self._drop_log(call.task_id)

    async def order_end(self, order: AgentOrder) -> None:
        """Save the order to end the agents of this name."""
        self._known(order.run_id).orders[order.name] = order

    async def ordered_ends(self, run_id: str) -> Sequence[AgentOrder]:
        """The orders to agents of a run, the oldest first."""
        orders = self._runs[run_id].orders.values() if run_id in self._runs else ()
        return sorted(orders, key=lambda order: (order.at, order.name))

    async def answer_order(self, claim: Claim, order: AgentOrder) -> None:
        """Save the result of an order, unless the order was withdrawn or replaced."""
        store_rules.must_be_of(claim, order.run_id)
        orders = self._owned(claim).orders
        saved = orders.get(order.name)
        if saved is not None and saved.at == order.at:
            orders[order.name] = order

    async def take_back_order(self, run_id: str, name: str) -> bool:
        """Delete the order of this name; False when there is none."""
        run = self._runs.get(run_id)
        return run is not None and run.orders.pop(name, None) is not None

    async def entries(self, task_id: str) -> Sequence[EntryRecord]:
        """An agent's log, the oldest line first."""
        log = self._logs.get(task_id)
        return list(log.lines) if log else []

    async def write_entry(self, claim: Claim, entry: EntryRecord) -> None:
        """Add a line to a log; its number must be the next one."""
        self._owned(claim)
        log = self._logs.get(entry.task_id) or _AgentLog(claim.run_id)
        if log.run_id != claim.run_id:
            raise store_rules.foreign_notebook(entry.task_id)
        store_rules.must_be_next(len(log.lines), entry.number, entry.task_id)
        log.lines.append(entry)
        self._logs[entry.task_id] = log
        session_id = store_rules.named_session(entry)
        if session_id:
            tasks = self._sessions.setdefault(session_id, [])
            tasks[:] = [task_id for task_id in tasks if task_id != entry.task_id]
            tasks.append(entry.task_id)

    async def find_session(self, session_id: str) -> CallRecord | None:
        """The agent call that was the last to use this session."""
        for task_id in reversed(self._sessions.get(session_id, [])):
            call = await self.find_task(task_id)
            if call is not None:
                return call
        return None

    async def find_task(self, task_id: str) -> CallRecord | None:
        """The agent call with this task id."""
        for run in self._runs.values():
            for call in run.calls.values():
                if task_id and call.task_id == task_id:
                    return call
        return None

    async def keep_resource(self, resource: ResourceRecord) -> None:
        """Save a resource's state, by run and name."""
        self._resources[resource.run_id, resource.name] = resource

    async def resources(self, *, held_only: bool = True) -> Sequence[ResourceRecord]:
        """What was rented, the oldest first."""
        chosen = [
            resource
            for resource in self._resources.values()
            if not held_only or resource.state is not ResourceState.RELEASED
        ]
        return sorted(chosen, key=lambda one: (one.taken_at, one.run_id, one.name))

    async def begin_hook(self, hook: HookRecord, *, again: bool = False) -> bool:
        """Mark a hook as running; False when it is not to be run."""
        name = (hook.run_id, hook.end_id, hook.hook)
        saved = self._hooks.get(name)
        if not store_rules.may_begin_hook(saved, hook, again=again):
            return False
        tries = saved.tries if saved else 0
        self._hooks[name] = replace(hook, state="running", tries=tries + 1)
        return True

    async def end_hook(self, hook: HookRecord) -> None:
        """Save how a hook ended."""
        name = (hook.run_id, hook.end_id, hook.hook)
        saved = self._hooks.get(name)
        self._hooks[name] = replace(hook, tries=saved.tries if saved else hook.tries)

    async def hooks(self, run_id: str) -> Sequence[HookRecord]:
        """All hooks of a run and how they ended."""
        hooks = [hook for hook in self._hooks.values() if hook.run_id == run_id]
        return sorted(hooks, key=lambda hook: (hook.at, hook.end_id, hook.hook))

    async def owing_hooks(self) -> Sequence[str]:
        """The ids of the runs with a hook that is not done."""
        return sorted({hook.run_id for hook in self._hooks.values() if hook.state != "done"})

    async def note(
        self, run_id: str, at: float, what: str, label: str, detail: dict[str, object]
    ) -> None:
        """Add a line to the run's log."""
        notes = self._known(run_id).notes
        # Through JSON, so that what cannot be saved on disk cannot be saved here either.
        saved = json.loads(json.dumps(detail))
        notes.append(NoteRecord(run_id, len(notes) + 1, at, what, label, saved))

    async def notes(self, run_id: str, *, after: int = 0) -> Sequence[NoteRecord]:
        """The run's log after the line of that number."""
        return self._runs[run_id].notes[max(after, 0) :] if run_id in self._runs else []

    async def notebooks(self, run_id: str) -> Sequence[str]:
        """The ids of the agents whose logs this run has written."""
        return [task for task, book in self._logs.items() if book.run_id == run_id]

    async def untrusted_rows(self, run_id: str) -> int:  # noqa: ARG002 -- the contract's
        """Nobody else writes here."""
        return 0

    async def digest(self, run_id: str) -> str:
        """A hash of all that is saved of this run and leads to code."""
        run = self._known(run_id)
        return str(hash((run.record, *run.calls.values())))

    async def accept(self, run_id: str, digest: str) -> None:
        """All records are ours already."""
        if digest != await self.digest(run_id):
            raise store_rules.changed_since_shown(run_id)

    async def spent_since(self, at: float) -> tuple[int, float]:
        """Tokens and dollars of all runs' calls since then."""
        since = [(tokens, cost) for when, tokens, cost in self._spending if when >= at]
        return sum(tokens for tokens, _ in since), sum(cost for _, cost in since)

    def tell_of_locks(self, told: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002
        """Nobody else can lock it."""
        return lambda: None

    def hurry(self) -> None:
        """Nothing is ever waited for."""

    async def close(self) -> None:
        """Nothing to finish: the runs stay as long as this store does."""

    def _known(self, run_id: str) -> _Run:
        run = self._runs.get(run_id)
        if run is None:
            raise store_rules.unknown_run(run_id)
        return run

    def _owned(self, claim: Claim) -> _Run:
        run = self._runs.get(claim.run_id)
        if run is None:
            raise store_rules.lease_lost(claim, None)
        if (run.record.owner, run.record.epoch) != (claim.owner, claim.epoch):
            raise store_rules.lease_lost(claim, run.record.owner)
        return run

    def _is_leased(self, run: _Run) -> bool:
        saved = run.record
        return bool(saved.owner) and store_rules.lease_holds(
            saved.lease_until, run.lease_seconds, self._wall()
        )

    def _drop_log(self, task_id: str) -> None:
        del self._logs[task_id]
        for tasks in self._sessions.values():
            tasks[:] = [other for other in tasks if other != task_id]
