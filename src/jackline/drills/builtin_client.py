"""Behave on the wire as Claude Code 2.1.197 does, as far as drills need it: one agent with tools.

Rules: (1) headers, retries, fallbacks and time limits are those of the real client; every number
was observed on it, with a custom base URL and in `-p` mode; (2) a tool runs when its block has
ended, whatever comes after; (3) all waits are in drill seconds; (4) an agent's record ends at
most once, unless its user resumes the agent; (5) the retry policy is pure: the random draw is an
argument.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any

from jackline.drills.conversation import (
    ECHO,
    Block,
    ClientGaveUpError,
    ErrorEventError,
    ModelAnswer,
    Response,
    posted,
)
from jackline.drills.drill_clock import DrillClock


class RetryAction(Enum):
    """What the client does after a refused request."""

    RETRY = "retry"
    RETRY_WITHOUT_STREAM = "retry without streaming"
    GIVE_UP = "give up"


@dataclass(frozen=True, slots=True)
class ClientRetryPolicy:
    """The client's numbers, in seconds; a `subscriber` signed in instead of using a key."""

    subscriber: bool = False
    retries: int = 10
    first_delay: float = 0.5
    longest_delay: float = 32.0
    jitter: float = 0.25
    # The client gives up when the server wants a longer wait.
    longest_retry_after: float = 60.0
    # Subscribers are observed to go on through overload; with a key the client gives up.
    overloads_in_a_row: int = 3
    no_headers: float = 298.0
    # This version does not count pings as events.
    no_event: float = 300.0
    whole_answer: float = 300.0
    sub_agent_stall: float = 600.0

    def action(self, status: int, headers: Mapping[str, str]) -> RetryAction:
        """The reaction to an HTTP error, whatever the number of retries left."""
        if status == 429 and self.subscriber:
            return RetryAction.GIVE_UP
        should_retry = headers.get("x-should-retry")
        if should_retry == "false":
            return RetryAction.GIVE_UP
        if should_retry == "true" and not self.subscriber:
            return RetryAction.RETRY
        if status == 404:
            return RetryAction.RETRY_WITHOUT_STREAM
        return RetryAction.GIVE_UP if status in (400, 402, 403, 413) else RetryAction.RETRY

    def delay(self, retry: int, retry_after: float | None, draw: float) -> float | None:
        """The wait before the first, second, … retry; None when it is too long for the client.

        `draw` is a number from 0 to 1.
        """
        own = min(self.longest_delay, self.first_delay * 2.0 ** (retry - 1))
        own *= 1.0 + self.jitter * draw
        wait = own if retry_after is None else max(retry_after, own)
        return None if wait > self.longest_retry_after else wait


API_KEY_POLICY = ClientRetryPolicy()
SUBSCRIBER_POLICY = ClientRetryPolicy(subscriber=True)


class AgentEnd(StrEnum):
    """How an agent ended."""

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
    """The reset that the answer announced, as Unix time."""


@dataclass(slots=True)
class AgentRecord:
    """What one agent did and met."""

    label: str
    model: str
    end: AgentEnd = AgentEnd.WORKING
    died_of: str = ""
    posts: int = 0
    errors: list[SeenError] = field(default_factory=list)
    began: float = 0.0
    ended: float | None = None
    deaths: int = 0
    """How often its client gave up; its user may resume it."""

    def finish(self, end: AgentEnd, at: float, died_of: str = "") -> None:
        """Record the end."""
        self.end, self.ended, self.died_of = end, at, died_of
        self.deaths += end is AgentEnd.DIED

    def resumed(self) -> None:
        """Its user resumes it: what it died of counts as a death, not as its end."""
        self.end, self.ended, self.died_of = AgentEnd.WORKING, None, ""


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """Who an agent is and its work; without an `agent` it is a session's main thread."""

    label: str
    prompt: str
    final_text: str
    """What the model says at the end; an agent that gets less was misled."""
    model: str = "claude-sonnet-4-6"
    session: str = "drill"
    agent: str = ""
    tool_seconds: float = 1.0
    rounds: int = 1
    """How many prompts it gets; the model ends each with the same final text."""
    instructions: str = ""
    """The system prompt; with one, requests are marked for caching as by the real client."""
    tool_prints: str = ""
    """What each result of a tool ends with."""
    resumed_after: float | None = None
    """When its user resumes it after it has died; never if None."""


