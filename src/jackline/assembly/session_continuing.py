"""Continue sessions of Claude Code at the reset of the wall that ended them, if the user consents.

Laws: (1) nothing unless the configuration says so; (2) one session is continued once: whoever asks
again while it waits or works is passed over; (3) it waits as a parked run, so that every brake on
waking holds, `ls --parked` shows it and `cancel` ends it; (4) a session that is still open is left
alone, at the latest when its time has come.
Not here: waking it (waking.py), carrying it (mcp_server/agent_desk.py), hearing of it (hooks/).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from jackline.agents.process.marks import Mark, mark_of
from jackline.clock import Clock
from jackline.errors import JacklineError
from jackline.failures import Failure, Kind
from jackline.failures.sentences import moment_in_words, name_of
from jackline.flows.host import FlowHost
from jackline.flows.orders import new_owner, new_run_id
from jackline.flows.records import RunRecord, RunState
from jackline.flows.settings import encode_settings
from jackline.hooks.asked import HookAsked
from jackline.mcp_server.flow.started_agents import started_agents

_log = logging.getLogger("jackline")
# So that all sessions of one wall do not come back in the same second.
_SPREAD = 30.0
_LEASE = 5.0
_WAITS = (RunState.PARKED, RunState.RUNNING, RunState.STOPPED)


class SessionContinuing:
    """Hears of sessions that ended at a wall, and lets them go on after it."""

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
        self._work: set[asyncio.Task[None]] = set()

    def stopped(self, told: HookAsked, failure: Failure, processes: tuple[int, ...]) -> None:
        """A session died of an API error."""
        if not self._consents() or failure.kind is not Kind.ACCOUNT_QUOTA:
            return
        if failure.resets_at is None or not told.session_id or not told.cwd:
            return
        task = asyncio.get_running_loop().create_task(self._park(told, failure, processes))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _park(self, told: HookAsked, failure: Failure, processes: tuple[int, ...]) -> None:
        try:
            host = await self._host()
            if not await self._is_waiting(host, told.session_id):
                marks = [await asyncio.to_thread(mark_of, pid) for pid in processes]
                await self._keep(host, told, failure, marks)
        except JacklineError as error:
            _log.warning("session %s cannot be continued: %s", told.session_id, error.message)

    async def _is_waiting(self, host: FlowHost, session: str) -> bool:
        for run in await host.engine.runs(states=_WAITS):
            if run.flow == started_agents.name:
                orders = json.loads(run.arguments)["orders"]
                if any(order.get("resume") == session for order in orders):
                    return True
        return False

    async def _keep(
        self, host: FlowHost, told: HookAsked, failure: Failure, marks: list[Mark]
    ) -> None:
        if failure.resets_at is None:
            return
        now = self._clock.now()
        wake_at = failure.resets_at.timestamp() + self._draw() * _SPREAD
        cause = name_of(failure)
        order = {
            "prompt": f"You were cut off by {cause}, which has reset by now. Go on with your task"
            " from where you were, to its end.",
            "label": f"session {told.session_id[:8]}",
            "runner": "claude-code",
            "cwd": told.cwd,
            "resume": told.session_id,
            "lived_in": [[mark.pid, mark.began] for mark in marks],
        }
        record = RunRecord(
            new_run_id(),
            started_agents.name,
            started_agents.source,
            json.dumps({"orders": [order]}).encode(),
            encode_settings(host.settings),
            cwd=told.cwd,
            created_at=now.timestamp(),
            updated_at=now.timestamp(),
        )
        claim = await host.engine.create(record, owner=new_owner(), lease=_LEASE)
        why = f"session {told.session_id} was cut off by {cause}"
        parked = replace(record, state=RunState.PARKED, why=why, wake_at=wake_at)
        await host.engine.let_go(claim, parked)
        when = moment_in_words(failure.resets_at, now)
        _log.info("%s; it goes on %s, as run %s", why, when, record.run_id)
