"""Resume sessions of Claude Code at the reset of the quota that ended them, if the user consents.

Rules: (1) nothing unless the configuration says so; (2) one session is resumed once: a second
report while it waits or works is ignored, and a session of a run belongs to the run; (3) it waits
as a parked run, so that every brake on waking applies, `ls --parked` shows it and `cancel` ends
it; (4) a session that is open, or that went on by itself, is left alone: its plan is dropped; (5)
nobody sits before it, so it may do no more unasked than before: one in plan mode is not resumed,
and edits are accepted where the user accepted them.
It is woken by flows/run_processes.py, and run by agent_manager.py.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path

from jackline.agents.process.child import mark_of
from jackline.clock import Clock
from jackline.errors import JacklineError
from jackline.events import CallEnded
from jackline.failures import Kind
from jackline.failures.sentences import moment_in_words
from jackline.flows.host import FlowHost
from jackline.flows.lifecycle import cancel_run, new_run_id
from jackline.flows.records import RunRecord, RunState
from jackline.flows.run_owner import new_owner
from jackline.flows.settings import encode_settings
from jackline.mcp_server.agent_manager import is_of_models
from jackline.mcp_server.flow.started_agents import started_agents

_log = logging.getLogger("jackline")
# So that all sessions of one wall do not come back in the same second.
_SPREAD = 30.0
_LEASE = 5.0
_LOOK_EVERY = 15.0
# A client that dies has calls on the side, and lines to write, for a while.
_DYING_S = 30.0
# Each other mode, also one that is not known, goes on as `default`.
_ACCEPTING_EDITS = ("acceptEdits", "bypassPermissions")


@dataclass(frozen=True, slots=True)
class CutOffSession:
    """A session of Claude Code that died of an API error, or was handed one that mostly ends it."""

    id: str
    cwd: str
    transcript: str
    processes: tuple[int, ...]
    """The processes it may live in."""
    kind: Kind
    cause: str
    """A noun phrase for the middle of a sentence."""
    resets_at: datetime | None
    model: str = ""
    """The model of its latest call; empty without one."""
    run: str | None = None
    """The tag of the run that its calls belong to, if any."""
    mode: str = ""
    """Its permission mode, by Claude Code's name; empty where it is not known."""


@dataclass(slots=True)
class _Plan:
    """A session that waits for its reset."""

    run: str
    planned_at: float
    """By the clock's steady time."""
    model: str
    transcript: Path | None
    written: float | None = None
    """When its transcript was last written, once that has come to rest."""


