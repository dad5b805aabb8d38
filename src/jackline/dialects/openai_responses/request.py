"""Translate an Anthropic request into OpenAI's Responses, and repair Responses requests.

Rules: (1) what cannot be expressed is refused by name or noted; (2) items are in the order of the
conversation, which is sent whole; nothing is stored at the target; (3) thinking is sent only to
servers that accept reasoning of others, encrypted reasoning only to the server that made it; (4)
for a server that did not make it, encrypted reasoning is removed and noted; everything else stays
as written, and what cannot be read is left for the vendor to refuse; (5) calls and results keep
matching ids.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import msgspec

from jackline.dialects.json_bounds import UNREADABLE
from jackline.dialects.neutral.conversation import (
    FAILED,
    ContentPart,
    ConversationTurn,
    DocumentPart,
    ImagePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolDefinition,
    ToolResultPart,
    VisiblePart,
    digest,
)
from jackline.dialects.neutral.fields import (
    TranslatedDocument,
    TranslationNotes,
    UntranslatableError,
)
from jackline.dialects.neutral.options import VENDOR, RequestWriter, TargetOptions


def to_responses(
    body: bytes | bytearray, model: str, options: TargetOptions = VENDOR
) -> TranslatedDocument:
    """The request for `POST /v1/responses`; UntranslatableError for what it cannot say."""
    return _ResponsesWriter(body, options).write(model)


class _ResponsesWriter(RequestWriter):
    longest_id = 64

    def __init__(self, body: bytes | bytearray, target: TargetOptions) -> None:
        super().__init__(body, target)
        self._items: list[dict[str, object] | msgspec.Raw] = []

    def write(self, model: str) -> TranslatedDocument:
        request = self.request
        for turn in request.turns:
            self._write_turn(turn)
        fields = {
            "input": self._items,
            "store": False,
            **self.shared_fields(model, "max_output_tokens"),
        }
        if request.system:
            fields["instructions"] = "\n\n".join(part.text for part in request.system)
        if request.stops:
            raise UntranslatableError("stop_sequences", "OpenAI's Responses have none")
        effort = self.effort()
        if effort is not None:
            fields["reasoning"] = {"effort": effort}
        if request.schema is not None:
            schema = {"name": "answer", "schema": request.schema, "strict": True}
            fields["text"] = {"format": {"type": "json_schema", **schema}}
        if self.target.recall is not None:
            fields["include"] = ["reasoning.encrypted_content"]
        return self.document(fields)

    def _write_turn(self, turn: ConversationTurn) -> None:
        role: str = turn.role
        if turn.role == "system":
            role = self.target.system_role
            if self.target.mid_system == "user":
                role = "user"
                self.notes.add(f"{turn.at}.role", "sent as the user's, as the settings say")
        together: list[VisiblePart] = []
        reasoning = self._reasoning_before(turn.parts)
        for place, part in enumerate(turn.parts):
            self._items += reasoning.get(place, ())
            if isinstance(part, TextPart | ImagePart | DocumentPart) and turn.role != "assistant":
                together.append(part)
                continue
            self._write_message(role, together)
            together = []
            self._write_item(part)
        self._write_message(role, together)

    def _reasoning_before(self, parts: Sequence[ContentPart]) -> dict[int, list[msgspec.Raw]]:
        """What this server reasoned before each of the parts, where that is still known."""
        found: dict[int, list[msgspec.Raw]] = {}
        for place, part in enumerate(parts):
            if self.target.recall is None or not isinstance(part, ToolCallPart):
                continue
            for stored in self.target.recall(part.id):
                at = place
                while stored.before_text and at > 0 and isinstance(parts[at - 1], TextPart):
                    at -= 1
                found.setdefault(at, []).append(stored.item)
        return found

    def _write_message(self, role: str, parts: Sequence[VisiblePart]) -> None:
        if parts:
            content = [self._content(part) for part in parts]
            self._items.append({"type": "message", "role": role, "content": content})

    def _write_item(self, part: ContentPart) -> None:
        match part:
            case TextPart():
                self._items.append({"type": "message", "role": "assistant", "content": part.text})
            case ToolCallPart():
                self._items.append(
                    {
                        "type": "function_call",
                        "call_id": self.call_id(part.id, f"{part.at}.id"),
                        "name": self.tool_name(part.name, f"{part.at}.name"),
                        "arguments": part.arguments,
                    }
                )
            case ToolResultPart():
                self._write_result(part)
            case ThinkingPart() if self.target.reasoning_items:
                content = [{"type": "reasoning_text", "text": part.text}]
                name = f"rs_{digest(part.at, part.text)}"
                self._items.append(
                    {"type": "reasoning", "id": name, "summary": [], "content": content}
                )
            case ThinkingPart():
                self.notes.add(part.at, "thinking of another model is not sent")
            case _:
                raise UntranslatableError(
                    part.at, "the assistant can only write text and call tools"
                )

    def _write_result(self, result: ToolResultPart) -> None:
        parts = result.parts
        if result.failed:
            self.notes.add(f"{result.at}.is_error", "sent as text before the result")
            parts = (TextPart(result.at, FAILED), *parts)
        texts = [part.text for part in parts if isinstance(part, TextPart)]
        output: object = "\n\n".join(texts)
        if len(texts) < len(parts):
            # Not all servers read a list here, so it is written only when it is needed.
            output = [self._content(part) for part in parts]
        sent = self.call_id(result.id, f"{result.at}.tool_use_id")
        self._items.append({"type": "function_call_output", "call_id": sent, "output": output})

    def _content(self, part: VisiblePart) -> dict[str, object]:
        match part:
            case TextPart():
                return {"type": "input_text", "text": part.text}
            case ImagePart():
                if not self.target.images:
                    raise UntranslatableError(part.at, "this model accepts no images")
                return {"type": "input_image", "image_url": part.url, "detail": "auto"}
            case DocumentPart():
                if not self.target.files:
                    raise UntranslatableError(part.at, "a document that cannot be sent here")
                if part.inline:
                    return {"type": "input_file", "filename": part.name, "file_data": part.url}
                if part.title:
                    self.notes.add(f"{part.at}.title", "a file by its URL has no name here")
                return {"type": "input_file", "file_url": part.url}

    def _tool(self, tool: ToolDefinition) -> dict[str, object]:
        fields: dict[str, object] = {
            "type": "function",
            "name": self.tool_name(tool.name, f"{tool.at}.name"),
            "parameters": tool.schema,
            # Responses are strict by default, and then refuse most schemas.
            "strict": tool.strict,
        }
        if tool.description is not None:
            fields["description"] = tool.description
        return fields

    def _tool_choice(self, name: str) -> dict[str, object]:
        return {"type": "function", "name": self.tool_name(name, "tool_choice.name")}


class _InputItem(msgspec.Struct):
    type: str | None = None
    encrypted_content: str | None = None


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items = msgspec.json.Decoder(list[msgspec.Raw])
_input_item = msgspec.json.Decoder(_InputItem)


def without_reasoning(
    body: bytes | bytearray, refused: Container[str] | None = None
) -> TranslatedDocument:
    """The request without its reasoning, or without the reasoning that is known to be `refused`."""
    whole = bytes(body)
    notes = TranslationNotes()
    left: list[msgspec.Raw] = []
    try:
        top = _fields.decode(whole)
        items = _items.decode(top["input"])
        notes.count_objects(len(items))
        for place, raw in enumerate(items):
            item = _input_item.decode(raw)
            is_refused = refused is None or (item.encrypted_content or "") in refused
            if item.type == "reasoning" and is_refused:
                notes.add(f"input[{place}]", "reasoning that another server has encrypted")
            else:
                left.append(raw)
    except (*UNREADABLE, KeyError):
        return TranslatedDocument(whole)
    if len(left) == len(items):
        return TranslatedDocument(whole)
    return TranslatedDocument(msgspec.json.encode({**top, "input": left}), notes.sentences())
