"""Let a call name the calls beside it that it needs, without taking an argument from its tool.

Laws: (1) a tool that has an argument of that name itself keeps it, and its calls name no needs;
(2) only calls before it in the same turn can be named, so nothing can wait for itself; (3) pure.
Not here: waiting and skipping (tool_turn.py, batches/).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jackline.agents.messages.conversation import ToolCall
from jackline.agents.task import JsonObject
from jackline.batches.tool import Tool

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


def own_arguments(call: ToolCall, tool: Tool | None) -> JsonObject:
    """What of a call's input is for the tool itself."""
    if not _names_needs(tool):
        return dict(call.arguments)
    return {name: given for name, given in call.arguments.items() if name != NEEDS_CALLS}


def named_positions(call: ToolCall, tool: Tool | None) -> list[object]:
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