class SessionResumer:
    """Parks sessions that ended at a wall, so that they are resumed after it."""

    def __init__(
        self,
        consents: Callable[[], bool],
        host: Callable[[], Awaitable[FlowHost]],
        clock: Clock,
        draw: Callable[[], float],
    ) -> None:
        self._consents = consents
        self._host = host
        self._clock = clock
        self._draw = draw
        self._plans: dict[str, _Plan] = {}
        self._one_by_one = asyncio.Lock()
        self._work: set[asyncio.Task[None]] = set()

    def stopped(self, session: CutOffSession) -> str:
        """Plan to resume this session, if its quota resets and the user consents.

        Returns why it is not resumed, where the user may expect it to be; else empty.
        """
        if not self._consents() or session.kind is not Kind.ACCOUNT_QUOTA:
            return ""
        if session.resets_at is not None and session.id not in self._plans:
            if session.mode == "plan":
                return "it was in plan mode and is not continued without you"
            self._spawn(partial(self._park, session, session.resets_at))
        return ""

    def answered(self, event: CallEnded) -> None:
        """The main thread of a session was answered: it goes on by itself, if it was planned."""
        plan = self._plans.get(event.session or "")
        if plan is None or event.tag == plan.run:
            return
        if event.model == plan.model or self._clock.steady() > plan.planned_at + _DYING_S:
            self._spawn(partial(self._drop, event.session or "", plan))

    async def watch(self, has_runs: Callable[[], bool]) -> None:
        """Check what is planned, also what an earlier service has planned."""
        if self._consents() and await asyncio.to_thread(has_runs):
            await self._try(self._load)
        while True:
            await self._clock.sleep(_LOOK_EVERY)
            for session, plan in list(self._plans.items()):
                if await asyncio.to_thread(self._went_on, plan):
                    await self._try(partial(self._drop, session, plan))

    def _went_on(self, plan: _Plan) -> bool:
        """Whether somebody has written on in its transcript since it came to rest."""
        if plan.transcript is None or self._clock.steady() < plan.planned_at + _DYING_S:
            return False
        try:
            written = plan.transcript.stat().st_mtime
        except OSError:
            return False  # gone, or never there: nothing is known
        before, plan.written = plan.written, written
        return before is not None and written != before

    def _spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.get_running_loop().create_task(self._try(work))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _try(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            # Two reports of one session at once must not both plan for it.
            async with self._one_by_one:
                await work()
        except JacklineError as error:
            _log.warning("sessions cannot be continued: %s", error.message)

    async def _park(self, session: CutOffSession, resets_at: datetime) -> None:
        host = await self._host()
        if session.run is not None and await host.engine.run(session.run) is not None:
            return  # that run waits for the reset, and resumes it
        if session.id in await self._planned(host):
            return
        marks = [await asyncio.to_thread(mark_of, pid) for pid in session.processes]
        now = self._clock.now()
        wake_at = resets_at.timestamp() + self._draw() * _SPREAD
        order = {
            "prompt": f"You were cut off by {session.cause}, which has reset by now. Go on with"
            " your task from where you were, to its end.",
            "label": f"session {session.id[:8]}",
            "runner": "claude-code",
            "cwd": session.cwd,
            "project": session.cwd,
            "resume": session.id,
            "accepts_edits": session.mode in _ACCEPTING_EDITS,
            "lived_in": [[mark.pid, mark.began] for mark in marks],
            "transcript": session.transcript,
        }
        record = RunRecord(
            new_run_id(),
            started_agents.name,
            started_agents.source,
            json.dumps({"orders": [order]}).encode(),
            encode_settings(host.settings),
            cwd=session.cwd,
            created_at=now.timestamp(),
            updated_at=now.timestamp(),
        )
        claim = await host.engine.create(record, owner=new_owner(), lease=_LEASE)
        why = f"session {session.id} was cut off by {session.cause}"
        parked = replace(record, state=RunState.PARKED, why=why, wake_at=wake_at)
        await host.engine.let_go(claim, parked)
        transcript = Path(session.transcript) if session.transcript else None
        self._plans[session.id] = _Plan(
            record.run_id, self._clock.steady(), session.model, transcript
        )
        when = moment_in_words(resets_at, now)
        _log.info("%s; it goes on %s, as run %s", why, when, record.run_id)

    async def _planned(self, host: FlowHost) -> dict[str, tuple[RunRecord, str]]:
        """Every session that a run of ours waits or works for, with its transcript's path."""
        found = {}
        for run in await host.engine.runs(
            states=(RunState.PARKED, RunState.RUNNING, RunState.STOPPED)
        ):
            if is_of_models(run) and run.trusted:
                for order in json.loads(run.arguments)["orders"]:
                    if order.get("resume"):
                        found[order["resume"]] = (run, order.get("transcript", ""))
        return found

    async def _load(self) -> None:
        for session, (run, transcript) in (await self._planned(await self._host())).items():
            if transcript and run.state is RunState.PARKED:
                at = min(run.created_at, self._clock.steady())
                self._plans[session] = _Plan(run.run_id, at, "", Path(transcript))

    async def _drop(self, session: str, plan: _Plan) -> None:
        """Cancel a plan whose session went on without us."""
        if self._plans.get(session) is not plan:
            return
        del self._plans[session]
        host = await self._host()
        run = await host.engine.run(plan.run)
        if run is not None and run.state is RunState.PARKED:
            await cancel_run(host, plan.run, flow=started_agents)
            _log.info("session %s went on by itself: run %s is cancelled", session, plan.run)
