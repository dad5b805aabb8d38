"""Behave on the wire as Claude Code 2.1.197 does, as far as drills need it: one agent with tools.

Rules: (1) headers, retries, fallbacks and time limits are those of the real client; every number
was observed on it, with a custom base URL and in `-p` mode; (2) a tool runs when its block has
ended, whatever comes after; (3) all waits are in drill seconds; (4) an agent's record ends at
most once, unless its user resumes the agent; (5) the retry policy is pure: the random draw is an
argument.
Not here: what the model says (simulator/), many agents at once (drill_run.py).
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import TypedDict

from jackline.drills.conversation import (
    ECHO,
    Block,
    ErrorEventError,
    ModelAnswer,
    Response,
    events,
    from_document,
    posted,
)
from jackline.drills.drill_clock import DrillClock

_LASTING_REFUSALS = (400, 402, 403, 413)


class RetryAction(Enum):
    """What the client does after a refused request."""

    RETRY = "retry"
    ASK_WHOLE = "ask again without streaming"
    GIVE_UP = "give up"


@dataclass(frozen=True, slots=True)
class ClientRetryPolicy:
    """The client's numbers, in seconds; a `subscriber` signed in instead of using a key."""

    subscriber: bool = False
    retries: int = 10
    first_delay: float = 0.5
    longest_delay: float = 32.0
    jitter: float = 0.25
    # A server that asks for more than this is not waited for at all.
    longest_told_delay: float = 60.0
    # Subscribers are observed to go on through overload; with a key it is given up.
    overloads_in_a_row: int = 3
    no_headers: float = 298.0
    # Pings are not counted as events by this version.
    no_event: float = 300.0
    whole_answer: float = 300.0
    sub_agent_stall: float = 600.0

    def move(self, status: int, headers: Mapping[str, str]) -> RetryAction:
        """The reaction to an HTTP error, numbers of tries left aside."""
        if status == 429 and self.subscriber:
            return RetryAction.GIVE_UP
        should_retry = headers.get("x-should-retry")
        if should_retry == "false":
            return RetryAction.GIVE_UP
        if should_retry == "true" and not self.subscriber:
            return RetryAction.RETRY
        if status == 404:
            return RetryAction.ASK_WHOLE
        return RetryAction.GIVE_UP if status in _LASTING_REFUSALS else RetryAction.RETRY

    def gives_up_overload(self, in_a_row: int) -> bool:
        """Whether so many 529 one after the other are enough."""
        return not self.subscriber and in_a_row >= self.overloads_in_a_row

    def delay(self, retry: int, told: float | None, draw: float) -> float | None:
        """The wait before the first, second, … retry; None when it is longer than the client bears.

        `told` is the server's Retry-After, `draw` a number from 0 to 1.
        """
        own = min(self.longest_delay, self.first_delay * 2.0 ** (retry - 1))
        own *= 1.0 + self.jitter * draw
        wait = own if told is None else max(told, own)
        return None if wait > self.longest_told_delay else wait


API_KEY_POLICY = ClientRetryPolicy()
SUBSCRIBER_POLICY = ClientRetryPolicy(subscriber=True)


class AgentEnd(StrEnum):
    """What became of an agent."""

    WORKING = "working"
    FINISHED = "finished"
    MISLED = "misled"
    """It took a broken answer for a whole one and went on."""
    DIED = "died"


@dataclass(frozen=True, slots=True)
class SeenError:
    """An error that reached the client; a `status` of 0 is one without an HTTP answer."""

    status: int
    text: str
    waited: float
    """Seconds from the request to the error."""
    resets_at: float | None = None
    """The moment, as Unix time, that the answer gave for the reset."""


