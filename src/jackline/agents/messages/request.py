"""Write the request of the next model call: defaults, body, size in tokens.

Rules: (1) pure and deterministic: the same conversation gives the same bytes, so that a gateway
recognises a repeated call; (2) every default is here, with its reason; (3) at most four cache
marks, on parts that will be sent again unchanged; (4) a tool choice is forced only for a structured
answer that is missing; (5) the vendor's count goes before ours, and the upper bound is one token
per byte, with pictures and hidden tool prompts at their maximum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jackline.agents.messages.conversation import AgentConversation, weight
from jackline.agents.prices import Price
from jackline.agents.runner import AgentTask, JsonObject, NextCall
from jackline.agents.structured_answer import STRUCTURED_OUTPUT

CHARACTERS_PER_TOKEN = 4
"""Roughly, where the vendor has not counted yet."""

_UNATTENDED = (
    "You carry out one task on your own: nobody watches, and nobody can answer a question. Use "
    "the tools you have, decide open points yourself, and end with the result itself, not with "
    "a report of what you plan to do. Calls in one turn run side by side."
)
_WANTS_STRUCTURE = (
    f"Give your final answer by calling the tool {STRUCTURED_OUTPUT}, once and alone, when "
    "everything else is done. Text outside of that call is not read."
)
_MARK: JsonObject = {"type": "ephemeral"}
# Blocks of thinking take no mark, and none is ever on them: only input of the model has one.
_MARKED_MESSAGES = 2
# Tokens that a vendor adds to every call; Anthropic documents up to 804, for tools.
_HIDDEN = 1_000
# Tokens; Anthropic scales larger pictures down to 4,784.
_PICTURE = 5_000


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
    # Requests to repeat a missing or invalid answer.
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


def request_body(
    task: AgentTask,
    conversation: AgentConversation,
    settings: MessagesSettings,
    offered: Sequence[JsonObject],
    *,
    may_force: bool = True,
) -> JsonObject:
    """The body of the next call; `offered` are the tools."""
    body: JsonObject = {
        "model": task.model or settings.model,
        "max_tokens": task.max_tokens or settings.max_tokens,
    }
    has_tools = any(tool["name"] != STRUCTURED_OUTPUT for tool in offered)
    system = _UNATTENDED if task.system is None and has_tools else task.system or ""
    if task.schema is not None:
        system = f"{system}\n\n{_WANTS_STRUCTURE}" if system else _WANTS_STRUCTURE
    tools = [dict(tool) for tool in offered]
    if system:
        body["system"] = [{"type": "text", "text": system, "cache_control": _MARK}]
    elif tools:
        tools[-1]["cache_control"] = _MARK
    if tools:
        body["tools"] = tools
    if conversation.wants_structure and may_force:
        body["tool_choice"] = {"type": "tool", "name": STRUCTURED_OUTPUT}
    messages = conversation.shortened.render(
        conversation.all_messages, conversation.prompt, conversation.prompt_at
    )
    # One turn and out: marking what is never sent again would only cost.
    marks = _MARKED_MESSAGES if has_tools else 0
    for index in range(len(messages) - 1, -1, -1):
        content = messages[index].get("content")
        if marks and messages[index]["role"] == "user" and isinstance(content, list) and content:
            last = {**content[-1], "cache_control": _MARK}
            messages[index] = {**messages[index], "content": [*content[:-1], last]}
            marks -= 1
    body["messages"] = messages
    return body


def next_call(body: JsonObject, max_tokens: int, conversation: AgentConversation) -> NextCall:
    """What is known of the call before it is made."""
    counted = conversation.counted
    since = conversation.unanswered if counted else body
    return NextCall(
        str(body["model"]),
        max_tokens,
        lambda: counted + weight(since) // CHARACTERS_PER_TOKEN,
        lambda: _HIDDEN + min(_most_tokens(body), counted + _most_tokens(since)),
    )


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
