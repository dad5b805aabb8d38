"""Run the agents that models start: begin, wait, inspect, cancel, and resume after a restart.

Rules: (1) only the saved state of a run is reported; (2) a client that leaves ends no agent: only a
cancel does; (3) an agent that ended while nobody waited is announced once; (4) a run of another
process is left to it; (5) a run that the service itself stopped is not settled: the next service
resumes it, within its limits, and one that was started too often waits for a person; (6) progress
never waits; it wakes waiters only when their answer changes, and holds no prompt or answer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import operator
import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from jackline.agents.outcome import Outcome
from jackline.agents.prices import price_of
from jackline.clock import Clock
from jackline.control.run_view import AgentView, RunView
from jackline.errors import JacklineError, UnreadableError, UsageError
from jackline.flows.flow_run import FlowRun
from jackline.flows.flow_sources import is_own
from jackline.flows.host import FlowHost
from jackline.flows.lifecycle import begin_resume, begin_retry, begin_run, cancel_run
from jackline.flows.records import ENDED, CallKind, CallRecord, CallState, RunRecord, RunState
from jackline.flows.run_events import AgentAnswered, AgentEnded, FlowEvent, RunParked, RunWoke
from jackline.flows.run_owner import is_dead
from jackline.flows.run_totals import fold, used_by_run
from jackline.flows.settings import RunSettings, decode_settings, may_wake
from jackline.flows.store.run_store import RunStore
from jackline.mcp_server.flow.started_agents import CANCELLED_ALONE, started_agents
from jackline.mcp_server.model_tool import JsonObject, Progress, ToolCaller
from jackline.mcp_server.permissions import Sight
from jackline.outside_names import cut_name

STOPPED = "The service that carried it was stopped; it goes on when the service runs again."
_OUR_FILE = os.path.join("jackline", "mcp_server", "flow", "started_agents.py")  # noqa: PTH118


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """A run as it is saved now, or one agent of it (`label`)."""

    record: RunRecord
    calls: tuple[CallRecord, ...]
    label: str | None = None
    under_way: Mapping[str, AgentView] = field(default_factory=dict)
    """Its agents at work by their tasks, as far as this process runs them."""

    @classmethod
    async def load(cls, engine: RunStore, record: RunRecord) -> RunSnapshot:
        """The run with its agents."""
        calls = await engine.calls(record.run_id)
        totals = fold(record, calls, await used_by_run(engine, record.run_id, calls))
        record = replace(record, tokens=totals.tokens, cost=totals.cost)
        return cls(record, tuple(call for call in calls if call.kind is CallKind.AGENT))

    def check_of_models(self, verb: str) -> None:
        """Refuse a model what only the user may do with a run of the user's own."""
        run_id = self.record.run_id
        if not is_of_models(self.record):
            raise UsageError(
                f"The run {run_id} was started by the user, not by a model: nothing was done.",
                hint=f"It is the user's to decide; in a terminal: jackline {verb} {run_id}",
            )

    @property
    def orders(self) -> list[JsonObject]:
        """Its orders; empty when the run was not started by a model, or is not ours."""
        if not is_of_models(self.record) or not self.record.trusted:
            return []
        return cast("list[JsonObject]", json.loads(self.record.arguments)["orders"])

    def order_of(self, label: str) -> JsonObject:
        """The order of one agent; empty for one of the user's own flow."""
        return next((order for order in self.orders if order["label"] == label), {})

    @property
    def chosen(self) -> tuple[CallRecord, ...]:
        """The agents that are meant."""
        return tuple(call for call in self.calls if self.label in (None, call.label))

    @property
    def settled(self) -> bool:
        """Whether there is nothing to wait for."""
        record = self.record
        # What the service itself stopped, it takes up again.
        if record.state in ENDED or (record.state is RunState.STOPPED and record.why != STOPPED):
            return True
        ended = [call for call in self.chosen if call.state is not CallState.RUNNING]
        return self.label is not None and len(ended) == len(self.chosen) == 1

    def rests_beyond(self, moment: float) -> bool:
        """Whether it is parked until after that moment, or until a person acts."""
        parked = self.record.state is RunState.PARKED
        return parked and (self.record.wake_at is None or self.record.wake_at > moment)


