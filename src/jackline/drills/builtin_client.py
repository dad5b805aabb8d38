"""Behave on the wire as Claude Code 2.1.197 does, as far as drills need it: one agent with tools.

Laws: (1) headers, retries, fallbacks and limits of patience are the real client's; (2) a tool runs
when its block has ended, whatever comes after; (3) all waiting is in the drill's seconds.
Not here: the numbers (habits.py), what the model says (simulator/), many agents (fleet.py).
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

from jackline.drills.answer import Answer, Block, ErrorEventError, events, from_document
from jackline.drills.binding import ECHO
from jackline.drills.habits import API_KEY, Habits, Move
from jackline.drills.http_exchange import Response, posted
from jackline.drills.pace import Pace
from jackline.drills.record import AgentRecord, End, SeenError

PATH = "/v1/messages?beta=true"
RESET = "anthropic-ratelimit-unified-reset"
TOOL = {
    "name": "Bash",
    "description": "Run a command.",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}},
}
# The real client says this where the vendor's own words are missing.
CUT_SHORT = "API Error: Connection closed mid-response. The response above may be incomplete."
MALFORMED = "API Error: API returned an empty or malformed response (HTTP 200)"
OVERLOADED_AGAIN = "API Error: Repeated 529 Overloaded errors. The API is at capacity"
STALLED = "[Request interrupted by user for tool use]"


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """Who an agent is and what it is asked; without an `agent` it is a session's main thread."""

    label: str
    prompt: str
    last_words: str
    """What the model says at the end; an agent that hears less was misled."""
    model: str = "claude-sonnet-4-6"
    session: str = "drill"
    agent: str = ""
    tool_seconds: float = 1.0
    rounds: int = 1
    """How often its user asks; each time the model ends with the same last words."""
    instructions: str = ""
    """The system prompt; with one, requests are marked for caching as the real client does it."""
    tool_prints: str = ""
    """What each result of a tool ends with."""
    resumed_after: float | None = None
    """When its user lets it go on after it has died; nobody does if None."""


class _Message(TypedDict):
    role: str
    content: list[Block]


class _GaveUpError(Exception):
    """The client has given up on its call; the text is what its user is told."""


class _AskWholeError(Exception):
    """The stream is of no use; the same shall be asked for in one piece."""


