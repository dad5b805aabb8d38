"""Read the tools of an Anthropic request, and which of them must be called.

Laws: (1) only tools that the client runs by a schema can be told; the vendor's own are refused by
name; (2) a schema stays as it was written.
Not here: calls and results in the conversation (content.py).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from jackline.dialects.neutral.account import CannotSayError, Fields, Notes, shown
from jackline.dialects.neutral.content import NO_CACHE_MARKS
from jackline.dialects.neutral.conversation import Asked, Choice, Tool
from jackline.dialects.neutral.ids import tool_name

# OpenAI's dialects have no mark for a result that is an error.
FAILED = "The tool reported an error:"


def read_tools(items: list[msgspec.Raw], notes: Notes) -> tuple[Tool, ...]:
    """The tools in order."""
    return tuple(
        _read_tool(Fields(item, f"tools[{index}]", notes)) for index, item in enumerate(items)
    )


def _read_tool(tool: Fields) -> Tool:
    kind = tool.text("type") or "custom"
    if kind != "custom":
        raise CannotSayError(tool.at, f"the vendor's own tool {shown(kind)} exists only there")
    tool.let_go("cache_control", NO_CACHE_MARKS)
    tool.let_go("defer_loading", "every tool is told from the start")
    tool.let_go("eager_input_streaming", "the other side streams arguments as it likes")
    _read_callers(tool)
    name = tool.needed_text("name")
    description = tool.text("description")
    examples = tool.raw("input_examples")
    if examples is not None:
        tool.notes.add(tool.path("input_examples"), "told at the end of the description")
        told = f"Examples of its input: {bytes(examples).decode()}"
        description = f"{description}\n\n{told}" if description else told
    read = Tool(tool.at, name, description, tool.needed("input_schema"), tool.flag("strict"))
    tool.close()
    return read


def _read_callers(tool: Fields) -> None:
    where = tool.path("allowed_callers")
    callers = tool.items("allowed_callers")
    if callers and b'"direct"' not in [bytes(caller) for caller in callers]:
        raise CannotSayError(where, "a tool that only the vendor's own code may call")
    if callers:
        tool.notes.add(where, "calls are always direct here")


def read_choice(choice: Fields | None, *, tools: bool) -> tuple[Choice | None, bool]:
    """Which tool must be called, and whether only one call may be made at a time."""
    if choice is None:
        return None, False
    if not tools:
        choice.note_rest("there are no tools to choose from")
        return None, False
    kind = choice.needed_text("type")
    one_at_a_time = choice.flag("disable_parallel_tool_use")
    match kind:
        case "auto" | "any" | "none":
            read = Choice(kind)
        case "tool":
            read = Choice(kind, choice.needed_text("name"))
        case _:
            raise CannotSayError(choice.path("type"), f"a tool choice of type {shown(kind)}")
    choice.close()
    return read, one_at_a_time


class ToolNames:
    """The names of tools as the other side takes them, and the way back."""

    __slots__ = ("_notes", "real")

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self.real: dict[str, str] = {}

    def of(self, name: str, at: str) -> str:
        """The name to send; one that had to change is noted and remembered."""
        sent = tool_name(name)
        if sent != name:
            self.real[sent] = name
            self._notes.add(at, "the name is longer or odder than OpenAI allows and was changed")
        return sent


def told_tools(
    asked: Asked, tool: Callable[[Tool], object], choice: Callable[[Choice], object]
) -> dict[str, object]:
    """The fields about tools, which OpenAI's dialects have in common but for what is in them."""
    if not asked.tools:
        return {}
    told: dict[str, object] = {"tools": [tool(each) for each in asked.tools]}
    if asked.choice is not None:
        told["tool_choice"] = choice(asked.choice)
    if asked.one_call_at_a_time:
        told["parallel_tool_calls"] = False
    return told