@dataclass(slots=True)
class AgentRecord:
    """One agent's way through the drill."""

    label: str
    model: str
    end: AgentEnd = AgentEnd.WORKING
    died_of: str = ""
    posts: int = 0
    errors: list[SeenError] = field(default_factory=list)
    began: float = 0.0
    ended: float | None = None
    deaths: int = 0
    """How often its client gave up; its user may let it go on."""

    def finish(self, end: AgentEnd, at: float, died_of: str = "") -> None:
        """Write down the end."""
        self.end, self.ended, self.died_of = end, at, died_of
        self.deaths += end is AgentEnd.DIED

    def resumed(self) -> None:
        """Its user lets it go on: what it died of counts as a death, not as its end."""
        self.end, self.ended, self.died_of = AgentEnd.WORKING, None, ""


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
        pace: DrillClock,
        draw: random.Random,
        habits: ClientRetryPolicy = API_KEY_POLICY,
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
                self.record.finish(
                    AgentEnd.FINISHED if whole else AgentEnd.MISLED, self._pace.monotonic()
                )
                return
            self.record.finish(AgentEnd.DIED, self._pace.monotonic(), died_of)
            if self.plan.resumed_after is None:
                return
            await self._pace.sleep(self.plan.resumed_after)
            self.record.resumed()

    async def _converse(self) -> ModelAnswer:
        """Go on where the conversation stands, at first at its beginning."""
        while True:
            if not self._messages or self._messages[-1]["role"] == "assistant":
                self._messages.append(_Message(role="user", content=[_text(self.plan.prompt)]))
            answer = await self._turn()
            self._rounds_left -= 1
            if not self._rounds_left or answer.text != self.plan.last_words:
                return answer

    async def _turn(self) -> ModelAnswer:
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

    async def _ask(self) -> ModelAnswer:
        body = self._body()
        try:
            return await self._with_retries(body | {"stream": True})
        except _AskWholeError:
            return await self._with_retries(body)

    async def _with_retries(self, body: dict[str, object]) -> ModelAnswer:
        raw = json.dumps(body).encode()
        stream = bool(body.get("stream"))
        overloads = 0
        for retry in range(1, self._habits.retries + 2):
            outcome = await self._attempt(raw, stream=stream)
            if isinstance(outcome, ModelAnswer):
                return outcome
            overloads = overloads + 1 if outcome.status == 529 else 0
            if self._habits.gives_up_overload(overloads):
                if stream and outcome.in_stream:
                    raise _AskWholeError
                raise _GaveUpError(OVERLOADED_AGAIN)
            wait = self._habits.delay(retry, outcome.told, self._draw.random())
            if outcome.move is RetryAction.ASK_WHOLE and stream:
                raise _AskWholeError
            if (
                outcome.move is not RetryAction.RETRY
                or wait is None
                or retry > self._habits.retries
            ):
                raise _GaveUpError(outcome.text)
            await self._pace.sleep(wait)
        raise AssertionError("the last round returns or raises")

    async def _attempt(self, raw: bytes, *, stream: bool) -> ModelAnswer | _Failed:
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
                    failed = _Failed(200, MALFORMED, RetryAction.GIVE_UP)
        except (TimeoutError, ConnectionError) as error:
            words = str(error) or "Request timed out"
            failed = _Failed(0, f"API Error: Unable to connect to API ({words})", RetryAction.RETRY)
        self._note(failed, sent_at)
        return failed

    # --- what comes back --------------------------------------------------------------

    async def _streamed(self, response: Response, sent_at: float) -> ModelAnswer | _Failed:
        """The streamed answer, or what the client makes of its ruins."""
        if "event-stream" not in response.headers.get("content-type", ""):
            self._note(_Failed(200, MALFORMED, RetryAction.ASK_WHOLE), sent_at)
            raise _AskWholeError
        answer, broken = ModelAnswer(), ""
        try:
            async with self._pace.timeout(self._habits.no_event) as silence:
                async for event in events(response.pieces()):
                    answer.take(event)
                    self._pace.push_back(silence, self._habits.no_event)
                    self._progress()
        except ErrorEventError as error:
            broken = f"API Error: {error}"
            if not answer.begun and error.kind == "overloaded_error":
                failed = _Failed(529, broken, RetryAction.RETRY, in_stream=True)
                self._note(failed, sent_at)
                return failed
        except (TimeoutError, ConnectionError):
            broken = CUT_SHORT
        if answer.stop_reason is None:
            self._note(
                _Failed(0, broken or "the stream ended early", RetryAction.ASK_WHOLE), sent_at
            )
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
    move: RetryAction
    told: float | None = None
    resets_at: float | None = None
    in_stream: bool = False


def _insist_on_use(answer: ModelAnswer, broken: str) -> None:
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
