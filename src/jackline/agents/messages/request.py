"""Write the request of the next model call: defaults, offered tools, body, size in tokens.

Rules: (1) pure and deterministic: the same conversation gives the same bytes, so that a gateway
recognises a repeated call; (2) every default is here, with its reason; (3) at most four cache
marks, on parts that will be sent again unchanged; (4) a tool choice is forced only for a structured
answer that is missing; (5) a tool that has an argument `needs_calls` of its own uses it itself, and
only earlier calls of the same turn can be named, so that nothing waits for itself; (6) the vendor's
count goes before ours, and the upper bound is one token per byte, with pictures and hidden tool
prompts at their maximum.
Not here: sending (gateway_model.py), what is left out (conversation.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jackline.agents.messages.conversation import AgentConversation, TurnToolCall, rendered, weight
from jackline.agents.prices import Price
from jackline.agents.runner import AgentTask, JsonObject, NextCall
from jackline.batches.tool import Tool

STRUCTURED_OUTPUT = "StructuredOutput"
"""The tool by which a structured answer is given; Claude Code's word for it."""

CHARACTERS_PER_TOKEN = 4
"""Roughly, where the vendor has not counted yet."""

UNATTENDED = (
    "You carry out one task on your own: nobody watches, and nobody can answer a question. Use "
    "the tools you have, decide open points yourself, and end with the result itself, not with "
    "a report of what you plan to do. Calls in one turn run side by side."
)
ASKS_FOR_STRUCTURE = (
    f"Give your final answer by calling the tool {STRUCTURED_OUTPUT}, once and alone, when "
    "everything else is done. Text outside of that call is not read."
)


@dataclass(frozen=True, slots=True)
class MessagesSettings:
    """How the runner works where a task does not say otherwise."""

    model: str = "claude-opus-4-8"
    # All current models take it; answers are streamed, so that length costs no patience.
    max_tokens: int = 32_000
    # What every current model takes without a beta header.
    window: int = 200_000
    # Shortened when so much of the window is used, and then down to the second share at once:
    # every shortening empties the vendor's cache of this conversation, so they should be rare.
    full_at: float = 0.75
    shorten_to: float = 0.4
    # Asked again for a missing or invalid answer.
    most_reasks: int = 2
    # Cut off at the output limit, or paused by the vendor, so often in a row.
    most_continuations: int = 5
    # Characters of one tool's result that a model is shown; all results of a turn together get
    # no more than the share of the window that follows.
    longest_result: int = 60_000
    results_share: float = 0.25
    # Tools of one turn that run at once.
    tools_at_once: int = 16
    prices: Mapping[str, Price] = field(default_factory=dict)

    def room_for_result(self, calls: int) -> int:
        """How many characters the result of one of so many calls may have."""
        together = self.results_share * self.window * CHARACTERS_PER_TOKEN
        return min(self.longest_result, int(together / max(1, calls)))


NEEDS_CALLS = "needs_calls"
"""The argument by which a call names them; taken off before the tool runs."""

_OFFERED: JsonObject = {
    "type": "array",
    "items": {"type": "integer"},
    "description": (
        "Optional. Positions (1 for the first) of earlier calls of this same turn that must have "
        "succeeded before this one runs; it is skipped if one of them fails."
    ),
}


def with_needs(schema: Mapping[str, object]) -> JsonObject:
    """The schema of a tool's input as it is offered, with the way to name what a call needs."""
    if not _is_free(schema):
        return dict(schema)
    known = schema.get("properties")
    properties = known if isinstance(known, dict) else {}
    return {**schema, "properties": {**properties, NEEDS_CALLS: _OFFERED}}


def own_arguments(call: TurnToolCall, tool: Tool | None) -> JsonObject:
    """What of a call's input is for the tool itself."""
    if not _names_needs(tool):
        return dict(call.arguments)
    return {name: given for name, given in call.arguments.items() if name != NEEDS_CALLS}


def named_positions(call: TurnToolCall, tool: Tool | None) -> list[object]:
    """What the call names, sense or nonsense; nothing where the argument is the tool's own."""
    named = call.arguments.get(NEEDS_CALLS) if _names_needs(tool) else None
    return named if isinstance(named, list) else []


def is_nonsense(named: Sequence[object], position: int) -> bool:
    """Whether anything but calls before this one is named."""
    return any(not isinstance(each, int) or not 0 < each < position for each in named)


def _names_needs(tool: Tool | None) -> bool:
    # A tool that the model invented has no argument of its own.
    return tool is None or _is_free(tool.input_schema)


