"""Translate an Anthropic request into OpenAI's Chat Completions.

Rules: (1) what cannot be expressed is refused by name or noted; (2) the results of calls follow
directly the message that made the calls; what was said before follows them; (3) a result that is
an image becomes a result in words and an image of the user right after; (4) what moved or became
words is noted; (5) ids bind as before.
Not here: parsing the request (neutral/request.py), the way back (answer.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import msgspec

from jackline.dialects.neutral.conversation import (
    ConversationRequest,
    ConversationTurn,
    DocumentPart,
    ImagePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolChoice,
    ToolDefinition,
    ToolResultPart,
    VisiblePart,
    call_id,
)
from jackline.dialects.neutral.fields import (
    TranslatedDocument,
    TranslationNotes,
    UntranslatableError,
)
from jackline.dialects.neutral.options import TargetOptions, longest_answer, sampling, user_id_field
from jackline.dialects.neutral.request import (
    FAILED,
    ToolNames,
    known_effort,
    read_conversation,
    tool_fields,
)

_LONGEST_ID = 40
_BETWEEN = "\n\n"
_IMAGE_FOLLOWS = "The result holds what only a user can show here; it follows as a message."
_IMAGE_FROM = "From the result of the tool call {id}:"

_Json = dict[str, object]


class ChatMessages:
    """Takes turns and gives messages."""

    def __init__(self, target: TargetOptions, notes: TranslationNotes, names: ToolNames) -> None:
        self._target = target
        self._notes = notes
        self._names = names
        self._said: list[_Json] = []
        # Calls without a result so far, and what has to wait for those results.
        self._owed: set[str] = set()
        self._waiting: list[_Json] = []

    def done(self) -> list[_Json]:
        """All messages in order."""
        return [*self._said, *self._waiting]

    def say_system(self, system: Sequence[TextPart]) -> None:
        """What stands above the conversation."""
        if system:
            self._add({"role": self._target.system_role, "content": _joined(system)}, "system")

    def say(self, turn: ConversationTurn) -> None:
        """The next turn."""
        match turn.role:
            case "assistant":
                self._say_assistant(turn)
            case "system":
                self._say_mid_system(turn)
            case "user":
                self._say_user(turn)

    def _say_mid_system(self, turn: ConversationTurn) -> None:
        role: str = self._target.system_role
        if self._target.mid_system == "user":
            role = "user"
            self._notes.add(f"{turn.at}.role", "told as the user's words, as the settings want it")
        self._add({"role": role, "content": _joined(_only_words(turn.parts))}, turn.at)

    def _say_assistant(self, turn: ConversationTurn) -> None:
        self._flush()
        words = [part for part in turn.parts if isinstance(part, TextPart)]
        calls = [part for part in turn.parts if isinstance(part, ToolCallPart)]
        message: _Json = {"role": "assistant", "content": _joined(words) or None}
        self._keep_thoughts(turn, message)
        if calls:
            first = turn.parts.index(calls[0])
            for late in turn.parts[first:]:
                if isinstance(late, TextPart):
                    self._notes.add(late.at, "told in front of the tool calls, not behind them")
            message["tool_calls"] = [self._call(call) for call in calls]
            self._owed = {self._id(call.id, f"{call.at}.id") for call in calls}
        elif not words:
            message["content"] = ""
        self._said.append(message)

    def _keep_thoughts(self, turn: ConversationTurn, message: _Json) -> None:
        thoughts = [part for part in turn.parts if isinstance(part, ThinkingPart)]
        field = self._target.reasoning_field
        if thoughts and field is not None:
            message[field] = _BETWEEN.join(thought.text for thought in thoughts)
            return
        for thought in thoughts:
            self._notes.add(thought.at, "thoughts of another model are not told")

    def _call(self, call: ToolCallPart) -> _Json:
        return {
            "id": self._id(call.id, f"{call.at}.id"),
            "type": "function",
            "function": {
                "name": self._names.of(call.name, f"{call.at}.name"),
                "arguments": call.arguments,
            },
        }

    def _say_user(self, turn: ConversationTurn) -> None:
        shown: list[VisiblePart] = []
        moved: list[VisiblePart] = []
        noted = 0
        for part in turn.parts:
            if isinstance(part, ToolResultPart):
                for early in shown[noted:]:
                    self._notes.add(early.at, "told behind the results of tools")
                noted = len(shown)
                moved += self._say_result(part)
            elif isinstance(part, TextPart | ImagePart | DocumentPart):
                shown.append(part)
        if not self._owed:
            self._flush()
        self._say_shown([*moved, *shown], turn.at)

    def _say_result(self, result: ToolResultPart) -> list[VisiblePart]:
        """Write the words of a result; what is no words is given back."""
        words = [part for part in result.parts if isinstance(part, TextPart)]
        others: list[VisiblePart] = [
            part for part in result.parts if not isinstance(part, TextPart)
        ]
        lines = [FAILED] if result.failed else []
        if result.failed:
            self._notes.add(f"{result.at}.is_error", "told in words in front of the result")
        lines += [part.text for part in words]
        sent = self._id(result.id, f"{result.at}.tool_use_id")
        if others:
            lines.append(_IMAGE_FOLLOWS)
            for part in others:
                self._notes.add(part.at, "a tool cannot return it here; the user shows it instead")
            others = [TextPart(result.at, _IMAGE_FROM.format(id=sent)), *others]
        self._said.append({"role": "tool", "tool_call_id": sent, "content": _BETWEEN.join(lines)})
        self._owed.discard(sent)
        return others

    def _say_shown(self, shown: Sequence[VisiblePart], at: str) -> None:
        if not shown:
            return
        if all(isinstance(part, TextPart) for part in shown):
            self._add({"role": "user", "content": _joined(_only_words(shown))}, at)
        else:
            self._add({"role": "user", "content": [self._content(part) for part in shown]}, at)

    def _content(self, part: VisiblePart) -> _Json:
        match part:
            case TextPart():
                return {"type": "text", "text": part.text}
            case ImagePart():
                if not self._target.images:
                    raise UntranslatableError(part.at, "this model takes no images")
                return {"type": "image_url", "image_url": {"url": part.url}}
            case DocumentPart():
                if not self._target.files or not part.inline:
                    raise UntranslatableError(part.at, "a document that cannot be told here")
                return {"type": "file", "file": {"filename": part.name, "file_data": part.url}}

    def _id(self, known: str, at: str) -> str:
        sent = call_id(known, _LONGEST_ID)
        if sent != known:
            self._notes.add(at, "longer than OpenAI allows; told as a digest")
        return sent

    def _add(self, message: _Json, at: str) -> None:
        if self._owed:
            self._notes.add(at, "told behind the results of tools")
            self._waiting.append(message)
        else:
            self._said.append(message)

    def _flush(self) -> None:
        self._said += self._waiting
        self._waiting = []
        self._owed = set()


def _only_words(parts: Iterable[object]) -> list[TextPart]:
    return [part for part in parts if isinstance(part, TextPart)]


def _joined(words: Iterable[TextPart]) -> str:
    return _BETWEEN.join(word.text for word in words)


_MOST_STOPS = 4
_VENDOR = TargetOptions()


def to_chat(
    body: bytes | bytearray, model: str, options: TargetOptions = _VENDOR
) -> TranslatedDocument:
    """The request for `POST /v1/chat/completions`; CannotSayError names what cannot be said."""
    notes = TranslationNotes()
    asked = read_conversation(body, options.forgo, notes)
    names = ToolNames(notes)
    messages = ChatMessages(options, notes, names)
    messages.say_system(asked.system)
    for turn in asked.turns:
        messages.say(turn)
    told: dict[str, object] = {"model": model, "messages": messages.done()}
    limit = longest_answer(asked, options, notes)
    if limit is not None:
        told[options.max_tokens_field] = limit
    told |= sampling(asked, options, notes)
    told |= _stops(asked)
    told |= tool_fields(asked, partial(_tool, names), partial(_choice, names))
    effort = known_effort(asked.effort, options.efforts, notes)
    if effort is not None:
        told["reasoning_effort"] = effort
    if asked.schema is not None:
        schema = {"name": "answer", "schema": asked.schema, "strict": True}
        told["response_format"] = {"type": "json_schema", "json_schema": schema}
    told |= user_id_field(asked.user, options, notes)
    if options.prompt_cache_key is not None:
        told["prompt_cache_key"] = options.prompt_cache_key
    if asked.stream:
        told |= {"stream": True, "stream_options": {"include_usage": True}}
    return TranslatedDocument(msgspec.json.encode(told), notes.told(), names.real)


def _stops(asked: ConversationRequest) -> dict[str, object]:
    if not asked.stops:
        return {}
    if len(asked.stops) > _MOST_STOPS:
        raise UntranslatableError("stop_sequences", f"more than {_MOST_STOPS} of them")
    return {"stop": asked.stops}


def _tool(names: ToolNames, tool: ToolDefinition) -> dict[str, object]:
    function: dict[str, object] = {"name": names.of(tool.name, f"{tool.at}.name")}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = tool.schema
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _choice(names: ToolNames, choice: ToolChoice) -> object:
    if choice.kind == "tool":
        name = names.of(choice.name, "tool_choice.name")
        return {"type": "function", "function": {"name": name}}
    return "required" if choice.kind == "any" else choice.kind
