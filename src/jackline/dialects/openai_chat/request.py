"""Translate an Anthropic request into OpenAI's Chat Completions.

Rules: (1) what cannot be expressed is refused by name or noted; (2) the results of calls directly
follow the message that made the calls; what came before follows them; (3) an image in a result
becomes text in the result and an image of the user right after; (4) what moved or became text is
noted; (5) calls and results keep matching ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jackline.dialects.neutral.conversation import (
    FAILED,
    ConversationTurn,
    DocumentPart,
    ImagePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolDefinition,
    ToolResultPart,
    VisiblePart,
)
from jackline.dialects.neutral.fields import TranslatedDocument, UntranslatableError
from jackline.dialects.neutral.options import VENDOR, RequestWriter, TargetOptions

_MOST_STOPS = 4
_BETWEEN = "\n\n"
_IMAGE_FOLLOWS = "The result holds what only a user can show here; it follows as a message."


def to_chat(
    body: bytes | bytearray, model: str, options: TargetOptions = VENDOR
) -> TranslatedDocument:
    """The request for `POST /v1/chat/completions`; UntranslatableError for what it cannot say."""
    return _ChatWriter(body, options).write(model)


class _ChatWriter(RequestWriter):
    longest_id = 40

    def __init__(self, body: bytes | bytearray, target: TargetOptions) -> None:
        super().__init__(body, target)
        self._messages: list[dict[str, object]] = []
        # Calls without a result so far, and what has to wait for those results.
        self._open_calls: set[str] = set()
        self._waiting: list[dict[str, object]] = []

    def write(self, model: str) -> TranslatedDocument:
        request = self.request
        if request.system:
            content = _joined_text(request.system)
            self._add({"role": self.target.system_role, "content": content}, "system")
        for turn in request.turns:
            match turn.role:
                case "assistant":
                    self._write_assistant(turn)
                case "system":
                    role: str = self.target.system_role
                    if self.target.mid_system == "user":
                        role = "user"
                        self.notes.add(f"{turn.at}.role", "sent as the user's, as the settings say")
                    self._add({"role": role, "content": _joined_text(turn.parts)}, turn.at)
                case "user":
                    self._write_user(turn)
        fields = {
            "messages": [*self._messages, *self._waiting],
            **self.shared_fields(model, self.target.max_tokens_field),
        }
        if len(request.stops) > _MOST_STOPS:
            raise UntranslatableError("stop_sequences", f"more than {_MOST_STOPS} of them")
        if request.stops:
            fields["stop"] = request.stops
        effort = self.effort()
        if effort is not None:
            fields["reasoning_effort"] = effort
        if request.schema is not None:
            schema = {"name": "answer", "schema": request.schema, "strict": True}
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
        if request.stream:
            fields["stream_options"] = {"include_usage": True}
        return self.document(fields)

    def _write_assistant(self, turn: ConversationTurn) -> None:
        self._end_waiting()
        text = _joined_text(turn.parts)
        calls = [part for part in turn.parts if isinstance(part, ToolCallPart)]
        message: dict[str, object] = {"role": "assistant", "content": text or None}
        thinking = [part for part in turn.parts if isinstance(part, ThinkingPart)]
        if thinking and self.target.reasoning_field is not None:
            message[self.target.reasoning_field] = _BETWEEN.join(part.text for part in thinking)
        else:
            for part in thinking:
                self.notes.add(part.at, "thinking of another model is not sent")
        if calls:
            for late in turn.parts[turn.parts.index(calls[0]) :]:
                if isinstance(late, TextPart):
                    self.notes.add(late.at, "sent before the tool calls, not after them")
            message["tool_calls"] = [
                {
                    "id": self.call_id(call.id, f"{call.at}.id"),
                    "type": "function",
                    "function": {
                        "name": self.tool_name(call.name, f"{call.at}.name"),
                        "arguments": call.arguments,
                    },
                }
                for call in calls
            ]
            self._open_calls = {self.call_id(call.id, f"{call.at}.id") for call in calls}
        elif not text:
            message["content"] = ""
        self._messages.append(message)

    def _write_user(self, turn: ConversationTurn) -> None:
        visible: list[VisiblePart] = []
        moved: list[VisiblePart] = []
        noted = 0
        for part in turn.parts:
            if isinstance(part, ToolResultPart):
                for early in visible[noted:]:
                    self.notes.add(early.at, "sent after the results of tools")
                noted = len(visible)
                moved += self._write_result(part)
            elif isinstance(part, TextPart | ImagePart | DocumentPart):
                visible.append(part)
        if not self._open_calls:
            self._end_waiting()
        parts = [*moved, *visible]
        if parts and all(isinstance(part, TextPart) for part in parts):
            self._add({"role": "user", "content": _joined_text(parts)}, turn.at)
        elif parts:
            self._add({"role": "user", "content": [self._content(part) for part in parts]}, turn.at)

    def _write_result(self, result: ToolResultPart) -> Sequence[VisiblePart]:
        """Write the text of a result, and return the parts that are not text."""
        others = [part for part in result.parts if not isinstance(part, TextPart)]
        texts = [part.text for part in result.parts if isinstance(part, TextPart)]
        if result.failed:
            self.notes.add(f"{result.at}.is_error", "sent as text before the result")
            texts.insert(0, FAILED)
        sent = self.call_id(result.id, f"{result.at}.tool_use_id")
        if others:
            texts.append(_IMAGE_FOLLOWS)
        for part in others:
            self.notes.add(part.at, "a tool cannot return it here; the user shows it instead")
        content = _BETWEEN.join(texts)
        self._messages.append({"role": "tool", "tool_call_id": sent, "content": content})
        self._open_calls.discard(sent)
        if not others:
            return others
        return [TextPart(result.at, f"From the result of the tool call {sent}:"), *others]

    def _content(self, part: VisiblePart) -> dict[str, object]:
        match part:
            case TextPart():
                return {"type": "text", "text": part.text}
            case ImagePart():
                if not self.target.images:
                    raise UntranslatableError(part.at, "this model accepts no images")
                return {"type": "image_url", "image_url": {"url": part.url}}
            case DocumentPart():
                if not self.target.files or not part.inline:
                    raise UntranslatableError(part.at, "a document that cannot be sent here")
                return {"type": "file", "file": {"filename": part.name, "file_data": part.url}}

    def _add(self, message: dict[str, object], at: str) -> None:
        if self._open_calls:
            self.notes.add(at, "sent after the results of tools")
            self._waiting.append(message)
        else:
            self._messages.append(message)

    def _end_waiting(self) -> None:
        self._messages += self._waiting
        self._waiting = []
        self._open_calls = set()

    def _tool(self, tool: ToolDefinition) -> dict[str, object]:
        function: dict[str, object] = {"name": self.tool_name(tool.name, f"{tool.at}.name")}
        if tool.description is not None:
            function["description"] = tool.description
        function["parameters"] = tool.schema
        if tool.strict:
            function["strict"] = True
        return {"type": "function", "function": function}

    def _tool_choice(self, name: str) -> dict[str, object]:
        function = {"name": self.tool_name(name, "tool_choice.name")}
        return {"type": "function", "function": function}


def _joined_text(parts: Iterable[object]) -> str:
    return _BETWEEN.join(part.text for part in parts if isinstance(part, TextPart))
