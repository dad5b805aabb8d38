"""Agents of a soak that are plain HTTP clients: conversations of some turns, one after another.

Rules: an agent asks the same question until it has its answer, whatever happens to the gateway;
every answer is checked to be the one for this question; each failure that reaches an agent is kept,
with whether it is excused: the gateway was killed meanwhile, or a stream was cut as docs/holding.md
says.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jackline.drills.conversation import (
    ErrorEventError,
    ModelAnswer,
    Response,
    posted,
)
from soak_bench.gateway_process import GatewayProcess
from soak_bench.provider import Question, check_word, last_words
from soak_bench.soak_flow import first_words

_THINK_MEAN = 3.0
_MOST_TURNS = 5
_FIRST_WAIT, _LONGEST_WAIT = 0.3, 5.0
_WORDS_KEPT = 200
_LOOK = {"name": "look", "description": "Look.", "input_schema": {"type": "object"}}


# Without a stream, silence is borne for minutes: those agents have a model and lanes of their own.
WHOLE = "claude-haiku-4-5"


@dataclass(frozen=True, slots=True)
class Sort:
    """A sort of client: what it says of itself, whether it streams, and as what it is served."""

    name: str
    user_agent: str
    stream: bool
    model: str = "claude-sonnet-4-6"
    sub_agent: bool = False
    live: bool = False
    """Words are passed on as they come: a break inside a text may reach the client."""


SORTS = (
    Sort("SDK, streaming", "Anthropic/Python 0.75.0", stream=True),
    Sort("SDK, whole answers", "Anthropic/Python 0.75.0", stream=False, model=WHOLE),
    Sort("plain HTTP", "curl/8.5.0", stream=True),
    Sort("sub-agent", "claude-cli/2.1.197 (external, sdk-cli)", stream=True, sub_agent=True),
    Sort("session", "claude-cli/2.1.197 (external, cli)", stream=True, live=True),
)


class WrongAnswerError(Exception):
    """The answer is not the one for this question, or not whole."""


class RefusedError(Exception):
    """An answer that is no message: its status and its words."""


@dataclass(slots=True)
class Log:
    """What all agents together have seen."""

    begun: int = 0
    finished: int = 0
    answered: int = 0
    wrong: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    excused: Counter[str] = field(default_factory=Counter)
    waiting: dict[Question, str] = field(default_factory=dict)
    """Who waits for an answer now: the sort of client, and for how long it has asked."""
    received: dict[Question, float] = field(default_factory=dict)
    """When an agent had its answer in hand, by the provider's clock."""


class PlainAgent:
    """One agent; `work` begins new conversations until `stopping` is set, and ends the last one."""

    def __init__(
        self,
        number: int,
        gateway: GatewayProcess,
        log: Log,
        now: Callable[[], float],
        draw: random.Random,
    ) -> None:
        self._number = number
        self._sort = SORTS[number % len(SORTS)]
        self._gateway = gateway
        self._log = log
        self._now = now
        self._draw = draw

    async def work(self, stopping: asyncio.Event) -> None:
        """Hold one conversation after another."""
        number = 0
        # Not all at once: real fleets trickle in, and the first second is not what is judged.
        await asyncio.sleep(self._draw.random() * _THINK_MEAN)
        while not stopping.is_set():
            number += 1
            self._log.begun += 1
            await self._converse(f"agent-{self._number}.{number}")
            self._log.finished += 1

    async def _converse(self, label: str) -> None:
        turns = self._draw.randint(2, _MOST_TURNS)
        messages: list[dict[str, Any]] = [{"role": "user", "content": first_words(label, turns)}]
        for turn in range(1, turns + 1):
            question = Question(label, turn)
            answer = await self._ask(question, turns, messages)
            self._log.answered += 1
            del self._log.waiting[question]
            self._log.received[question] = self._now()
            messages.append({"role": "assistant", "content": answer.blocks})
            results = [
                {"type": "tool_result", "tool_use_id": call["id"], "content": "as expected"}
                for call in answer.calls
            ]
            messages.append({"role": "user", "content": results})
            await asyncio.sleep(self._draw.expovariate(1.0 / _THINK_MEAN))

    async def _ask(
        self, question: Question, turns: int, messages: list[dict[str, Any]]
    ) -> ModelAnswer:
        """The answer, asked for as often as it takes."""
        body = json.dumps(self._body(messages)).encode()
        wait = _FIRST_WAIT
        while True:
            began = self._now()
            answer = ModelAnswer()
            self._log.waiting[question] = f"{self._sort.name} since {began:.1f}"
            try:
                async with posted(
                    self._gateway.url, "/v1/messages", self._headers(question.label), body
                ) as response:
                    answer = await self._read(response, answer)
                _check(answer, question, turns)
            except WrongAnswerError as error:
                self._log.wrong.append(f"{self._sort.name}: {error}")
            except (OSError, ErrorEventError, RefusedError, ValueError) as error:
                self._note(error, answer, began)
            else:
                return answer
            await asyncio.sleep(wait * (0.5 + self._draw.random()))
            wait = min(_LONGEST_WAIT, 2 * wait)

    async def _read(self, response: Response, answer: ModelAnswer) -> ModelAnswer:
        if response.status != 200:
            words = (await response.whole())[:_WORDS_KEPT].decode("utf-8", "replace")
            raise RefusedError(f"{response.status} {words}")
        if not self._sort.stream:
            raw = await response.whole()
            whole = ModelAnswer.from_document(raw)
            if whole is None:
                raise WrongAnswerError(f"no message: {raw[:_WORDS_KEPT]!r}")
            return whole
        async for event in response.events():
            answer.take(event)
        return answer

    def _note(self, error: Exception, answer: ModelAnswer, began: float) -> None:
        words = f"{type(error).__name__}: {error}"[:_WORDS_KEPT]
        if self._gateway.was_away(began):
            self._log.excused["the gateway was killed"] += 1
        elif self._sort.live and (answer.begun or isinstance(error, ConnectionResetError)):
            # A reset takes with it what had come and was not read yet.
            self._log.excused["a live text was cut, as documented"] += 1
        else:
            self._log.unexpected.append(f"{self._sort.name}: {words}")

    def _headers(self, label: str) -> dict[str, str]:
        headers = {
            "content-type": "application/json",
            "user-agent": self._sort.user_agent,
            "anthropic-version": "2023-06-01",
            "x-api-key": "sk-ant-soak",
        }
        if self._sort.user_agent.startswith("claude-cli"):
            headers["x-claude-code-session-id"] = f"session-{label}"
            headers["x-app"] = "cli"
        if self._sort.sub_agent:
            headers["x-claude-code-agent-id"] = label
        return headers

    def _body(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "model": self._sort.model,
            "max_tokens": 500,
            "messages": messages,
            "tools": [_LOOK],
            **({"stream": True} if self._sort.stream else {}),
        }


def _check(answer: ModelAnswer, question: Question, turns: int) -> None:
    """Raise WrongAnswerError unless this is the whole answer to the question."""
    if answer.stop_reason is None:
        raise WrongAnswerError(f"the answer to {question} ended early and looked whole")
    if question.turn < turns:
        words = [str(call["input"].get("word")) for call in answer.calls]
        if words != [check_word(*question)]:
            raise WrongAnswerError(f"the answer to {question} has the calls {words}")
    elif answer.text != last_words(*question):
        raise WrongAnswerError(f"the answer to {question} is {answer.text[:80]!r}")
