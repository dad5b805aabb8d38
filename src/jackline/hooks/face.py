"""Answer `/_jackline/hook` and `/_jackline/statusline` on the service's port.

Laws: (1) only who knows the control token is answered; the hooks' own token is good for news of an
end alone, and of a session that was met before; (2) a hook that makes no sense gets an empty
answer, which changes nothing for the client; (3) what the gateway handed to a session's main
thread is news of its end, too: a client that shuts down does not wait for its hooks.
Not here: whether an agent died (finding_deaths.py), what is said (answering.py), the line's words
(control/statusline.py).
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import Callable
from typing import TypeAlias

from jackline.clock import Clock
from jackline.control.face import Asked
from jackline.failures import Observation, Where, classify
from jackline.hooks.answering import added, death_words, rewritten
from jackline.hooks.asked import Ended, HookAsked, read_asked
from jackline.hooks.deaths import Cause, Death, Deaths
from jackline.hooks.fates import CallFates
from jackline.hooks.finding_deaths import DeathFinder, Found
from jackline.hooks.http_token import HEADER, PATH
from jackline.hooks.sessions import SessionsMet, Stopped

HOOK = PATH.encode()
LINE = b"/_jackline/statusline"
PROCESSES = b"x-jackline-processes"
SessionStopped: TypeAlias = Callable[[Stopped], None]
"""Hears of a session that died of an API error."""
_AGENT_TOOLS = ("Agent", "Task")
_NOTHING: dict[str, object] = {}
_log = logging.getLogger(__name__)


class HooksFace:
    """What the client's hooks and its status line ask."""

    def __init__(
        self,
        clock: Clock,
        trusts: Callable[[Asked], bool],
        line: Callable[[str], str],
        session_stopped: SessionStopped,
        fates: CallFates,
        http_token: str,
    ) -> None:
        self._clock = clock
        self._trusts = trusts
        self._line = line
        self._session_stopped = session_stopped
        self._http_token = http_token.encode()
        self._fates = fates
        self._deaths = Deaths()
        self._sessions = SessionsMet()
        self._finder = DeathFinder(self._deaths, fates, clock)
        self._answers: set[asyncio.Task[None]] = set()
        fates.on_wall = self._main_thread_stopped

    def knows(self, asked: Asked) -> bool:
        """Whether this is a hook's or a status line's question."""
        return asked.path in (HOOK, LINE)

    def answer(self, asked: Asked) -> None:
        """Answer it, perhaps after a look at a transcript."""
        told = read_asked(bytes(asked.body))
        if not self._trusts(asked):
            if told is not None and self._is_news(asked, told):
                self._stop_failed(told)
                _tell(asked, _NOTHING)
            else:
                words = b"the control token is needed\n"
                asked.respond(401, [(b"content-type", b"text/plain")], words)
            return
        if asked.path == LINE:
            words = self._line("" if told is None else told.session_id).encode()
            asked.respond(200, [(b"content-type", b"text/plain; charset=utf-8")], words)
            return
        if told is None:
            _tell(asked, _NOTHING)
            return
        self._sessions.meet(told, _processes(asked))
        task = asyncio.get_running_loop().create_task(self._hook(asked, told))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    def _is_news(self, asked: Asked, told: HookAsked) -> bool:
        """Whether it is an HTTP hook of the plugin's, with the news of an end."""
        given = asked.header(HEADER.encode()) or b""
        is_ours = hmac.compare_digest(given, self._http_token)
        return is_ours and asked.path == HOOK and told.hook_event_name == "StopFailure"

    async def _hook(self, asked: Asked, told: HookAsked) -> None:
        answer = _NOTHING
        try:
            answer = await self._decided(told)
        finally:
            _tell(asked, answer)

    async def _decided(self, told: HookAsked) -> dict[str, object]:
        event = told.hook_event_name
        if event == "StopFailure":
            self._stop_failed(told)
            return _NOTHING
        if event == "SubagentStart" and told.agent_id is not None:
            self._deaths.revived(told.session_id, told.agent_id)
            return _NOTHING
        if event == "PostToolUse" and told.tool_name in _AGENT_TOOLS:
            return await self._agent_came_back(told)
        if told.agent_id is not None:
            return _NOTHING  # sub-agents are not the parents of their siblings
        return added(told, [self._words(found) for found in await self._untold(told)])

    async def _untold(self, told: HookAsked) -> list[Found]:
        """Each death that this parent does not know of yet."""
        ended = {each.agent: each for each in told.notified}
        if told.hook_event_name == "PostToolUseFailure":
            started = await asyncio.to_thread(told.started_agent)
            if started is not None:
                ended.setdefault(started, Ended(started, failed=True, words=""))
        for death in self._deaths.untold(told.session_id):
            ended.setdefault(death.agent, Ended(death.agent, failed=True, words=""))
        looks = [self._finder.find(told, each) for each in ended.values()]
        found = [each for each in await asyncio.gather(*looks) if each is not None]
        return [each for each in found if not self._knows_already(each.death)]

    def _knows_already(self, death: Death) -> bool:
        told_at = self._deaths.told_at(death.session, death.agent)
        fate = self._fates.of(death.session, death.agent)
        return told_at is not None and (fate is None or fate.answered_at < told_at)

    def _words(self, found: Found) -> str:
        self._deaths.tell(found.death, self._clock.steady())
        _log.info("sub-agent %s died: its parent is told so", found.death.agent)
        return death_words(found.death, found.left, self._clock.now())

    async def _agent_came_back(self, told: HookAsked) -> dict[str, object]:
        ended = told.came_back
        found = None if ended is None else await self._finder.find(told, ended)
        return _NOTHING if found is None else rewritten(told, self._words(found))

    def _stop_failed(self, told: HookAsked) -> None:
        text = told.last_assistant_message or told.error or ""
        failure = classify(Observation(Where.CLI_TEXT, text=text), now=self._clock.now())
        if told.agent_id is not None:
            death = Death(told.session_id, told.agent_id, Cause.of(failure))
            self._deaths.heard(death, self._clock.steady())
        else:
            self._main_thread_stopped(told.session_id, Cause.of(failure))

    def _main_thread_stopped(self, session: str, cause: Cause) -> None:
        met = self._sessions.of(session)
        # Who was never met lives where nobody whom we trust has told.
        if met is None or not self._sessions.is_news(session, cause, self._clock.steady()):
            return
        fate = self._fates.of(session)
        model, run = ("", None) if fate is None else (fate.model, fate.tag)
        self._session_stopped(Stopped(met, cause, model, run))


def _processes(asked: Asked) -> tuple[int, ...]:
    told = (asked.header(PROCESSES) or b"").split(b",")
    return tuple(int(each) for each in told if each.isdigit() and len(each) < 10)


def _tell(asked: Asked, answer: dict[str, object]) -> None:
    # Nothing to say is an empty body: the client takes it for "go on".
    body = json.dumps(answer).encode() if answer else b""
    asked.respond(200, [(b"content-type", b"application/json")], body)
