"""Write the body of the next model call from where a conversation stands.

Laws: (1) pure and deterministic: the same conversation gives the same bytes, so that a gateway
knows a call that is asked again; (2) at most four cache marks, on what will be sent again
unchanged; (3) a tool choice is forced only to get a structured answer that was left out.
Not here: sending it (gateway_model.py), what is left out (shortening.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from jackline.agents.messages.conversation import Conversation
from jackline.agents.messages.defaults import (
    ASKS_FOR_STRUCTURE,
    STRUCTURED_OUTPUT,
    UNATTENDED,
    MessagesSettings,
)
from jackline.agents.messages.needed_calls import with_needs
from jackline.agents.messages.shortening import rendered
from jackline.agents.task import AgentTask, JsonObject
from jackline.batches.tool import Tool

_MARK: JsonObject = {"type": "ephemeral"}
# Blocks of thinking take no mark, and none is ever on them: only what is said to the model has one.
_MARKED_MESSAGES = 2


def request_body(
    task: AgentTask,
    talk: Conversation,
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


def all_messages(talk: Conversation) -> list[JsonObject]:
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
