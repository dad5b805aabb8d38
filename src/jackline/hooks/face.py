"""Answer `/_jackline/hook` and `/_jackline/statusline` on the service's port.

Rules: (1) only a request with the control token is answered; the hooks' own token allows the news
of an end alone, of a session that is known; (2) a hook that makes no sense gets an empty answer,
which changes nothing for the client; (3) a result is rewritten only on evidence that the sub-agent
died, never because its words look like an error; its shape stays, only its words change; (4) an
error that the gateway passed to a session's main thread is news of its end, too: a client that
shuts down does not wait for its hooks.
Not here: whether an agent died (agent_deaths.py), the status line's words (control/status.py).
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeAlias

from jackline.agents.claude_code.transcript import DeadAgent
from jackline.clock import Clock
from jackline.control.http_handler import ServiceRequest
from jackline.failures import Observation, Where, classify
from jackline.failures.sentences import moment_in_words
from jackline.hooks.agent_deaths import (
    Death,
    DeathCause,
    DeathFinder,
    Deaths,
    FoundDeath,
    KnownSessions,
    LatestCalls,
    StoppedSession,
)
from jackline.hooks.hook_input import HookInput, ReportedEnd, parse_hook_input
from jackline.hooks.http_token import HEADER, PATH

# Events whose answer may add something to what the model reads.
TELLING = frozenset({"PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "SessionStart"})
_MOST_LOST = 3
_LONGEST = 200


def death_words(death: Death, left: DeadAgent | None, now: datetime) -> str:
    """What a parent has to know of a sub-agent that died."""
    resets = death.cause.resets_at
    until = f", resets {moment_in_words(resets, now)}" if resets is not None else ""
    first = (
        f"Sub-agent {death.agent} did not finish: terminated_by {death.terminated_by.value}"
        f" ({death.cause.name}{until}). What it gave back is an error text, not a result."
    )
    words = [first]
    if left is not None and left.turns:
        calls = sum(len(turn.calls) for turn in left.turns)
        words.append(
            f"Before that it had finished {len(left.turns)} turns with {calls} tool calls."
        )
    if left is not None and left.last_words:
        words.append(f"Its last own words: {left.last_words[:_LONGEST]}")
    if left is not None and left.lost:
        names = ", ".join(call.name for call in left.lost[:_MOST_LOST])
        words.append(f"Calls that may or may not have run: {names}.")
    when = "after the reset" if resets is not None and resets > now else "now"
    words.append(
        f"Do not start it again from the beginning: {when}, call the Jackline tool `agent` with"
        f' continue_from_task_id="{death.agent}", which goes on after its last finished turn.'
    )
    return " ".join(words)


def rewritten(asked: HookInput, words: str) -> dict[str, object]:
    """The answer that replaces what the sub-agent's call gave back."""
    told = asked.tool_response
    new = dict(told) if isinstance(told, dict) else {}
    # Nothing else: the client throws away what is not of its tool's own shape, status included.
    new["content"] = [{"type": "text", "text": words}]
    return {
        "hookSpecificOutput": {
            "hookEventName": asked.hook_event_name,
            "updatedToolOutput": new,
            # Also reaches a client that did not take the new output.
            "additionalContext": words.partition(". ")[0] + ".",
        }
    }


def added(asked: HookInput, told: Sequence[str]) -> dict[str, object]:
    """The answer that adds these words; empty where nothing is to be said, or can be."""
    if not told or asked.hook_event_name not in TELLING or asked.agent_id is not None:
        return {}
    return {
        "hookSpecificOutput": {
            "hookEventName": asked.hook_event_name,
            "additionalContext": "\n".join(told),
        }
    }


HOOK = PATH.encode()
LINE = b"/_jackline/statusline"
PROCESSES = b"x-jackline-processes"
SessionStopped: TypeAlias = Callable[[StoppedSession], None]
"""Hears of a session that died of an API error."""
_AGENT_TOOLS = ("Agent", "Task")
_NOTHING: dict[str, object] = {}
_log = logging.getLogger(__name__)


