"""Carry the agents that models start: begin, wait, look, cancel, and take up what was left.

Laws: (1) what is told of an agent is what is kept of it; (2) nobody's leaving ends an agent: only
an order to cancel does; (3) an agent that ended while nobody waited is announced once; (4) a run
that another process carries is left to it; (5) nothing is taken up again past its brakes, and
nothing for ever: what has been begun too often waits for a person; (6) who asks hears only of runs
in folders that it sees, any other is unknown; (7) runs of the user's own flows are looked at, and
neither ended nor gone on with: their code has no place in this process.
Not here: what is asked for (agent_orders.py), words (agent_words.py), the store (assembly/).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from jackline.agents.outcome import Outcome
from jackline.clock import Clock
from jackline.errors import JacklineError, UnreadableError, UsageError
from jackline.flows.host import FlowHost
from jackline.flows.orders import begin_resume, begin_retry, begin_run, cancel_run
from jackline.flows.records import ENDED, RunRecord, RunState
from jackline.flows.running import FlowRun
from jackline.flows.settings import decode_settings
from jackline.flows.waking import may_wake
from jackline.mcp_server.flow.started_agents import CANCELLED_ALONE, started_agents
from jackline.mcp_server.model_tool import JsonObject, Progress
from jackline.mcp_server.places import Sight
from jackline.mcp_server.run_hearing import RunHearing
from jackline.mcp_server.run_look import (
    STOPPED,
    Look,
    is_held,
    is_of_models,
    looked,
    must_be_of_models,
)

_BEAT = 15.0
"""A sign of life for the client; Claude Code waits 5 min at the least without one."""
_LOOK_EVERY = 1.0
_MOST_BEGINNINGS = 5
_LISTED = 20
_MOST_NEWS = 200
GOING_ON = ("continue_from", "resume", "continues")
"""The parts of an order that name whom it goes on from."""

_log = logging.getLogger("jackline")


@dataclass(slots=True)
class _Carried:
    """A run that this process carries."""

    run: FlowRun[Any]
    hearing: RunHearing
    folder: str
    say: Progress | None
    unheard: bool
    """Whether nobody waits for it, so that its end has to be announced."""
    task: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class _News:
    run_id: str
    folder: str
    words: str


class AgentDesk:
    """All agents that models have started on this machine; `watch` runs while the service does."""

    def __init__(self, host: Callable[[], Awaitable[FlowHost]], clock: Clock) -> None:
        self._open = host
        self._clock = clock
        self._carried: dict[str, _Carried] = {}
        self._news: list[_News] = []
        self._stopping = False

    # --- starting -------------------------------------------------------------------------------

    async def begin(
        self, orders: Sequence[JsonObject], *, folder: str, background: bool, say: Progress
    ) -> str:
        """A new run of these orders; its id. It is kept when this returns."""
        host = await self._host()
        given = {"orders": list(orders)}
        hearing = RunHearing()
        run = await begin_run(
            host,
            started_agents,
            json.dumps(given, ensure_ascii=False).encode("utf-8", "surrogatepass"),
            listener=hearing,
            cwd=folder,
        )
        return self._carry(run, hearing, folder=folder, say=say, unheard=background)

    async def go_on(self, look: Look, *, say: Progress, background: bool) -> str:
        """Take a run up again that has stopped or failed; with a label only that agent's part."""
        must_be_of_models(look.record, "resume")
        host = await self._host()
        hearing, run_id = RunHearing(), look.record.run_id
        if look.record.state is RunState.FINISHED:
            run: FlowRun[Any] = await begin_retry(
                host, run_id, only=look.label, flow=started_agents, listener=hearing
            )
        else:
            found = await begin_resume(host, run_id, flow=started_agents, listener=hearing)
            if isinstance(found, Outcome):
                raise UsageError(
                    f"The run {run_id} was cancelled.", next="Start a new agent with its prompt."
                )
            run = found
        return self._carry(run, hearing, folder=look.record.cwd, say=say, unheard=background)

    async def _host(self) -> FlowHost:
        if self._stopping:
            raise UsageError("The service is stopping.", next="Ask again when it runs again.")
        return await self._open()

    def _carry(
        self,
        run: FlowRun[Any],
        hearing: RunHearing,
        *,
        folder: str,
        say: Progress | None,
        unheard: bool,
    ) -> str:
        carried = _Carried(run, hearing, folder, say, unheard)
        self._carried[run.run_id] = carried
        carried.task = asyncio.create_task(self._carried_out(carried), name=f"run {run.run_id}")
        return run.run_id

    async def _carried_out(self, carried: _Carried) -> None:
        run_id = carried.run.run_id
        try:
            outcome = await carried.run.carry()
        except JacklineError as error:
            _log.warning("the run %s is carried no more: %s", run_id, error.message)
            return
        finally:
            del self._carried[run_id]
            carried.hearing.wake()
        if carried.unheard and carried.run.state in ENDED:
            await self._announce(carried, outcome)

    async def _announce(self, carried: _Carried, outcome: Outcome[Any]) -> None:
        run_id, tally = carried.run.run_id, outcome.tally
        how = f"{tally.ok} of {tally.agents} ok" if tally.agents > 1 else str(outcome.terminated_by)
        words = f"run {run_id}: {how}"
        self._news = [*self._news[-_MOST_NEWS:], _News(run_id, carried.folder, words)]
        if carried.say is not None:
            await carried.say(f"A background agent has finished, {words}. Ask agent_status for it.")

    # --- looking and waiting --------------------------------------------------------------------

    async def look(self, named: str, sees: Sight) -> Look:
        """The run or agent of this id: a run's, a task's, or a session's, where one sees it."""
        engine = (await self._open()).engine
        call = await engine.find_task(named) or await engine.find_session(named)
        record = await engine.run(named if call is None else call.run_id)
        if record is None or not sees(record.cwd):
            raise UnreadableError(
                f"There is no agent {named!r} in this project.",
                next="agent_status without ids lists the latest. The user can look at other"
                " projects' agents in a terminal: jackline show ID",
            )
        look = self._with_present(await looked(engine, record))
        return look if call is None or len(look.calls) < 2 else replace(look, label=call.label)

    async def latest(self, sees: Sight) -> list[Look]:
        """The latest runs that models have started and one sees, the newest first."""
        engine = (await self._open()).engine
        theirs = [run for run in await engine.runs() if is_of_models(run)]
        runs = [run for run in theirs if sees(run.cwd)]
        return [self._with_present(await looked(engine, run)) for run in runs[:_LISTED]]

    def _with_present(self, look: Look) -> Look:
        carried = self._carried.get(look.record.run_id)
        return look if carried is None else replace(look, under_way={**carried.hearing.view.agents})

    async def gone_on_with(self, names: Collection[str]) -> list[RunRecord]:
        """The runs that go on from one of these tasks, sessions or sub-agents, or did."""
        engine = (await self._open()).engine
        return [
            record
            for record in await engine.runs()
            for order in Look(record, ()).orders
            if not {order.get(name) for name in GOING_ON}.isdisjoint(names)
        ]

    async def depth_of(self, session: str) -> int:
        """How many agents deep this session of a client is; 0 for one that a person opened."""
        engine = (await self._open()).engine
        call = await engine.find_session(session) if session else None
        record = None if call is None else await engine.run(call.run_id)
        if call is None or record is None:
            return 0
        # An agent of a user's own flow is one deep.
        theirs = [each for each in Look(record, ()).orders if each["label"] == call.label]
        return next((int(str(order.get("depth", 1))) for order in theirs), 1)

    def is_carried(self, look: Look) -> bool:
        """Whether a living process carries this run, as far as one can know."""
        record = look.record
        return record.run_id in self._carried or is_held(record, self._clock.wall())

    async def wait(
        self,
        ids: Sequence[str],
        sees: Sight,
        *,
        seconds: float,
        all_of_them: bool,
        progress: Progress,
    ) -> list[Look]:
        """How these stand, when all (or one) have settled, rest for longer, or the time is over."""
        clock = self._clock
        until, beat = clock.monotonic() + seconds, clock.monotonic() + _BEAT
        changed = asyncio.Event()
        heard: list[RunHearing] = []
        with ExitStack() as stack:
            while True:
                changed.clear()
                looks = [await self.look(each, sees) for each in ids]
                now = clock.monotonic()
                if now >= until or self._is_enough(looks, all_of_them, clock.wall() + until - now):
                    return looks
                here = [self._carried.get(look.record.run_id) for look in looks]
                for carried in here:
                    if carried is not None and carried.hearing not in heard:
                        heard.append(carried.hearing)
                        carried.hearing.add(changed)
                        stack.callback(carried.hearing.remove, changed)
                # Runs of other processes tell nothing: they are looked at.
                pause = _LOOK_EVERY if None in here else beat - now
                await _either(changed, clock.sleep(max(0.0, min(pause, until - now))))
                if clock.monotonic() >= beat:
                    beat = clock.monotonic() + _BEAT
                    words = [each.hearing.words for each in here if each is not None]
                    await progress("; ".join(words) or "carried by another process")

    def _is_enough(self, looks: Sequence[Look], all_of_them: bool, until: float) -> bool:
        settled = [self._is_through(look) for look in looks]
        if all(settled) or (any(settled) and not all_of_them):
            return True
        rests = [look.rests_beyond(until) for look in looks]
        return all(one or other for one, other in zip(settled, rests, strict=True))

    def _is_through(self, look: Look) -> bool:
        """Whether it has settled, and its clean-up is done: nobody is told of an end before."""
        cleans_up = look.record.state in ENDED and look.record.run_id in self._carried
        return look.settled and not cleans_up

    def leave(self, run_id: str) -> bool:
        """Nobody waits any more: its end will be announced; False when it has ended meanwhile."""
        if run_id in self._carried:
            self._carried[run_id].unheard = True
        return run_id in self._carried

    def forget_news(self, run_ids: Sequence[str]) -> None:
        """These ends have been told."""
        self._news = [news for news in self._news if news.run_id not in run_ids]

    def news_for(self, folder: str) -> list[str]:
        """What finished since for clients of that folder; told once."""
        theirs = [news for news in self._news if news.folder == folder]
        self._news = [news for news in self._news if news.folder != folder]
        return [news.words for news in theirs]

    # --- cancelling -----------------------------------------------------------------------------

    def take_back(self, run_id: str) -> None:
        """Whoever started this run wants it no more; it ends soon."""
        if run_id in self._carried:
            self._carried[run_id].unheard = False
            self._carried[run_id].run.cancel("Its client cancelled the call.")

    async def cancel(self, look: Look, why: str = "A model cancelled it.") -> None:
        """End a run for good, or one agent of a group."""
        must_be_of_models(look.record, "cancel")
        host, record = await self._open(), look.record
        if look.settled:
            return
        if look.label is not None:
            await host.engine.note(
                record.run_id, self._clock.wall(), CANCELLED_ALONE, look.label, {"why": why}
            )
            return
        carried = self._carried.get(record.run_id)
        if carried is None:
            await cancel_run(host, record.run_id, flow=started_agents)
            return
        carried.unheard = False
        carried.run.cancel(why)
        if carried.task is not None:
            await asyncio.wait({carried.task})

    # --- the service's life ---------------------------------------------------------------------

    def ask_to_stop(self) -> None:
        """Let agents end their turns; what is not finished goes on when the service runs again."""
        self._stopping = True
        for carried in self._carried.values():
            carried.run.stop(STOPPED)

    async def close(self) -> None:
        """Stop what is still at work; everything finished is kept."""
        self.ask_to_stop()
        for carried in list(self._carried.values()):
            carried.run.stop_now(STOPPED)
        tasks = [each.task for each in self._carried.values() if each.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    def wakes(self, record: RunRecord) -> bool:
        """Take up a parked run of ours whose time has come; False when it is none of ours."""
        if self._stopping or not is_of_models(record):
            return False
        task = asyncio.create_task(self._take_up(record), name=f"waking {record.run_id}")
        _kept.add(task)
        task.add_done_callback(_kept.discard)
        return True

    async def look_after(self) -> None:
        """Take up what was at work when a service died, or was stopped."""
        host = await self._open()
        for record in await host.engine.runs(states=(RunState.RUNNING, RunState.STOPPED)):
            if self._stopping or not is_of_models(record) or not record.trusted:
                continue
            left = record.state is RunState.RUNNING or record.why == STOPPED
            here = record.run_id in self._carried
            if left and not here and not is_held(record, self._clock.wall()):
                wake = decode_settings(record.settings).wake
                now = self._clock.now()
                if may_wake(now, replace(record, wake_at=now.timestamp()), wake).now:
                    await self._take_up(record)

    async def _take_up(self, record: RunRecord) -> None:
        host = await self._open()
        look = await looked(host.engine, record)
        if max((call.attempts for call in look.calls), default=0) >= _MOST_BEGINNINGS:
            _log.warning(
                "the run %s was begun %d times and is left: jackline resume %s",
                *(record.run_id, _MOST_BEGINNINGS, record.run_id),
            )
            return
        hearing = RunHearing()
        try:
            run = await begin_resume(host, record.run_id, flow=started_agents, listener=hearing)
        except JacklineError as error:
            _log.info("the run %s is not taken up: %s", record.run_id, error.message)
            return
        if isinstance(run, FlowRun):
            _log.info("going on with the agents of run %s", record.run_id)
            self._carry(run, hearing, folder=record.cwd, say=None, unheard=True)


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