class BuiltinClient:
    """One agent; `run` takes it to its end, `record` tells how far it is at any time."""

    def __init__(
        self,
        plan: AgentPlan,
        url: str,
        pace: Pace,
        draw: random.Random,
        habits: Habits = API_KEY,
    ) -> None:
        self.plan = plan
        self.record = AgentRecord(plan.label, plan.model)
        self._url = url
        self._pace = pace
        self._draw = draw
        self._habits = habits
        self._stall: asyncio.Timeout | None = None
        self._messages: list[_Message] = []
        self._rounds_left = plan.rounds

    async def run(self) -> None:
        """Talk with the model until it has said its last words, or its user has had enough."""
        self.record.began = self._pace.monotonic()
        while True:
            try:
                # The watchdog of sub-agents: the main thread has none.
                async with asyncio.timeout(None) as self._stall:
                    self._progress()
                    last = await self._converse()
            except _GaveUpError as error:
                died_of = str(error)
            except TimeoutError:
                died_of = STALLED
            else:
                whole = last.text == self.plan.last_words
                self.record.finish(End.FINISHED if whole else End.MISLED, self._pace.monotonic())
                return
            self.record.finish(End.DIED, self._pace.monotonic(), died_of)
            if self.plan.resumed_after is None:
                return
            await self._pace.sleep(self.plan.resumed_after)
            self.record.resumed()

    async def _converse(self) -> Answer:
        """Go on where the conversation stands, at first at its beginning."""
        while True:
            if not self._messages or self._messages[-1]["role"] == "assistant":
                self._messages.append(_Message(role="user", content=[_text(self.plan.prompt)]))
            answer = await self._turn()
            self._rounds_left -= 1
            if not self._rounds_left or answer.text != self.plan.last_words:
                return answer

    async def _turn(self) -> Answer:
        """Let the model speak and use its tools until it has no more to do."""
        while True:
            answer = await self._ask()
            self._messages.append(_Message(role="assistant", content=answer.blocks))
            if not answer.calls:
                return answer
            await self._pace.sleep(self.plan.tool_seconds)
            results = [self._result(call) for call in answer.calls]
            self._messages.append(_Message(role="user", content=results))

    def _result(self, call: Block) -> Block:
        said = str(call["input"].get("command", "")).removeprefix(ECHO) + self.plan.tool_prints
        return {"type": "tool_result", "tool_use_id": call["id"], "content": said}

    # --- one call, with its retries ---------------------------------------------------

    async def _ask(self) -> Answer:
        body = self._body()
        try:
            return await self._with_retries(body | {"stream": True})
        except _AskWholeError:
            return await self._with_retries(body)

    async def _with_retries(self, body: dict[str, object]) -> Answer:
        raw = json.dumps(body).encode()
        stream = bool(body.get("stream"))
        overloads = 0
        for retry in range(1, self._habits.retries + 2):
            outcome = await self._attempt(raw, stream=stream)
            if isinstance(outcome, Answer):
                return outcome
            overloads = overloads + 1 if outcome.status == 529 else 0
            if self._habits.gives_up_overload(overloads):
                if stream and outcome.in_stream:
                    raise _AskWholeError
                raise _GaveUpError(OVERLOADED_AGAIN)
            wait = self._habits.delay(retry, outcome.told, self._draw.random())
            if outcome.move is Move.ASK_WHOLE and stream:
                raise _AskWholeError
            if outcome.move is not Move.RETRY or wait is None or retry > self._habits.retries:
                raise _GaveUpError(outcome.text)
            await self._pace.sleep(wait)
        raise AssertionError("the last round returns or raises")

    async def _attempt(self, raw: bytes, *, stream: bool) -> Answer | _Failed:
        """One request: the answer, or how it failed."""
        self.record.posts += 1
        sent_at = self._pace.monotonic()
        limit = self._habits.no_headers if stream else self._habits.whole_answer
        try:
            async with (
                self._pace.timeout(limit) as patience,
                posted(self._url, PATH, self._headers(stream=stream), raw) as response,
            ):
                if response.status != 200:
                    failed = await self._refused(response)
                elif stream:
                    patience.reschedule(None)
                    return await self._streamed(response, sent_at)
                else:
                    answer = from_document(await response.whole())
                    if answer is not None:
                        self._progress()
                        return answer
                    failed = _Failed(200, MALFORMED, Move.GIVE_UP)
        except (TimeoutError, ConnectionError) as error:
            words = str(error) or "Request timed out"
            failed = _Failed(0, f"API Error: Unable to connect to API ({words})", Move.RETRY)
        self._note(failed, sent_at)
        return failed

    # --- what comes back --------------------------------------------------------------

    async def _streamed(self, response: Response, sent_at: float) -> Answer | _Failed:
        """The streamed answer, or what the client makes of its ruins."""
        if "event-stream" not in response.headers.get("content-type", ""):
            self._note(_Failed(200, MALFORMED, Move.ASK_WHOLE), sent_at)
            raise _AskWholeError
        answer, broken = Answer(), ""
        try:
            async with self._pace.timeout(self._habits.no_event) as silence:
                async for event in events(response.pieces()):
                    answer.take(event)
                    self._pace.push_back(silence, self._habits.no_event)
                    self._progress()
        except ErrorEventError as error:
            broken = f"API Error: {error}"
            if not answer.begun and error.kind == "overloaded_error":
                failed = _Failed(529, broken, Move.RETRY, in_stream=True)
                self._note(failed, sent_at)
                return failed
        except (TimeoutError, ConnectionError):
            broken = CUT_SHORT
        if answer.stop_reason is None:
            self._note(_Failed(0, broken or "the stream ended early", Move.ASK_WHOLE), sent_at)
            _insist_on_use(answer, broken)
        return answer

    async def _refused(self, response: Response) -> _Failed:
        headers = response.headers
        told = headers.get("retry-after")
        reset = headers.get(RESET)
        return _Failed(
            response.status,
            f"API Error: {response.status} {_words(await response.whole())}",
            self._habits.move(response.status, headers),
            told=None if told is None else float(told),
            resets_at=None if reset is None else float(reset),
        )

    def _note(self, failed: _Failed, sent_at: float) -> None:
        waited = self._pace.monotonic() - sent_at
        self.record.errors.append(SeenError(failed.status, failed.text, waited, failed.resets_at))

    def _progress(self) -> None:
        if self.plan.agent and self._stall is not None:
            self._pace.push_back(self._stall, self._habits.sub_agent_stall)

    # --- what is sent -----------------------------------------------------------------

    def _headers(self, *, stream: bool) -> Mapping[str, str]:
        identity = {"x-claude-code-session-id": self.plan.session}
        if self.plan.agent:
            identity["x-claude-code-agent-id"] = self.plan.agent
        if self._habits.subscriber:
            identity["authorization"] = "Bearer sk-ant-oat01-drill"
        else:
            identity["x-api-key"] = "sk-ant-drill"
        return {
            "accept": "application/json",
            "content-type": "application/json",
            "user-agent": "claude-cli/2.1.197 (external, sdk-cli)",
            "anthropic-version": "2023-06-01",
            "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14",
            "x-app": "cli",
            "x-stainless-retry-count": "0",
            "x-stainless-timeout": "600" if stream else "300",
            **identity,
        }

    def _body(self) -> dict[str, object]:
        marks = "cc_version=2.1.197; cc_entrypoint=sdk-cli;"
        marks += " cc_is_subagent=true;" if self.plan.agent else ""
        system = [_text(f"x-anthropic-billing-header: {marks}")]
        messages = self._messages
        if self.plan.instructions:
            system.append(_marked(_text(self.plan.instructions)))
            messages = _marked_at_end(messages)
        user = json.dumps({"device_id": "drill", "session_id": self.plan.session})
        return {
            "model": self.plan.model,
            "messages": messages,
            "system": system,
            "tools": [TOOL],
            "metadata": {"user_id": user},
            "max_tokens": 64000,
        }


@dataclass(frozen=True, slots=True)
class _Failed:
    """A request that brought no answer; a `status` of 0 is none at all."""

    status: int
    text: str
    move: Move
    told: float | None = None
    resets_at: float | None = None
    in_stream: bool = False


def _insist_on_use(answer: Answer, broken: str) -> None:
    """Return if the client goes on with this much of a stream; raise what it does if not."""
    if not answer.blocks:
        raise _AskWholeError
    if broken and not answer.calls:
        raise _GaveUpError(broken)


def _words(raw: bytes) -> str:
    """The vendor's own message, or the beginning of whatever came instead."""
    try:
        document = json.loads(raw)
        return str(document["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return raw[:200].decode("utf-8", "replace")


def _text(words: str) -> Block:
    return {"type": "text", "text": words}


def _marked(block: Block) -> Block:
    return {**block, "cache_control": {"type": "ephemeral"}}


def _marked_at_end(messages: list[_Message]) -> list[_Message]:
    """The same, with all of it to be cached; the mark moves on with each call."""
    *before, last = messages
    *blocks, final = last["content"]
    return [*before, _Message(role=last["role"], content=[*blocks, _marked(final)])]