def _is_free(schema: Mapping[str, object]) -> bool:
    """Whether the name can be ours: the input is an object that does not have it yet."""
    properties = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(properties, dict | None):
        return False
    return NEEDS_CALLS not in (properties or {})


_MARK: JsonObject = {"type": "ephemeral"}
# Blocks of thinking take no mark, and none is ever on them: only what is said to the model has one.
_MARKED_MESSAGES = 2


def request_body(
    task: AgentTask,
    talk: AgentConversation,
    settings: MessagesSettings,
    offered: Sequence[JsonObject],
    *,
    may_force: bool = True,
) -> JsonObject:
    """The body of the call that the conversation asks for now."""
    body: JsonObject = {
        "model": task.model or settings.model,
        "max_tokens": max_tokens_of(task, settings),
    }
    system = _system(task, offered)
    tools = [dict(tool) for tool in offered]
    if system:
        body["system"] = [{"type": "text", "text": system, "cache_control": _MARK}]
    elif tools:
        tools[-1]["cache_control"] = _MARK
    if tools:
        body["tools"] = tools
    if talk.wants_structure and may_force:
        body["tool_choice"] = {"type": "tool", "name": STRUCTURED_OUTPUT}
    # One turn and out: marking what is never sent again would only cost.
    marked = _MARKED_MESSAGES if _has_tools(offered) else 0
    shown = rendered(all_messages(talk), talk.shortened, talk.task)
    body["messages"] = _marked(shown, marked)
    return body


def max_tokens_of(task: AgentTask, settings: MessagesSettings) -> int:
    """How long the answer may be."""
    return task.max_tokens or settings.max_tokens


def all_messages(talk: AgentConversation) -> list[JsonObject]:
    """The whole turns, and what was said since."""
    if not talk.said:
        return talk.messages
    return [*talk.messages, {"role": "user", "content": talk.said}]


def offered_tool(tool: Tool) -> JsonObject:
    """A tool as it is offered to the model, with the way to name what a call needs."""
    schema = with_needs(tool.input_schema)
    return {"name": tool.name, "description": tool.description, "input_schema": schema}


def _system(task: AgentTask, offered: Sequence[JsonObject]) -> str:
    parts = []
    if task.system is not None:
        parts.append(task.system)
    elif _has_tools(offered):
        parts.append(UNATTENDED)
    if task.schema is not None:
        parts.append(ASKS_FOR_STRUCTURE)
    return "\n\n".join(part for part in parts if part)


def _has_tools(offered: Sequence[JsonObject]) -> bool:
    return any(tool["name"] != STRUCTURED_OUTPUT for tool in offered)


def _marked(messages: list[JsonObject], count: int) -> list[JsonObject]:
    """The messages with a mark on the last `count` of the user's."""
    for index in range(len(messages) - 1, -1, -1):
        content = messages[index].get("content")
        if count and messages[index]["role"] == "user" and isinstance(content, list) and content:
            last = {**content[-1], "cache_control": _MARK}
            messages[index] = {**messages[index], "content": [*content[:-1], last]}
            count -= 1
    return messages


_HIDDEN = 1_000
"""Tokens that a vendor adds to every call; Anthropic documents up to 804, for tools."""

_PICTURE = 5_000
"""Tokens; Anthropic scales larger pictures down to 4,784."""


def next_call(body: JsonObject, max_tokens: int, talk: AgentConversation) -> NextCall:
    """The call as far as it is known beforehand."""
    return NextCall(
        str(body["model"]),
        max_tokens,
        lambda: _rough_input(body, talk),
        lambda: _most_input(body, talk),
    )


def _rough_input(body: JsonObject, talk: AgentConversation) -> int:
    if talk.counted:
        return talk.counted + weight(talk.said) // CHARACTERS_PER_TOKEN
    return weight(body) // CHARACTERS_PER_TOKEN


def _most_input(body: JsonObject, talk: AgentConversation) -> int:
    most = _most_tokens(body)
    if talk.counted:
        most = min(most, talk.counted + _most_tokens(talk.said))
    return most + _HIDDEN


def _most_tokens(value: object) -> int:
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, dict):
        if value.get("type") == "base64" and str(value.get("media_type")).startswith("image/"):
            return _PICTURE
        # Four for the marks around and between the two.
        return sum(_most_tokens(key) + _most_tokens(each) + 4 for key, each in value.items())
    if isinstance(value, list):
        return sum(_most_tokens(each) + 1 for each in value)
    return len(str(value))
