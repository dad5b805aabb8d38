"""Decide by rules what the model answers: text, tool calls, refusals, or a fault.

Rules: (1) a reply depends on the request and the script alone, never on the clock; (2) the first
rule that fits answers; a request that none fits gets `fallback`; (3) an obliging script fills in
any schema that a client offers: the same request gets the same answer, valid by the common part of
JSON Schema (types, properties, items, enums, bounds, references, choices), with three entries in
lists where the schema allows it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from jackline.simulator.client_request import ClientRequest, JsonObject
from jackline.simulator.exchange import ProviderRefusal, error_body
from jackline.simulator.faults import Effect, Fault

_ITEMS = 3
_DEEPEST = 8
_WORDS = ("harbour", "lantern", "current", "anchor", "beacon", "tide", "mast", "chart", "rope")


class SchemaFiller:
    """Makes up values that fit a schema; `about` decides them."""

    def __init__(self, root: Mapping[str, Any], about: str) -> None:
        self._root = root
        self._about = about

    def filled(self) -> JsonObject:
        """An object that fits the schema."""
        value = self._value(self._root, "$", 0)
        return value if isinstance(value, dict) else {}

    def _value(self, schema: Any, place: str, depth: int) -> Any:
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return schema["enum"][self._drawn(place) % len(schema["enum"])]
        for choice in ("anyOf", "oneOf"):
            if options := schema.get(choice):
                shown = [each for each in options if self._resolved(each).get("type") != "null"]
                return self._value((shown or options)[0], place, depth)
        if schema.get("allOf"):
            whole: dict[str, Any] = {name: v for name, v in schema.items() if name != "allOf"}
            for part in schema["allOf"]:
                whole |= self._resolved(part)
            return self._value(whole, place, depth)
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next((each for each in kind if each != "null"), "null")
        if not kind:
            is_list = "items" in schema
            kind = "object" if "properties" in schema else "array" if is_list else "string"
        return self._of_kind(kind, schema, place, depth)

    def _of_kind(self, kind: str, schema: Mapping[str, Any], place: str, depth: int) -> Any:
        draw = self._drawn(place)
        match kind:
            case "object":
                required = set(schema.get("required") or ())
                return {
                    name: self._value(inner, f"{place}.{name}", depth + 1)
                    for name, inner in (schema.get("properties") or {}).items()
                    # Deep down only what is required, or a schema that contains itself would
                    # never end.
                    if name in required or depth < _DEEPEST
                }
            case "array":
                least = int(schema.get("minItems") or 0)
                count = max(least, 0 if depth >= _DEEPEST else _ITEMS)
                count = min(count, int(schema.get("maxItems", count)))
                items = schema.get("items", {})
                return [self._value(items, f"{place}[{n}]", depth + 1) for n in range(count)]
            case "string":
                words = [_WORDS[(draw >> (4 * n)) % len(_WORDS)] for n in range(3)]
                text = f"{' '.join(words)} {draw % 1000}"
                text += " " + _WORDS[0] * (int(schema.get("minLength") or 0) // len(_WORDS[0]) + 1)
                longest = schema.get("maxLength")
                return text.rstrip() if longest is None else text[: int(longest)]
            case "integer" | "number":
                low: float = schema.get("minimum", schema.get("exclusiveMinimum", 0))
                high: float = schema.get("maximum", schema.get("exclusiveMaximum", low + 100))
                share = (draw % 97 + 1) / 99
                number = low + (high - low) * share
                return round(number) if kind == "integer" else round(number, 3)
            case _:
                return draw % 2 == 0 if kind == "boolean" else None

    def _resolved(self, schema: Any) -> Mapping[str, Any]:
        if not isinstance(schema, dict):
            return {}
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        found: Any = self._root
        for part in reference[2:].split("/"):
            found = found.get(part, {}) if isinstance(found, dict) else {}
        return self._resolved(found)

    def _drawn(self, place: str) -> int:
        return int.from_bytes(hashlib.sha256(f"{self._about}\n{place}".encode()).digest()[:6])


Stop: TypeAlias = Literal["end_turn", "tool_use", "max_tokens", "refusal"]
ToolCall: TypeAlias = tuple[str, JsonObject]

# The tool by which Claude Code requests structured output.
_STRUCTURED = "StructuredOutput"
_FILLER = "The quick review of this part goes on, line by line, and finds nothing to report yet. "


@dataclass(frozen=True, slots=True)
class Say:
    """Text, then tool calls as (tool name, input); several calls run in parallel.

    `delay`: seconds before the first byte, in addition to the provider's. `tokens_per_second`: the
    speed of this answer, if it is not the provider's. `stop`: why the model stopped; by default
    because it called tools or had finished.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    delay: float = 0.0
    tokens_per_second: float | None = None
    stop: Stop | None = None

    @property
    def output_tokens(self) -> int:
        """About four characters to a token, tool calls included."""
        return 5 + (len(self.text) + len(json.dumps(self.calls))) // 4

    @property
    def stop_reason(self) -> Stop:
        """The stop reason of the answer."""
        return self.stop or ("tool_use" if self.calls else "end_turn")

    def as_requested(self, request: ClientRequest) -> Say:
        """The same, with structured output as text when the request wants that and has no tool."""
        if not request.wants_json or _STRUCTURED in request.tools:
            return self
        values = [value for name, value in self.calls if name == _STRUCTURED]
        if not values:
            return self
        rest = tuple(call for call in self.calls if call[0] != _STRUCTURED)
        return replace(self, text=self.text + json.dumps(values[0]), calls=rest)


