"""Answer `/_jackline/hook` and `/_jackline/statusline` on the service's port.

Laws: (1) only who knows the control token is answered; (2) files are read off the event loop; (3) a
hook that makes no sense gets an empty answer, which changes nothing for the client.
Not here: what is decided (answering.py), the line's words (control/statusline.py).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

from jackline.agents.claude_code.dead_agent import DeadAgent, read_dead_agent
from jackline.autopsy.story import Ending as StoryEnding
from jackline.clock import Clock
from jackline.control.face import Asked
from jackline.errors import UnreadableError
from jackline.failures import Failure, Observation, Where, classify
from jackline.hooks.answering import added, death_words, rewritten
from jackline.hooks.asked import HookAsked, read_asked
from jackline.hooks.deaths import Death, Deaths

HOOK = b"/_jackline/hook"
LINE = b"/_jackline/statusline"
PROCESSES = b"x-jackline-processes"
SessionStopped: TypeAlias = Callable[[HookAsked, Failure, tuple[int, ...]], None]
"""Hears of a session that died of an API error, with the processes in which it lived."""
# Less than the time limit of the plugin's hooks (clients/plugin_files.py).
_LATE_S = 2.0
_LOOK_AGAIN_S = 0.05
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
    ) -> None:
        self._clock = clock
        self._trusts = trusts
        self._line = line
        self._session_stopped = session_stopped
        self._deaths = Deaths()
        self._answers: set[asyncio.Task[None]] = set()

    def knows(self, asked: Asked) -> bool:
        """Whether this is a hook's or a status line's question."""
        return asked.path in (HOOK, LINE)

    def answer(self, asked: Asked) -> None:
        """Answer it, perhaps after a look at a transcript."""
        if not self._trusts(asked):
            asked.respond(401, [(b"content-type", b"text/plain")], b"the control token is needed\n")
            return
        told = read_asked(bytes(asked.body))
        if asked.path == LINE:
            words = self._line("" if told is None else told.session_id)
            asked.respond(200, [(b"content-type", b"text/plain; charset=utf-8")], words.encode())
            return
        if told is None:
            _tell(asked, _NOTHING)
            return
        task = asyncio.get_running_loop().create_task(self._hook(asked, told))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _hook(self, asked: Asked, told: HookAsked) -> None:
        answer = _NOTHING
        try:
            answer = await self._decided(told, _processes(asked))
        finally:
            _tell(asked, answer)

    async def _decided(self, told: HookAsked, processes: tuple[int, ...]) -> dict[str, object]:
        event = told.hook_event_name
        if event == "StopFailure":
            self._stop_failed(told, processes)
            return _NOTHING
        if event == "SubagentStart" and told.agent_id is not None:
            self._deaths.revived(told.session_id, told.agent_id)
            return _NOTHING
        if event == "PostToolUse" and told.tool_name in ("Agent", "Task"):
            return await self._agent_came_back(told)
        if told.agent_id is not None:
            return _NOTHING  # sub-agents are not the parents of their siblings
        return added(told, [words async for words in self._untold(told)])

    async def _untold(self, told: HookAsked) -> AsyncIterator[str]:
        """Words on each death that this parent does not know of yet."""
        heard = {death.agent: death for death in self._deaths.tell_all(told.session_id)}
        # What the client tells itself may come before the hook of that death has reached us.
        known = [*heard, *told.notified]
        if told.hook_event_name == "PostToolUseFailure":
            started = await asyncio.to_thread(told.started_agent)
            known += [started] if started else []
        for agent in dict.fromkeys(known):
            left = await asyncio.to_thread(_left, told, agent)
            death = heard.get(agent) or _by_transcript(told, left)
            if death is not None:
                yield death_words(death, left, self._clock.now())

    def _stop_failed(self, told: HookAsked, processes: tuple[int, ...]) -> None:
        text = told.last_assistant_message or told.error or ""
        failure = classify(Observation(Where.CLI_TEXT, text=text), now=self._clock.now())
        if told.agent_id is not None:
            self._deaths.heard(Death(told.session_id, told.agent_id, failure))
        else:
            self._session_stopped(told, failure, processes)

    async def _agent_came_back(self, told: HookAsked) -> dict[str, object]:
        agent = told.sub_agent
        if agent is None:
            return _NOTHING
        left = await asyncio.to_thread(_left, told, agent)
        waits_until = self._clock.monotonic() + _LATE_S
        while told.came_to_an_end and (left is None or left.story.ending is StoryEnding.CUT):
            # The client calls this hook before it has written, or told, how the agent ended.
            if self._clock.monotonic() >= waits_until:
                break
            await self._clock.sleep(_LOOK_AGAIN_S)
            left = await asyncio.to_thread(_left, told, agent)
        death = self._deaths.tell(told.session_id, agent) or _by_transcript(told, left)
        if death is None:
            return _NOTHING
        _log.info("sub-agent %s died: its parent is told so", agent)
        return rewritten(told, death_words(death, left, self._clock.now()))


def _left(told: HookAsked, agent: str) -> DeadAgent | None:
    path = told.transcript_of(agent)
    try:
        return None if path is None else read_dead_agent(path)
    except UnreadableError:
        return None  # the client has not written it yet, or writes none


def _by_transcript(told: HookAsked, left: DeadAgent | None) -> Death | None:
    """The death that the agent's own transcript tells, where no hook was heard."""
    if left is None or left.story.ending is not StoryEnding.FAILED:
        return None
    fatal = [each for each in left.story.sightings if each.fatal]
    return Death(told.session_id, left.agent_id, fatal[-1].failure) if fatal else None


def _processes(asked: Asked) -> tuple[int, ...]:
    told = (asked.header(PROCESSES) or b"").split(b",")
    return tuple(int(each) for each in told if each.isdigit() and len(each) < 10)


def _tell(asked: Asked, answer: dict[str, object]) -> None:
    # Nothing to say is an empty body: the client takes it for "go on".
    body = json.dumps(answer).encode() if answer else b""
    asked.respond(200, [(b"content-type", b"application/json")], body)