class _StreamUnusableError(Exception):
    """The same request shall be sent without streaming."""


@dataclass(frozen=True, slots=True)
class _Failed:
    """A request without an answer; a `status` of 0 is one without an HTTP answer."""

    status: int
    text: str
    action: RetryAction
    retry_after: float | None = None
    resets_at: float | None = None
    in_stream: bool = False


class BuiltinClient:
    """One agent; `run` takes it to its end, `record` is up to date at any time."""

    def __init__(
        self,
        plan: AgentPlan,
        url: str,
        clock: DrillClock,
        draw: random.Random,
        policy: ClientRetryPolicy = API_KEY_POLICY,
    ) -> None:
        self.plan = plan
        self.record = AgentRecord(plan.label, plan.model)
        self._url = url
        self._clock = clock
        self._draw = draw
        self._policy = policy
        self._stall: asyncio.Timeout | None = None
        self._messages: list[dict[str, Any]] = []
        self._rounds_left = plan.rounds

    async def run(self) -> None:
        """Talk with the model until its final text, or until the user does not resume it."""
        self.record.began = self._clock.monotonic()
        while True:
            try:
                # Only sub-agents have this watchdog, the main thread has none.
                async with asyncio.timeout(None) as self._stall:
                    self._progress()
                    last = await self._converse()
            except ClientGaveUpError as error:
                died_of = str(error)
            except TimeoutError:
                died_of = "[Request interrupted by user for tool use]"
            else:
                whole = last.text == self.plan.final_text
                end = AgentEnd.FINISHED if whole else AgentEnd.MISLED
                self.record.finish(end, self._clock.monotonic())
                return
            self.record.finish(AgentEnd.DIED, self._clock.monotonic(), died_of)
            if self.plan.resumed_after is None:
                return
            await self._clock.sleep(self.plan.resumed_after)
            self.record.resumed()

    async def _converse(self) -> ModelAnswer:
        """Continue the conversation through its tools and rounds, to the last answer."""
        while True:
            if not self._messages or self._messages[-1]["role"] == "assistant":
                prompt = {"type": "text", "text": self.plan.prompt}
                self._messages.append({"role": "user", "content": [prompt]})
            body = self._body()
            try:
                answer = await self._with_retries(body | {"stream": True})
            except _StreamUnusableError:
                answer = await self._with_retries(body)
            self._messages.append({"role": "assistant", "content": answer.blocks})
            if answer.calls:
                await self._clock.sleep(self.plan.tool_seconds)
                results = []
                for call in answer.calls:
                    text = str(call["input"].get("command", "")).removeprefix(ECHO)
                    text += self.plan.tool_prints
                    results.append(
                        {"type": "tool_result", "tool_use_id": call["id"], "content": text}
                    )
                self._messages.append({"role": "user", "content": results})
                continue
            self._rounds_left -= 1
            if not self._rounds_left or answer.text != self.plan.final_text:
                return answer

    # --- one call, with its retries ---------------------------------------------------

    async def _with_retries(self, body: dict[str, object]) -> ModelAnswer:
        raw, policy = json.dumps(body).encode(), self._policy
        stream = bool(body.get("stream"))
        overloads = 0
        for retry in range(1, policy.retries + 2):
            outcome = await self._attempt(raw, stream=stream)
            if isinstance(outcome, ModelAnswer):
                return outcome
            overloads = overloads + 1 if outcome.status == 529 else 0
            if not policy.subscriber and overloads >= policy.overloads_in_a_row:
                if stream and outcome.in_stream:
                    raise _StreamUnusableError
                raise ClientGaveUpError(
                    "API Error: Repeated 529 Overloaded errors. The API is at capacity"
                )
            wait = policy.delay(retry, outcome.retry_after, self._draw.random())
            if outcome.action is RetryAction.RETRY_WITHOUT_STREAM and stream:
                raise _StreamUnusableError
            if outcome.action is not RetryAction.RETRY or wait is None or retry > policy.retries:
                raise ClientGaveUpError(outcome.text)
            await self._clock.sleep(wait)
        raise AssertionError("the last round returns or raises")

    async def _attempt(self, raw: bytes, *, stream: bool) -> ModelAnswer | _Failed:
        """One request: the answer, or how it failed."""
        self.record.posts += 1
        sent_at = self._clock.monotonic()
        limit = self._policy.no_headers if stream else self._policy.whole_answer
        path, headers = "/v1/messages?beta=true", self._headers(stream=stream)
        malformed = "API Error: API returned an empty or malformed response (HTTP 200)"
        try:
            async with (
                self._clock.timeout(limit) as timeout,
                posted(self._url, path, headers, raw) as response,
            ):
                if response.status != 200:
                    failed = await self._refused(response)
                elif stream and "event-stream" not in response.headers.get("content-type", ""):
                    failed = _Failed(200, malformed, RetryAction.RETRY_WITHOUT_STREAM)
                elif stream:
                    timeout.reschedule(None)
                    return await self._streamed(response, sent_at)
                else:
                    answer = ModelAnswer.from_document(await response.whole())
                    if answer is not None:
                        self._progress()
                        return answer
                    failed = _Failed(200, malformed, RetryAction.GIVE_UP)
        except (TimeoutError, ConnectionError) as error:
            text = str(error) or "Request timed out"
            failed = _Failed(0, f"API Error: Unable to connect to API ({text})", RetryAction.RETRY)
        self._record(failed, sent_at)
        return failed

    async def _streamed(self, response: Response, sent_at: float) -> ModelAnswer | _Failed:
        """The streamed answer, or what the client does with the part that came."""
        answer, broken = ModelAnswer(), ""
        try:
            async with self._clock.timeout(self._policy.no_event) as silence:
                async for event in response.events():
                    answer.take(event)
                    self._clock.restart_timeout(silence, self._policy.no_event)
                    self._progress()
        except ErrorEventError as error:
            broken = f"API Error: {error}"
            if not answer.begun and error.kind == "overloaded_error":
                failed = _Failed(529, broken, RetryAction.RETRY, in_stream=True)
                self._record(failed, sent_at)
                return failed
        except (TimeoutError, ConnectionError):
            broken = "API Error: Connection closed mid-response."
            broken += " The response above may be incomplete."
        if answer.stop_reason is None:
            text = broken or "the stream ended early"
            self._record(_Failed(0, text, RetryAction.RETRY_WITHOUT_STREAM), sent_at)
            if not answer.blocks:
                raise _StreamUnusableError
            if broken and not answer.calls:
                raise ClientGaveUpError(broken)
        return answer

    async def _refused(self, response: Response) -> _Failed:
        raw, headers = await response.whole(), response.headers
        try:
            message = str(json.loads(raw)["error"]["message"])
        except (ValueError, KeyError, TypeError):
            message = raw[:200].decode("utf-8", "replace")
        retry_after = headers.get("retry-after")
        reset = headers.get("anthropic-ratelimit-unified-reset")
        return _Failed(
            response.status,
            f"API Error: {response.status} {message}",
            self._policy.action(response.status, headers),
            retry_after=None if retry_after is None else float(retry_after),
            resets_at=None if reset is None else float(reset),
        )

    def _record(self, failed: _Failed, sent_at: float) -> None:
        waited = self._clock.monotonic() - sent_at
        self.record.errors.append(SeenError(failed.status, failed.text, waited, failed.resets_at))

    def _progress(self) -> None:
        if self.plan.agent and self._stall is not None:
            self._clock.restart_timeout(self._stall, self._policy.sub_agent_stall)

    # --- what is sent -----------------------------------------------------------------

    def _headers(self, *, stream: bool) -> Mapping[str, str]:
        identity = {"x-claude-code-session-id": self.plan.session}
        if self.plan.agent:
            identity["x-claude-code-agent-id"] = self.plan.agent
        if self._policy.subscriber:
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
        system: list[Block] = [{"type": "text", "text": f"x-anthropic-billing-header: {marks}"}]
        messages = self._messages
        if self.plan.instructions:
            cached = {"cache_control": {"type": "ephemeral"}}
            system.append({"type": "text", "text": self.plan.instructions, **cached})
            # The mark at the end of the conversation moves on with each call.
            *before, last = messages
            *blocks, final = last["content"]
            messages = [*before, {"role": last["role"], "content": [*blocks, {**final, **cached}]}]
        tool = {
            "name": "Bash",
            "description": "Run a command.",
            "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}},
        }
        user = json.dumps({"device_id": "drill", "session_id": self.plan.session})
        return {
            "model": self.plan.model,
            "messages": messages,
            "system": system,
            "tools": [tool],
            "metadata": {"user_id": user},
            "max_tokens": 64000,
        }
