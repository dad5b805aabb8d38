"""Decide by rule what the model says: words, tool calls, refusals, or a fault for one request.

Laws: (1) a reply depends on the request and the script alone, never on the clock; (2) the first
rule that fits answers; a request that none fits gets `fallback`, and is never left hanging.
Not here: the bytes of a reply (wire.py), reading requests (conversation.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from jackline.simulator.conversation import Asked, JsonObject
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.obliging import filled, wanted_schema
from jackline.simulator.refusals import Refusal, error_body

Stop: TypeAlias = Literal["end_turn", "tool_use", "max_tokens", "refusal"]
ToolCall: TypeAlias = tuple[str, JsonObject]

_STRUCTURED = "StructuredOutput"
"""The tool by which Claude Code asks for structured output."""

_FILLER = "The quick review of this part goes on, line by line, and finds nothing to report yet. "


@dataclass(frozen=True, slots=True)
class Say:
    """Words, then tool calls as (tool name, input); several calls run in parallel."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    delay: float = 0.0
    """Seconds of thinking before the first byte, beyond what the provider takes."""
    tokens_per_second: float | None = None
    """The speed of this answer, where it differs from the provider's."""
    stop: Stop | None = None
    """Why the model stopped; by default because it called tools or had said all."""

    @property
    def output_tokens(self) -> int:
        """About four characters to a token, tool calls included."""
        return 5 + (len(self.text) + len(json.dumps(self.calls))) // 4

    @property
    def stop_reason(self) -> Stop:
        """What the answer gives as its reason to stop."""
        return self.stop or ("tool_use" if self.calls else "end_turn")


@dataclass(frozen=True, slots=True)
class Fail:
    """An HTTP error; without a `body`, the one Anthropic sends for `error` and `message`."""

    status: int
    error: str = "api_error"
    message: str = "Internal server error"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: JsonObject | None = None

    def refusal(self) -> Refusal:
        """The same as the provider's own words."""
        whole = error_body(self.error, self.message) if self.body is None else json.dumps(self.body)
        return Refusal(self.status, whole, self.headers)


@dataclass(frozen=True, slots=True)
class Vanish:
    """Drop all connections and stop listening: what follows is refused."""


HANGUP = Fault(Effect.RESET)
"""Drop this connection without a byte (the client sees a reset)."""

Reply: TypeAlias = Say | Fail | Fault | Vanish
UNDERSTOOD = Say("Understood.")


@dataclass(frozen=True, slots=True)
class Rule:
    """A reply, and the requests it is for; a condition left out always holds."""

    reply: Reply | Callable[[Asked], Reply]
    prompt: str = ""
    """A part of what the user first asked."""
    latest: str = ""
    """A part of the last entry's text."""
    results: str = ""
    """A part of the tool results in the last entry."""
    offers: str = ""
    """A tool that the client must offer."""
    model: str = ""
    sub_agent: bool | None = None
    turn: int | None = None
    call: int | None = None

    def fits(self, asked: Asked) -> bool:
        """Whether this rule answers the request."""
        return (
            self.prompt in asked.prompt
            and self.latest in asked.latest
            and self.results in asked.results
            and self.model in asked.model
            and (not self.offers or self.offers in asked.tools)
            and self.sub_agent in (None, asked.agent != "")
            and self.turn in (None, asked.turn)
            and self.call in (None, asked.call)
        )


@dataclass(frozen=True, slots=True)
class Mind:
    """A script: rules in order, and what is said when none fits."""

    rules: Sequence[Rule] = ()
    fallback: Reply = UNDERSTOOD
    obliging: bool = False
    """Whether a structured answer that is asked for, and that no rule gives, is made up."""

    def reply(self, asked: Asked) -> Reply:
        """What the script says to this request."""
        rule = next((rule for rule in self.rules if rule.fits(asked)), None)
        if rule is None:
            schema = wanted_schema(asked, _STRUCTURED) if self.obliging else None
            return self.fallback if schema is None else structured(filled(schema, asked.prompt))
        return rule.reply(asked) if callable(rule.reply) else rule.reply


# --- things that models say ------------------------------------------------------------


def fan_out(prompts: Iterable[str], text: str = "Splitting.", *, background: bool = True) -> Say:
    """One `Agent` call per prompt, all in one turn, as Claude Code's sub-agents are started."""
    calls = []
    for number, prompt in enumerate(prompts, 1):
        given = {
            "description": f"Part {number}",
            "prompt": prompt,
            "subagent_type": "general-purpose",
        }
        calls.append(("Agent", given if background else {**given, "run_in_background": False}))
    return Say(text, tuple(calls))


def workflow(script: str, text: str = "Starting.") -> Say:
    """A call of Claude Code's `Workflow` tool with this script."""
    return Say(text, (("Workflow", {"script": script}),))


def structured(value: JsonObject) -> Say:
    """The structured output that a schema asked for; to leave it out, say plain words instead."""
    return Say("", ((_STRUCTURED, value),))


def as_asked(say: Say, asked: Asked) -> Say:
    """The same, with structured output as text where the request wants that and has no tool."""
    if not asked.wants_json or _STRUCTURED in asked.tools:
        return say
    values = [given for name, given in say.calls if name == _STRUCTURED]
    if not values:
        return say
    rest = tuple(call for call in say.calls if call[0] != _STRUCTURED)
    return replace(say, text=say.text + json.dumps(values[0]), calls=rest)


def refusal(text: str = "I can't help with that.") -> Say:
    """An answer in which the model declines; it is no error on the wire."""
    return Say(text, stop="refusal")


def long_answer(tokens: int, tokens_per_second: float | None = None) -> Say:
    """Words for about so many tokens, at a speed of their own if given."""
    letters = max(0, tokens - 5) * 4
    text = (_FILLER * (letters // len(_FILLER) + 1))[:letters]
    return Say(text, tokens_per_second=tokens_per_second)