def is_of_models(record: RunRecord) -> bool:
    """Whether a model has started the run, or the service for one; not a user by a flow."""
    if record.flow != started_agents.name:
        return False
    # One that an installation of Jackline at another place has begun, before an upgrade.
    replaced = record.source.endswith(_OUR_FILE) and not Path(record.source).exists()
    return replaced or (bool(record.source) and is_own(record.source))


class _RunListener:
    """What one run has reported; it is the run's listener."""

    def __init__(self) -> None:
        self.view = RunView()
        self.waiters: set[asyncio.Event] = set()
        """Set whenever a wait may be over."""
        self._answers = 0

    def __call__(self, event: FlowEvent) -> None:
        self.view.apply(event)
        self._answers += isinstance(event, AgentAnswered)
        if isinstance(event, AgentEnded | RunParked | RunWoke):
            self.wake()

    def wake(self) -> None:
        for waiter in self.waiters:
            waiter.set()

    @property
    def words(self) -> str:
        view = self.view
        if view.state == RunState.PARKED.value:
            return f"parked: {view.why}"
        parts = [f"{len(view.agents)} at work"] if view.agents else ["starting"]
        if ended := view.ok + view.failed:
            parts.append(f"{ended} ended")
        if self._answers:
            parts.append(f"{self._answers} answers, {view.tokens:,} tokens")
        waits = [f"waits: {agent.why}" for agent in view.agents.values() if agent.why]
        return ", ".join([*parts, *waits[:1]])


_BEAT = 15.0
"""A sign of life for the client; Claude Code waits 5 min at the least without one."""
_LOOK_EVERY = 1.0
_LOOK_AFTER_EVERY = 15.0
_MOST_BEGINNINGS = 5
_LISTED = 20
_MOST_NEWS = 200
CONTINUED_FROM = ("continue_from", "resume", "continues")
"""The parts of an order that name whom it goes on from."""

_log = logging.getLogger("jackline")


@dataclass(slots=True)
class _ActiveRun:
    """A run that this process runs."""

    run: FlowRun[Any]
    listener: _RunListener
    folder: str
    say: Progress | None
    unattended: bool
    """Whether nobody waits for it, so that its end has to be announced."""
    task: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class _News:
    run_id: str
    folder: str
    words: str


