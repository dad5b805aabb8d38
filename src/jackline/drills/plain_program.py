"""The program that people write without Jackline: asyncio and a vendor's SDK.

Rules: (1) retries, waits and time limits are those of Anthropic's SDK for Python; (2) only its
own process knows what an agent has done.
Not here: what the agents do (the parts of the drills).
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from jackline.drills.conversation import Block, ModelAnswer, from_document, posted
from jackline.drills.drill_clock import DrillClock

PATH = "/v1/messages"
MODEL = "claude-sonnet-4-6"
# The SDK's own: two retries, half a second doubling up to eight, a told wait up to a minute.
RETRIES = 2
FIRST_WAIT, LONGEST_WAIT, LONGEST_TOLD = 0.5, 8.0, 60.0
_RETRIED = (408, 409, 429)

UseTools: TypeAlias = Callable[[Sequence[Block]], Awaitable[list[Block]]]
"""Gives the results of all calls of one turn."""


class GaveUpError(Exception):
    """The SDK has raised, and the agent is lost."""


class PlainAgent:
    """One agent of such a program."""

    def __init__(self, url: str, pace: DrillClock, draw: random.Random) -> None:
        self._url = url
        self._pace = pace
        self._draw = draw

    async def work(self, prompt: str, tools: Sequence[Block], use: UseTools) -> str:
        """What the model says at the end; GaveUpError when the SDK raises."""
        messages: list[Block] = [{"role": "user", "content": prompt}]
        while True:
            answer = await self._ask(messages, tools)
            messages.append({"role": "assistant", "content": answer.blocks})
            if not answer.calls:
                return answer.text
            messages.append({"role": "user", "content": await use(answer.calls)})

    async def _ask(self, messages: Sequence[Block], tools: Sequence[Block]) -> ModelAnswer:
        body = {"model": MODEL, "max_tokens": 8192, "messages": messages, "tools": tools}
        raw = json.dumps(body).encode()
        for retry in range(RETRIES + 1):
            told: float | None = None
            try:
                async with posted(self._url, PATH, _HEADERS, raw) as response:
                    document = await response.whole()
                    answer = from_document(document) if response.status == 200 else None
                    if answer is not None:
                        return answer
                    status, headers = response.status, response.headers
            except ConnectionError:
                status, headers = 0, {}
            if not _is_retried(status, headers.get("x-should-retry", "")) or retry == RETRIES:
                raise GaveUpError(f"status {status}")
            told = _told_wait(headers.get("retry-after", ""))
            await self._pace.sleep(self._wait(retry) if told is None else told)
        raise AssertionError("the last round returns or raises")

    def _wait(self, retry: int) -> float:
        wait = min(FIRST_WAIT * 2.0**retry, LONGEST_WAIT)
        return wait * (1 - 0.25 * self._draw.random())


_HEADERS = {
    "content-type": "application/json",
    "anthropic-version": "2023-06-01",
    "x-api-key": "simulated",
}


def tool(name: str, **arguments: str) -> Block:
    """A tool as it is offered to the model; `arguments` are names and JSON types."""
    properties = {argument: {"type": kind} for argument, kind in arguments.items()}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": name, "input_schema": schema}


def result(call: Block, text: str, *, failed: bool = False) -> Block:
    """The result of one call."""
    told: Block = {"type": "tool_result", "tool_use_id": call["id"], "content": text}
    return {**told, "is_error": True} if failed else told


async def each(calls: Sequence[Block], do: Callable[[Block], Awaitable[str]]) -> list[Block]:
    """The results of calls that all succeed."""
    done = await asyncio.gather(*(do(call) for call in calls))
    return [result(call, text) for call, text in zip(calls, done, strict=True)]


def _is_retried(status: int, should_retry: str) -> bool:
    if should_retry in ("true", "false"):
        return should_retry == "true"
    return status == 0 or status in _RETRIED or status >= 500


def _told_wait(words: str) -> float | None:
    return float(words) if words.isdigit() and 0 < int(words) <= LONGEST_TOLD else None
