"""Answer `/_jackline/hook` and `/_jackline/statusline` on the service's port.

Rules: (1) only a request with the control token is parsed and answered; the hooks' own token allows
only the report of an end, of a session that is known; (2) an invalid hook gets an empty answer,
which changes nothing for the client; (3) a result is rewritten only on evidence that the sub-agent
died, never because its text looks like an error; its shape stays, only its text changes; (4) an
error that the gateway passed to a session's main thread also reports its end: a client that shuts
down does not wait for its hooks.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import Callable
from typing import TypeAlias

from jackline.clock import Clock
from jackline.control.http_handler import ServiceRequest
from jackline.failures import Observation, Where, classify
from jackline.hooks.agent_deaths import (
    Death,
    DeathCause,
    DeathFinder,
    Deaths,
    KnownSessions,
    LatestCalls,
    StoppedSession,
)
from jackline.hooks.agent_ends import AgentEndTracker
from jackline.hooks.hook_input import HEADER, PATH, HookInput, ReportedEnd, parse_hook_input

HOOK = PATH.encode()
LINE = b"/_jackline/statusline"
PROCESSES = b"x-jackline-processes"
SessionStopped: TypeAlias = Callable[[StoppedSession], None]
"""Called with a session that died of an API error."""
_AGENT_TOOLS = ("Agent", "Task")
_NOTHING: dict[str, object] = {}
_log = logging.getLogger(__name__)


class HooksEndpoint:
    """Answers the client's hooks and its status line."""

    def __init__(
        self,
        clock: Clock,
        trusts: Callable[[ServiceRequest], bool],
        line: Callable[[str], str],
        session_stopped: SessionStopped,
        calls: LatestCalls,
        http_token: str,
        ends: AgentEndTracker,
    ) -> None:
        self._clock = clock
        self._trusts = trusts
        self._line = line
        self._session_stopped = session_stopped
        self._http_token = http_token.encode()
        self._calls = calls
        self._ends = ends
        self._deaths = Deaths()
        self._sessions = KnownSessions()
        self._finder = DeathFinder(self._deaths, calls, clock)
        self._answers: set[asyncio.Task[None]] = set()
        calls.on_wall = self._main_thread_stopped

    def knows(self, request: ServiceRequest) -> bool:
        """Whether this is a request of a hook or of a status line."""
        return request.path in (HOOK, LINE)

    def answer(self, request: ServiceRequest) -> None:
        """Answer it, perhaps after reading a transcript."""
        if not self._trusts(request):
            self._answer_untrusted(request)
            return
        hook = parse_hook_input(bytes(request.body))
        if request.path == LINE:
            line = self._line("" if hook is None else hook.session_id).encode()
            request.respond(200, [(b"content-type", b"text/plain; charset=utf-8")], line)
            return
        if hook is None:
            self._respond(request, _NOTHING)
            return
        pids = (request.header(PROCESSES) or b"").split(b",")
        processes = tuple(int(pid) for pid in pids if pid.isdigit() and len(pid) < 10)
        self._ends.on_hook(hook, processes)
        self._sessions.add(hook, processes)
        task = asyncio.get_running_loop().create_task(self._answer_hook(request, hook))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    def _answer_untrusted(self, request: ServiceRequest) -> None:
        token = request.header(HEADER.encode()) or b""
        # Without a token nothing is parsed: anybody may send megabytes of small values.
        if hmac.compare_digest(token, self._http_token) and request.path == HOOK:
            hook = parse_hook_input(bytes(request.body))
            if hook is not None and hook.hook_event_name == "StopFailure":
                self._stop_failed(hook)
                self._respond(request, _NOTHING)
                return
        text = b"the control token is needed\n"
        request.respond(401, [(b"content-type", b"text/plain")], text)

    def _respond(self, request: ServiceRequest, answer: dict[str, object]) -> None:
        # The client goes on after an empty body.
        body = json.dumps(answer).encode() if answer else b""
        request.respond(200, [(b"content-type", b"application/json")], body)

    async def _answer_hook(self, request: ServiceRequest, hook: HookInput) -> None:
        answer = _NOTHING
        try:
            answer = await self._decide(hook)
        finally:
            self._respond(request, answer)

    async def _decide(self, hook: HookInput) -> dict[str, object]:
        event = hook.hook_event_name
        if event == "StopFailure":
            self._stop_failed(hook)
        elif event == "SubagentStart" and hook.agent_id is not None:
            self._deaths.remove(hook.session_id, hook.agent_id)
        elif event == "PostToolUse" and hook.tool_name in _AGENT_TOOLS:
            ended = hook.returned_agent
            death = None if ended is None else await self._finder.find(hook, ended)
            if death is not None:
                return hook.rewritten_result(self._report(death))
        elif hook.agent_id is None:  # sub-agents are not the parents of their siblings
            deaths = await self._unreported(hook)
            return hook.added_context([self._report(death) for death in deaths])
        return _NOTHING

    async def _unreported(self, hook: HookInput) -> list[Death]:
        """Each death that this parent does not know yet."""
        ended = {each.agent: each for each in hook.notified_agents}
        others = []
        if hook.hook_event_name == "PostToolUseFailure":
            others.append(await asyncio.to_thread(hook.started_agent))
        others += [death.agent for death in self._deaths.unreported(hook.session_id)]
        for agent in filter(None, others):
            ended.setdefault(agent, ReportedEnd(agent, failed=True, text=""))
        found = await asyncio.gather(*(self._finder.find(hook, each) for each in ended.values()))
        deaths = []
        for death in filter(None, found):
            reported_at = self._deaths.reported_at(death.session, death.agent)
            call = self._calls.of(death.session, death.agent)
            # Reported already, unless it went on since and died again.
            if reported_at is None or (call is not None and call.answered_at >= reported_at):
                deaths.append(death)
        return deaths

    def _report(self, death: Death) -> str:
        self._deaths.mark_reported(death, self._clock.steady())
        _log.info("sub-agent %s died: reported to its parent", death.agent)
        return death.text(self._clock.now())

    def _stop_failed(self, hook: HookInput) -> None:
        text = hook.last_assistant_message or hook.error or ""
        failure = classify(Observation(Where.CLI_TEXT, text=text), now=self._clock.now())
        cause = DeathCause.of(failure)
        if hook.agent_id is not None:
            death = Death(hook.session_id, hook.agent_id, cause)
            self._deaths.add(death, self._clock.steady())
        else:
            self._main_thread_stopped(hook.session_id, cause)

    def _main_thread_stopped(self, session: str, cause: DeathCause) -> None:
        known = self._sessions.of(session)
        # Without a trusted hook nobody knows the folder of the session.
        if known is None or not self._sessions.is_new_stop(session, cause, self._clock.steady()):
            return
        call = self._calls.of(session)
        model, run = ("", None) if call is None else (call.model, call.tag)
        self._session_stopped(StoppedSession(known, cause, model, run))