class AgentManager:
    """All agents that models have started on this machine; `watch` runs while the service does."""

    def __init__(self, host: Callable[[], Awaitable[FlowHost]], clock: Clock) -> None:
        self._open = host
        self._clock = clock
        self._active: dict[str, _ActiveRun] = {}
        self._news: list[_News] = []
        self._stopping = False

    # --- starting -------------------------------------------------------------------------------

    async def begin(
        self, orders: Sequence[JsonObject], *, folder: str, background: bool, say: Progress
    ) -> str:
        """A new run of these orders; its id. It is saved when this returns."""
        host, listener = await self._host(), _RunListener()
        arguments = json.dumps({"orders": list(orders)}, ensure_ascii=False)
        run = await begin_run(
            host,
            started_agents,
            arguments.encode("utf-8", "surrogatepass"),
            listener=listener,
            cwd=folder,
        )
        return self._start(_ActiveRun(run, listener, folder, say, background))

    async def resume(self, snapshot: RunSnapshot, *, say: Progress, background: bool) -> str:
        """Take a run up again that has stopped or failed; with a label only that agent's part."""
        snapshot.check_of_models("resume")
        host = await self._host()
        listener, run_id = _RunListener(), snapshot.record.run_id
        if snapshot.record.state is RunState.FINISHED:
            run: FlowRun[Any] = await begin_retry(
                host,
                run_id,
                only=snapshot.label,
                settings=_limited(host, snapshot.record),
                flow=started_agents,
                listener=listener,
            )
        else:
            found = await begin_resume(
                host,
                run_id,
                settings=_limited(host, snapshot.record),
                flow=started_agents,
                listener=listener,
            )
            if isinstance(found, Outcome):
                raise UsageError(
                    f"The run {run_id} was cancelled.", hint="Start a new agent with its prompt."
                )
            run = found
        return self._start(_ActiveRun(run, listener, snapshot.record.cwd, say, background))

    async def _host(self) -> FlowHost:
        if self._stopping:
            raise UsageError("The service is stopping.", hint="Ask again when it runs again.")
        return await self._open()

    async def can_count(self, model: str) -> bool:
        """Whether the user's limits in dollars, if there are any, count what this model costs."""
        host = await self._host()
        if all(budget.dollars is None for budget in host.settings.budgets):
            return True
        # What the user has chosen is the user's choice.
        return model == host.settings.model or price_of(model, host.prices) is not None

    def _start(self, active: _ActiveRun) -> str:
        run = active.run
        self._active[run.run_id] = active
        active.task = asyncio.create_task(self._run_to_end(active), name=f"run {run.run_id}")
        return run.run_id

    async def _run_to_end(self, active: _ActiveRun) -> None:
        run_id = active.run.run_id
        try:
            outcome = await active.run.run()
        except JacklineError as error:
            _log.warning("the run %s is carried no more: %s", run_id, error.message)
            return
        finally:
            del self._active[run_id]
            active.listener.wake()
        if not active.unattended or active.run.state not in ENDED:
            return
        tally = outcome.tally
        how = f"{tally.ok} of {tally.agents} ok" if tally.agents > 1 else str(outcome.terminated_by)
        words = f"run {run_id}: {how}"
        self._news = [*self._news[-_MOST_NEWS:], _News(run_id, active.folder, words)]
        if active.say is not None:
            await active.say(f"A background agent has finished, {words}. Ask agent_status for it.")

    # --- looking and waiting --------------------------------------------------------------------

    async def snapshot(self, named: str, sees: Sight) -> RunSnapshot:
        """The run or agent of this id: a run's, a task's, or a session's, where one sees it."""
        (snapshot,) = await self.snapshots([named], sees)
        return snapshot

    async def snapshots(self, names: Sequence[str], sees: Sight) -> list[RunSnapshot]:
        """Those of several ids; a run that several of them name is read once."""
        engine = (await self._open()).engine
        runs: dict[str, RunSnapshot] = {}
        found = []
        for named in names:
            call = await engine.find_task(named) or await engine.find_session(named)
            run_id = named if call is None else call.run_id
            if run_id not in runs:
                record = await engine.run(run_id)
                if record is None or not sees(record.cwd):
                    raise UnreadableError(
                        f"There is no agent {cut_name(named)!r} in this project.",
                        hint="agent_status without ids lists the latest. The user can look at other"
                        " projects' agents in a terminal: jackline show ID",
                    )
                runs[run_id] = self._with_present(await RunSnapshot.load(engine, record))
            run = runs[run_id]
            one_of_many = call is not None and len(run.calls) > 1
            found.append(replace(run, label=call.label) if call and one_of_many else run)
        return found

    async def latest(self, sees: Sight) -> list[RunSnapshot]:
        """The latest runs that models have started and one sees, the newest first."""
        engine = (await self._open()).engine
        theirs = [run for run in await engine.runs() if is_of_models(run)]
        runs = [run for run in theirs if sees(run.cwd)]
        return [self._with_present(await RunSnapshot.load(engine, run)) for run in runs[:_LISTED]]

    def _with_present(self, snapshot: RunSnapshot) -> RunSnapshot:
        active = self._active.get(snapshot.record.run_id)
        return (
            snapshot
            if active is None
            else replace(snapshot, under_way={**active.listener.view.agents})
        )

    async def continuations_of(self, names: Collection[str]) -> list[RunRecord]:
        """The runs that go on from one of these tasks, sessions or sub-agents, or did."""
        engine = (await self._open()).engine
        # Orders are large, and few name another agent.
        marks = [json.dumps(name, ensure_ascii=False)[1:-1].encode() for name in names]
        return [
            record
            for record in await engine.runs()
            if any(mark in record.arguments for mark in marks)
            for order in RunSnapshot(record, ()).orders
            if not {order.get(name) for name in CONTINUED_FROM}.isdisjoint(names)
        ]

    async def depth_of(self, session: str, task: str = "") -> int:
        """How many agents deep a client is, by its session or the agent for which it works.

        0 for one that a person opened. Of both, the deeper one counts.
        """
        engine = (await self._open()).engine
        by_session = await engine.find_session(session) if session else None
        by_task = await engine.find_task(task) if task else None
        # Whoever names a task is an agent, also where its run is unknown.
        return max(await self._depth(by_session), await self._depth(by_task), 1 if task else 0)

    async def _depth(self, call: CallRecord | None) -> int:
        record = None if call is None else await (await self._open()).engine.run(call.run_id)
        if call is None or record is None:
            return 0
        # An agent of a user's own flow is one deep.
        return int(str(RunSnapshot(record, ()).order_of(call.label).get("depth", 1)))

    async def project_of(self, caller: ToolCaller) -> Path | None:
        """The folder that the user chose for a client: of an agent, that of the first client.

        None where none is known. A model may have chosen the folder in which an agent works.
        """
        if not caller.parent_task:
            return caller.folder
        engine = (await self._open()).engine
        call = await engine.find_task(caller.parent_task)
        record = None if call is None else await engine.run(call.run_id)
        if call is None or record is None or not record.trusted:
            return None
        # The user started a flow of their own in the folder of its run.
        order = RunSnapshot(record, ()).order_of(call.label)
        known = order.get("project") if is_of_models(record) else record.cwd
        return Path(str(known)) if known else None

    def is_running(self, snapshot: RunSnapshot) -> bool:
        """Whether a living process carries this run, as far as one can know."""
        return snapshot.record.run_id in self._active or self._is_held(snapshot.record)

    def _is_held(self, record: RunRecord) -> bool:
        """Whether a living process carries the run, as far as one can know."""
        is_leased = bool(record.owner) and record.lease_until > self._clock.wall()
        return is_leased and not is_dead(record.owner)

    async def wait(
        self,
        ids: Sequence[str],
        sees: Sight,
        *,
        seconds: float,
        all_of_them: bool,
        progress: Progress,
    ) -> list[RunSnapshot]:
        """How these stand, when all (or one) have settled, rest for longer, or the time is over."""
        clock = self._clock
        until, beat = clock.monotonic() + seconds, clock.monotonic() + _BEAT
        changed = asyncio.Event()
        listening: list[_RunListener] = []
        with ExitStack() as stack:
            while True:
                changed.clear()
                snapshots = await self.snapshots(ids, sees)
                now = clock.monotonic()
                settled = [self._is_through(snapshot) for snapshot in snapshots]
                if now >= until or all(settled) or (any(settled) and not all_of_them):
                    return snapshots
                end = clock.wall() + until - now
                rests = [snapshot.rests_beyond(end) for snapshot in snapshots]
                if all(map(operator.or_, settled, rests)):
                    return snapshots
                here = [self._active.get(snapshot.record.run_id) for snapshot in snapshots]
                for active in here:
                    if active is not None and active.listener not in listening:
                        listening.append(active.listener)
                        active.listener.waiters.add(changed)
                        stack.callback(active.listener.waiters.discard, changed)
                # Runs of other processes report nothing here: they are looked at.
                pause = _LOOK_EVERY if None in here else beat - now
                await _either(changed, clock.sleep(max(0.0, min(pause, until - now))))
                if clock.monotonic() >= beat:
                    beat = clock.monotonic() + _BEAT
                    words = [each.listener.words for each in here if each is not None]
                    await progress("; ".join(words) or "carried by another process")

    def _is_through(self, snapshot: RunSnapshot) -> bool:
        """Whether it has settled, and its clean-up is done: no end is reported before."""
        cleans_up = snapshot.record.state in ENDED and snapshot.record.run_id in self._active
        return snapshot.settled and not cleans_up

    def detach(self, run_id: str) -> bool:
        """Nobody waits any more: its end will be announced; False when it has ended meanwhile."""
        if run_id in self._active:
            self._active[run_id].unattended = True
        return run_id in self._active

    def forget_news(self, run_ids: Sequence[str]) -> None:
        """These ends have been reported."""
        self._news = [news for news in self._news if news.run_id not in run_ids]

    def news_for(self, folder: str) -> list[str]:
        """What finished since for clients of that folder; reported once."""
        theirs = [news for news in self._news if news.folder == folder]
        self._news = [news for news in self._news if news.folder != folder]
        return [news.words for news in theirs]

    # --- cancelling -----------------------------------------------------------------------------

    def cancel_soon(self, run_id: str) -> None:
        """Whoever started this run wants it no more; it ends soon."""
        if run_id in self._active:
            self._active[run_id].unattended = False
            self._active[run_id].run.cancel("Its client cancelled the call.")

    async def cancel(self, snapshot: RunSnapshot, why: str = "A model cancelled it.") -> None:
        """End a run for good, or one agent of a group."""
        snapshot.check_of_models("cancel")
        host, record = await self._open(), snapshot.record
        if snapshot.settled:
            return
        if snapshot.label is not None:
            await host.engine.note(
                record.run_id, self._clock.wall(), CANCELLED_ALONE, snapshot.label, {"why": why}
            )
            return
        active = self._active.get(record.run_id)
        if active is None:
            await cancel_run(host, record.run_id, flow=started_agents)
            return
        active.unattended = False
        active.run.cancel(why)
        if active.task is not None:
            await asyncio.wait({active.task})

    # --- the service's life ---------------------------------------------------------------------

    def ask_to_stop(self) -> None:
        """Let agents end their turns; what is not finished goes on when the service runs again."""
        self._stopping = True
        for active in self._active.values():
            active.run.stop(STOPPED)

    async def close(self) -> None:
        """Stop what is still at work; everything finished is kept."""
        self.ask_to_stop()
        for active in list(self._active.values()):
            active.run.stop_now(STOPPED)
        tasks = [each.task for each in self._active.values() if each.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    def wakes(self, record: RunRecord) -> bool:
        """Take up a parked run of ours whose time has come; False when it is none of ours."""
        if self._stopping or not is_of_models(record):
            return False
        task = asyncio.create_task(self._resume_left(record), name=f"waking {record.run_id}")
        _kept.add(task)
        task.add_done_callback(_kept.discard)
        return True

    async def watch(self, has_runs: Callable[[], bool]) -> None:
        """Take up what was left, again and again: also what another process leaves later."""
        while True:
            try:
                if await asyncio.to_thread(has_runs):
                    await self.look_after()
            except JacklineError as error:
                _log.warning("agents cannot be looked after: %s", error.message)
            await self._clock.sleep(_LOOK_AFTER_EVERY)

    async def look_after(self) -> None:
        """Take up what was at work when a service died, or was stopped."""
        host = await self._open()
        for record in await host.engine.runs(states=(RunState.RUNNING, RunState.STOPPED)):
            if self._stopping or not is_of_models(record) or not record.trusted:
                continue
            left = record.state is RunState.RUNNING or record.why == STOPPED
            here = record.run_id in self._active
            if left and not here and not self._is_held(record):
                wake = decode_settings(record.settings).wake
                now = self._clock.now()
                if may_wake(now, replace(record, wake_at=now.timestamp()), wake).now:
                    await self._resume_left(record)

    async def _resume_left(self, record: RunRecord) -> None:
        host = await self._open()
        snapshot = await RunSnapshot.load(host.engine, record)
        if max((call.attempts for call in snapshot.calls), default=0) >= _MOST_BEGINNINGS:
            _log.warning(
                "the run %s was begun %d times and is left: jackline resume %s",
                *(record.run_id, _MOST_BEGINNINGS, record.run_id),
            )
            return
        listener = _RunListener()
        try:
            run = await begin_resume(
                host,
                record.run_id,
                settings=_limited(host, record),
                flow=started_agents,
                listener=listener,
            )
        except JacklineError as error:
            _log.info("the run %s is not taken up: %s", record.run_id, error.message)
            return
        if isinstance(run, FlowRun):
            _log.info("going on with the agents of run %s", record.run_id)
            self._start(_ActiveRun(run, listener, record.cwd, None, unattended=True))


def _limited(host: FlowHost, record: RunRecord) -> RunSettings:
    """The run's own settings, and the limits that the user has set since it was begun."""
    own = decode_settings(record.settings)
    newer = [budget for budget in host.settings.budgets if budget not in own.budgets]
    return replace(own, budgets=(*own.budgets, *newer))


_kept: set[asyncio.Task[None]] = set()
"""Wakings under way; held, since the loop itself holds tasks only weakly."""


async def _either(changed: asyncio.Event, pause: Awaitable[None]) -> None:
    tasks = [asyncio.ensure_future(changed.wait()), asyncio.ensure_future(pause)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
