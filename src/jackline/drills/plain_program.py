"""The program that people write without Jackline: asyncio and a vendor's SDK.

Rules: (1) retries, waits and time limits are those of Anthropic's SDK for Python; (2) only its
own process knows what an agent has done.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from jackline.drills.conversation import Block, ClientGaveUpError, ModelAnswer, posted
from jackline.drills.drill_clock import DrillClock

# The SDK's own: two retries, half a second doubling up to eight, a Retry-After up to a minute.
RETRIES = 2
FIRST_WAIT, LONGEST_WAIT, LONGEST_RETRY_AFTER = 0.5, 8.0, 60
_HEADERS = {
    "content-type": "application/json",
    "anthropic-version": "2023-06-01",
    "x-api-key": "simulated",
}

UseTools: TypeAlias = Callable[[Sequence[Block]], Awaitable[list[Block]]]
"""Returns the results of all calls of one turn."""


@dataclass(frozen=True, slots=True)
class PlainAgent:
    """One agent of such a program."""

    url: str
    clock: DrillClock
    draw: random.Random

    async def work(self, prompt: str, tools: Sequence[Block], use: UseTools) -> str:
        """The model's final text; ClientGaveUpError when the SDK raises."""
        messages: list[Block] = [{"role": "user", "content": prompt}]
        while True:
            answer = await self._ask(messages, tools)
            messages.append({"role": "assistant", "content": answer.blocks})
            if not answer.calls:
                return answer.text
            messages.append({"role": "user", "content": await use(answer.calls)})

    async def _ask(self, messages: Sequence[Block], tools: Sequence[Block]) -> ModelAnswer:
        body = {
            "model": "claude-sonnet-4-6",
            "max_tokens": 8192,
            "messages": messages,
            "tools": tools,
        }
        raw = json.dumps(body).encode()
        for retry in range(RETRIES + 1):
            try:
                async with posted(self.url, "/v1/messages", _HEADERS, raw) as response:
                    document = await response.whole()
                    answer = ModelAnswer.from_document(document) if response.status == 200 else None
                    if answer is not None:
                        return answer
                    status, headers = response.status, response.headers
            except ConnectionError:
                status, headers = 0, {}
            retried = status in (0, 408, 409, 429) or status >= 500
            if headers.get("x-should-retry") in ("true", "false"):
                retried = headers["x-should-retry"] == "true"
            if not retried or retry == RETRIES:
                raise ClientGaveUpError(f"status {status}")
            wait = min(FIRST_WAIT * 2.0**retry, LONGEST_WAIT) * (1 - 0.25 * self.draw.random())
            retry_after = headers.get("retry-after", "")
            if retry_after.isdigit() and 0 < int(retry_after) <= LONGEST_RETRY_AFTER:
                wait = float(retry_after)
            await self.clock.sleep(wait)
        raise AssertionError("the last round returns or raises")


def tool(name: str, **arguments: str) -> Block:
    """A tool as it is offered to the model; `arguments` are names and JSON types."""
    properties = {argument: {"type": kind} for argument, kind in arguments.items()}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": name, "input_schema": schema}


def result(call: Block, text: str, *, failed: bool = False) -> Block:
    """The result of one call."""
    found: Block = {"type": "tool_result", "tool_use_id": call["id"], "content": text}
    return {**found, "is_error": True} if failed else found


def each(do: Callable[[Block], Awaitable[str]]) -> UseTools:
    """Run all calls of a turn at once; none of them fails."""

    async def use(calls: Sequence[Block]) -> list[Block]:
        texts = await asyncio.gather(*(do(call) for call in calls))
        return [result(call, text) for call, text in zip(calls, texts, strict=True)]

    return use