@dataclass(frozen=True, slots=True)
class Fail:
    """An HTTP error; without a `body`, the one Anthropic sends for `error` and `message`."""

    status: int
    error: str = "api_error"
    message: str = "Internal server error"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: JsonObject | None = None

    def refusal(self) -> ProviderRefusal:
        """The same as a refusal of the provider."""
        whole = error_body(self.error, self.message) if self.body is None else json.dumps(self.body)
        return ProviderRefusal(self.status, whole, self.headers)


@dataclass(frozen=True, slots=True)
class Vanish:
    """Drop all connections and stop listening: what follows is refused."""


HANGUP = Fault(Effect.RESET)
"""Drop this connection without a byte (the client sees a reset)."""

Reply: TypeAlias = Say | Fail | Fault | Vanish
UNDERSTOOD = Say("Understood.")


@dataclass(frozen=True, slots=True)
class Rule:
    """A reply, and the requests it is for; a missing condition is always true.

    `prompt` is a part of the user's first text, `latest` of the last entry's text, `results` of the
    tool results in it; `offers` is a tool that the client must offer.
    """

    reply: Reply | Callable[[ClientRequest], Reply]
    prompt: str = ""
    latest: str = ""
    results: str = ""
    offers: str = ""
    model: str = ""
    sub_agent: bool | None = None
    turn: int | None = None
    call: int | None = None

    def fits(self, request: ClientRequest) -> bool:
        """Whether this rule answers the request."""
        return (
            self.prompt in request.prompt
            and self.latest in request.latest
            and self.results in request.results
            and self.model in request.model
            and (not self.offers or self.offers in request.tools)
            and self.sub_agent in (None, request.agent != "")
            and self.turn in (None, request.turn)
            and self.call in (None, request.call)
        )


@dataclass(frozen=True, slots=True)
class ReplyScript:
    """Rules in order, and the reply when none fits.

    `obliging`: requested structured output that no rule provides is made up.
    """

    rules: Sequence[Rule] = ()
    fallback: Reply = UNDERSTOOD
    obliging: bool = False

    def reply(self, request: ClientRequest) -> Reply:
        """The reply to this request."""
        rule = next((rule for rule in self.rules if rule.fits(request)), None)
        if rule is not None:
            return rule.reply(request) if callable(rule.reply) else rule.reply
        for tool in request.body.get("tools") or () if self.obliging else ():
            if isinstance(tool, dict) and tool.get("name") == _STRUCTURED:
                schema = tool.get("input_schema")
                if isinstance(schema, dict):
                    return structured(SchemaFiller(schema, request.prompt).filled())
        return self.fallback


def structured(value: JsonObject) -> Say:
    """Structured output, as a schema requests it."""
    return Say("", ((_STRUCTURED, value),))


def long_answer(tokens: int, tokens_per_second: float | None = None) -> Say:
    """Text of about so many tokens, at its own speed if there is one."""
    length = max(0, tokens - 5) * 4
    text = (_FILLER * (length // len(_FILLER) + 1))[:length]
    return Say(text, tokens_per_second=tokens_per_second)
