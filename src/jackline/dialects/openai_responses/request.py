"""Translate an Anthropic request into OpenAI's Responses, and repair Responses requests.

Rules: (1) what cannot be expressed is refused by name or noted; (2) items are in the order of the
conversation, which is sent whole; nothing is stored at the other side; (3) thoughts are sent only
to servers that accept reasoning of others, encrypted ones only to the server that made them; (4)
for a server that did not make them, encrypted thoughts are removed and noted; all else stays as
it is written, and what cannot be read is left for the vendor to refuse; (5) ids bind as before.
Not here: parsing the request (neutral/request.py), the way back (answer.py), when thoughts must
be removed (providers/).
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import partial

import msgspec

from jackline.dialects.neutral.conversation import (
    ContentPart,
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
    digest,
)
from jackline.dialects.neutral.fields import (
    UNREADABLE,
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

_LONGEST_ID = 64

_Json = dict[str, object]


class InputItems:
    """Takes turns and gives items."""

    def __init__(self, target: TargetOptions, notes: TranslationNotes, names: ToolNames) -> None:
        self._target = target
        self._notes = notes
        self._names = names
        self.said: list[_Json | msgspec.Raw] = []

    def say(self, turn: ConversationTurn) -> None:
        """The next turn."""
        role: str = turn.role
        if turn.role == "system":
            role = self._target.system_role
            if self._target.mid_system == "user":
                role = "user"
                self._notes.add(
                    f"{turn.at}.role", "told as the user's words, as the settings want it"
                )
        together: list[VisiblePart] = []
        thoughts = self._thoughts_before(turn.parts)
        for place, part in enumerate(turn.parts):
            self.said += thoughts.get(place, ())
            if isinstance(part, TextPart | ImagePart | DocumentPart) and turn.role != "assistant":
                together.append(part)
                continue
            self._say_shown(role, together)
            together = []
            self._say_item(part)
        self._say_shown(role, together)

    def _thoughts_before(self, parts: Sequence[ContentPart]) -> dict[int, list[msgspec.Raw]]:
        """What this server thought before each of the parts, where that is still known."""
        found: dict[int, list[msgspec.Raw]] = {}
        recall = self._target.recall
        for place, part in enumerate(parts):
            if recall is None or not isinstance(part, ToolCallPart):
                continue
            for kept in recall(part.id):
                at = place
                while kept.before_words and at > 0 and isinstance(parts[at - 1], TextPart):
                    at -= 1
                found.setdefault(at, []).append(kept.item)
        return found

    def _say_shown(self, role: str, shown: Sequence[VisiblePart]) -> None:
        if shown:
            content = [self._content(part) for part in shown]
            self.said.append({"type": "message", "role": role, "content": content})

    def _say_item(self, part: ContentPart) -> None:
        match part:
            case TextPart():
                self.said.append({"type": "message", "role": "assistant", "content": part.text})
            case ToolCallPart():
                self.said.append(
                    {
                        "type": "function_call",
                        "call_id": self._id(part.id, f"{part.at}.id"),
                        "name": self._names.of(part.name, f"{part.at}.name"),
                        "arguments": part.arguments,
                    }
                )
            case ToolResultPart():
                self._say_result(part)
            case ThinkingPart():
                self._say_thought(part)
            case _:
                raise UntranslatableError(
                    part.at, "the assistant can only say words and call tools"
                )

    def _say_result(self, result: ToolResultPart) -> None:
        parts = result.parts
        if result.failed:
            self._notes.add(f"{result.at}.is_error", "told in words in front of the result")
            parts = (TextPart(result.at, FAILED), *parts)
        words = [part.text for part in parts if isinstance(part, TextPart)]
        output: object = "\n\n".join(words)
        if len(words) < len(parts):
            # Not all servers read a list here, so it is written only where it says more.
            output = [self._content(part) for part in parts]
        sent = self._id(result.id, f"{result.at}.tool_use_id")
        self.said.append({"type": "function_call_output", "call_id": sent, "output": output})

    def _say_thought(self, thought: ThinkingPart) -> None:
        if not self._target.reasoning_items:
            self._notes.add(thought.at, "thoughts of another model are not told")
            return
        content = [{"type": "reasoning_text", "text": thought.text}]
        name = f"rs_{digest(thought.at, thought.text)}"
        self.said.append({"type": "reasoning", "id": name, "summary": [], "content": content})

    def _content(self, part: VisiblePart) -> _Json:
        match part:
            case TextPart():
                return {"type": "input_text", "text": part.text}
            case ImagePart():
                if not self._target.images:
                    raise UntranslatableError(part.at, "this model takes no images")
                return {"type": "input_image", "image_url": part.url, "detail": "auto"}
            case DocumentPart():
                if not self._target.files:
                    raise UntranslatableError(part.at, "a document that cannot be told here")
                if part.inline:
                    return {"type": "input_file", "filename": part.name, "file_data": part.url}
                if part.title:
                    self._notes.add(f"{part.at}.title", "a file by its address has no name here")
                return {"type": "input_file", "file_url": part.url}

    def _id(self, known: str, at: str) -> str:
        sent = call_id(known, _LONGEST_ID)
        if sent != known:
            self._notes.add(at, "longer than OpenAI allows; told as a digest")
        return sent


_VENDOR = TargetOptions()


def to_responses(
    body: bytes | bytearray, model: str, options: TargetOptions = _VENDOR
) -> TranslatedDocument:
    """The request for `POST /v1/responses`; CannotSayError names what cannot be said."""
    notes = TranslationNotes()
    asked = read_conversation(body, options.forgo, notes)
    names = ToolNames(notes)
    items = InputItems(options, notes, names)
    for turn in asked.turns:
        items.say(turn)
    told: dict[str, object] = {"model": model, "input": items.said, "store": False}
    if asked.system:
        told["instructions"] = "\n\n".join(words.text for words in asked.system)
    limit = longest_answer(asked, options, notes)
    if limit is not None:
        told["max_output_tokens"] = limit
    told |= sampling(asked, options, notes)
    if asked.stops:
        raise UntranslatableError("stop_sequences", "OpenAI's Responses have none")
    told |= tool_fields(asked, partial(_tool, names), partial(_choice, names))
    effort = known_effort(asked.effort, options.efforts, notes)
    if effort is not None:
        told["reasoning"] = {"effort": effort}
    if asked.schema is not None:
        schema = {"name": "answer", "schema": asked.schema, "strict": True}
        told["text"] = {"format": {"type": "json_schema", **schema}}
    told |= user_id_field(asked.user, options, notes)
    if options.prompt_cache_key is not None:
        told["prompt_cache_key"] = options.prompt_cache_key
    if options.recall is not None:
        told["include"] = ["reasoning.encrypted_content"]
    if asked.stream:
        told["stream"] = True
    return TranslatedDocument(msgspec.json.encode(told), notes.told(), names.real)


def _tool(names: ToolNames, tool: ToolDefinition) -> dict[str, object]:
    told: dict[str, object] = {
        "type": "function",
        "name": names.of(tool.name, f"{tool.at}.name"),
        "parameters": tool.schema,
        # Responses are strict unless told otherwise, and refuse most schemas then.
        "strict": tool.strict,
    }
    if tool.description is not None:
        told["description"] = tool.description
    return told


def _choice(names: ToolNames, choice: ToolChoice) -> object:
    if choice.kind == "tool":
        return {"type": "function", "name": names.of(choice.name, "tool_choice.name")}
    return "required" if choice.kind == "any" else choice.kind


class _Item(msgspec.Struct):
    type: str | None = None
    encrypted_content: str | None = None


_top = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items = msgspec.json.Decoder(list[msgspec.Raw])
_item = msgspec.json.Decoder(_Item)


def without_reasoning(
    body: bytes | bytearray, refused: Container[str] | None = None
) -> TranslatedDocument:
    """The request without its thoughts, or without those that are known to be `refused`."""
    whole = bytes(body)
    notes = TranslationNotes()
    kept: list[msgspec.Raw] = []
    try:
        top = _top.decode(whole)
        items = _items.decode(top["input"])
        notes.count_objects(len(items))
        for place, raw in enumerate(items):
            item = _item.decode(raw)
            known = refused is None or (item.encrypted_content or "") in refused
            if item.type == "reasoning" and known:
                notes.add(f"input[{place}]", "a thought that another server has encrypted")
            else:
                kept.append(raw)
    except (*UNREADABLE, KeyError):
        return TranslatedDocument(whole)
    if not notes.told():
        return TranslatedDocument(whole)
    return TranslatedDocument(msgspec.json.encode({**top, "input": kept}), notes.told())