class HooksFace:
    """What the client's hooks and its status line ask."""

    def __init__(
        self,
        clock: Clock,
        trusts: Callable[[ServiceRequest], bool],
        line: Callable[[str], str],
        session_stopped: SessionStopped,
        fates: LatestCalls,
        http_token: str,
    ) -> None:
        self._clock = clock
        self._trusts = trusts
        self._line = line
        self._session_stopped = session_stopped
        self._http_token = http_token.encode()
        self._fates = fates
        self._deaths = Deaths()
        self._sessions = KnownSessions()
        self._finder = DeathFinder(self._deaths, fates, clock)
        self._answers: set[asyncio.Task[None]] = set()
        fates.on_wall = self._main_thread_stopped

    def knows(self, asked: ServiceRequest) -> bool:
        """Whether this is a hook's or a status line's question."""
        return asked.path in (HOOK, LINE)

    def answer(self, asked: ServiceRequest) -> None:
        """Answer it, perhaps after a look at a transcript."""
        told = parse_hook_input(bytes(asked.body))
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

    def _is_news(self, asked: ServiceRequest, told: HookInput) -> bool:
        """Whether it is an HTTP hook of the plugin's, with the news of an end."""
        given = asked.header(HEADER.encode()) or b""
        is_ours = hmac.compare_digest(given, self._http_token)
        return is_ours and asked.path == HOOK and told.hook_event_name == "StopFailure"

    async def _hook(self, asked: ServiceRequest, told: HookInput) -> None:
        answer = _NOTHING
        try:
            answer = await self._decided(told)
        finally:
            _tell(asked, answer)

    async def _decided(self, told: HookInput) -> dict[str, object]:
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

    async def _untold(self, told: HookInput) -> list[FoundDeath]:
        """Each death that this parent does not know of yet."""
        ended = {each.agent: each for each in told.notified}
        if told.hook_event_name == "PostToolUseFailure":
            started = await asyncio.to_thread(told.started_agent)
            if started is not None:
                ended.setdefault(started, ReportedEnd(started, failed=True, words=""))
        for death in self._deaths.untold(told.session_id):
            ended.setdefault(death.agent, ReportedEnd(death.agent, failed=True, words=""))
        looks = [self._finder.find(told, each) for each in ended.values()]
        found = [each for each in await asyncio.gather(*looks) if each is not None]
        return [each for each in found if not self._knows_already(each.death)]

    def _knows_already(self, death: Death) -> bool:
        told_at = self._deaths.told_at(death.session, death.agent)
        fate = self._fates.of(death.session, death.agent)
        return told_at is not None and (fate is None or fate.answered_at < told_at)

    def _words(self, found: FoundDeath) -> str:
        self._deaths.tell(found.death, self._clock.steady())
        _log.info("sub-agent %s died: its parent is told so", found.death.agent)
        return death_words(found.death, found.left, self._clock.now())

    async def _agent_came_back(self, told: HookInput) -> dict[str, object]:
        ended = told.came_back
        found = None if ended is None else await self._finder.find(told, ended)
        return _NOTHING if found is None else rewritten(told, self._words(found))

    def _stop_failed(self, told: HookInput) -> None:
        text = told.last_assistant_message or told.error or ""
        failure = classify(Observation(Where.CLI_TEXT, text=text), now=self._clock.now())
        if told.agent_id is not None:
            death = Death(told.session_id, told.agent_id, DeathCause.of(failure))
            self._deaths.heard(death, self._clock.steady())
        else:
            self._main_thread_stopped(told.session_id, DeathCause.of(failure))

    def _main_thread_stopped(self, session: str, cause: DeathCause) -> None:
        met = self._sessions.of(session)
        # Who was never met lives where nobody whom we trust has told.
        if met is None or not self._sessions.is_news(session, cause, self._clock.steady()):
            return
        fate = self._fates.of(session)
        model, run = ("", None) if fate is None else (fate.model, fate.tag)
        self._session_stopped(StoppedSession(met, cause, model, run))


def _processes(asked: ServiceRequest) -> tuple[int, ...]:
    told = (asked.header(PROCESSES) or b"").split(b",")
    return tuple(int(each) for each in told if each.isdigit() and len(each) < 10)


def _tell(asked: ServiceRequest, answer: dict[str, object]) -> None:
    # Nothing to say is an empty body: the client takes it for "go on".
    body = json.dumps(answer).encode() if answer else b""
    asked.respond(200, [(b"content-type", b"application/json")], body)
