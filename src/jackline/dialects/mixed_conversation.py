"""Make a conversation in which another model took part acceptable to Claude again.

Rules: (1) when nothing is wrong, the same bytes are returned; messages and blocks without a fault
are copied byte for byte, so that the vendor's prompt cache still matches; (2) every change is
noted; (3) a call and its result change their id together; an id that comes twice gets another one
the second time, and results follow the latest call of that id; (4) a thinking block that Claude
did not sign is dropped, never signed; (5) a thinking budget is turned off in a turn that another
model began, since Claude requires such a turn to begin with thinking; adaptive thinking is not
changed; (6) what cannot be read is left for the vendor to refuse.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import TypeAlias

import msgspec

from jackline.dialects.anthropic_stream import Typed
from jackline.dialects.json_bounds import UNREADABLE
from jackline.dialects.neutral.answer import INVALID
from jackline.dialects.neutral.conversation import CLAUDE_ID, digest
from jackline.dialects.neutral.fields import TranslatedDocument, TranslationNotes

_Blocks: TypeAlias = list[msgspec.Raw | dict[str, object]]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
# Claude's signatures are plain base64. Others sign with the url-safe alphabet or in formats of
# their own, and OpenAI's begin like this.
_SIGNATURE = re.compile(r"(?!gAAAA)[A-Za-z0-9+/]+={0,2}")
_NULL = msgspec.Raw(b"null")


class _Block(msgspec.Struct):
    """The fields that a fault can be seen by."""

    type: str
    text: str | None = None
    id: str | None = None
    name: str | None = None
    tool_use_id: str | None = None
    signature: str | None = None
    data: str | None = None
    input: msgspec.Raw = _NULL
    content: msgspec.Raw = _NULL


class _Message(msgspec.Struct):
    role: str
    content: list[msgspec.Raw] | str | None = None


_block = msgspec.json.Decoder(_Block)
_message = msgspec.json.Decoder(_Message)
_typed = msgspec.json.Decoder(Typed)
_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_fields = msgspec.json.Decoder(dict[str, object])
_items = msgspec.json.Decoder(list[msgspec.Raw])


def fit_for_claude(
    body: bytes | bytearray,
    *,
    distrust_thinking: bool = False,
    refused: Container[str] = (),
) -> TranslatedDocument:
    """The request in a form that Claude accepts.

    `distrust_thinking` drops every thinking block: for when the vendor reports that a signature
    is invalid, which cannot be seen from outside. `refused` are signatures that it has refused.
    """
    whole = bytes(body)
    fitter = _ConversationFitter(None if distrust_thinking else refused)
    try:
        whole.decode()
        top = _raw_fields.decode(whole)
        messages = fitter.fit_messages(_items.decode(top["messages"]))
        top = fitter.fit_thinking(top, messages)
    except (*UNREADABLE, KeyError):
        return TranslatedDocument(whole)
    notes = fitter.notes.sentences()
    if not notes:
        return TranslatedDocument(whole)
    return TranslatedDocument(msgspec.json.encode({**top, "messages": messages}), notes)


class _ConversationFitter:
    """Repairs one conversation from its beginning to its end."""

    def __init__(self, refused: Container[str] | None) -> None:
        self.notes = TranslationNotes()
        # The signatures that the vendor has refused; None when none can be trusted.
        self._refused = refused
        # The id under which the latest call of each id is known now.
        self._ids: dict[str, str] = {}
        self._used: set[str] = set()

    def fit_messages(self, items: list[msgspec.Raw]) -> list[msgspec.Raw]:
        """The messages; those that lost all their content are gone, and their neighbours joined."""
        self.notes.count_objects(len(items))
        messages: list[msgspec.Raw] = []
        # Blocks of messages that are joined, by place. They are encoded once at the end: once for
        # each message would cost the square of their number.
        joined: dict[int, _Blocks] = {}
        dropped, last_role = False, ""
        for place, raw in enumerate(items):
            message = _message.decode(raw)
            content = message.content
            at = f"messages[{place}].content"
            fitted: _Blocks | None = None
            if isinstance(content, list):
                fitted = self._fit_blocks(content, at)
            elif content is not None and not content.strip() and message.role != "system":
                self.notes.add(at, "an empty message")
                fitted = []
            if fitted is not None and not fitted:
                dropped = True
                continue
            if fitted is not None:
                raw = _with_content(raw, fitted)  # noqa: PLW2901
            if dropped and messages and message.role == last_role:
                last = len(messages) - 1
                if last not in joined:
                    joined[last] = _blocks_of(messages[last])
                joined[last].extend(_blocks_of(raw))
            else:
                messages.append(raw)
            dropped, last_role = False, message.role
        for place, blocks in joined.items():
            messages[place] = _with_content(messages[place], blocks)
        return messages

    def _fit_blocks(self, blocks: list[msgspec.Raw], at: str) -> _Blocks | None:
        """The repaired blocks; None when nothing was wrong with them."""
        self.notes.count_objects(len(blocks))
        fitted: _Blocks = []
        is_changed = False
        for place, raw in enumerate(blocks):
            block = _block.decode(raw)
            where = f"{at}[{place}]"
            changes: dict[str, object] | None = {}
            match block.type:
                case "text" if block.text is not None and not block.text.strip():
                    self.notes.add(where, "Claude accepts no empty text")
                    changes = None
                case "thinking" | "redacted_thinking" if not self._is_trusted(block):
                    self.notes.add(where, "a thinking block without a signature of Claude's")
                    changes = None
                case "tool_use":
                    changes = self._changes_of_call(block, where)
                case "tool_result":
                    changes = self._changes_of_result(block, where)
            is_changed = is_changed or changes != {}
            if changes is not None:
                fitted.append({**_fields.decode(raw), **changes} if changes else raw)
        return fitted if is_changed else None

    def _is_trusted(self, block: _Block) -> bool:
        signature = (block.signature if block.type == "thinking" else block.data) or ""
        if self._refused is None or signature in self._refused:
            return False
        return _SIGNATURE.fullmatch(signature) is not None

    def _changes_of_call(self, block: _Block, at: str) -> dict[str, object]:
        changes: dict[str, object] = {}
        known, name = block.id or "", block.name or ""
        sent = known
        if not CLAUDE_ID.fullmatch(known) or known in self._used:
            sent = f"toolu_{digest(known)}"
            if sent in self._used:
                sent = f"toolu_{digest(known, at)}"
            changes["id"] = sent
            self.notes.add(f"{at}.id", "Claude accepts plain ids, and each only once")
        self._used.add(sent)
        self._ids[known] = sent
        if not _NAME.fullmatch(name):
            changes["name"] = _NOT_IN_A_NAME.sub("_", name)[:128] or "unnamed"
            self.notes.add(f"{at}.name", "Claude accepts plain names")
        arguments = bytes(block.input)
        if not arguments.lstrip().startswith(b"{"):
            changes["input"] = {INVALID: arguments.decode()}
            self.notes.add(f"{at}.input", f"Claude accepts objects; it is sent under {INVALID}")
        return changes

    def _changes_of_result(self, block: _Block, at: str) -> dict[str, object]:
        changes: dict[str, object] = {}
        known = block.tool_use_id or ""
        sent = self._ids.get(known, known)
        if sent != known:
            changes["tool_use_id"] = sent
            self.notes.add(f"{at}.tool_use_id", "changed together with the id of its call")
        if bytes(block.content).startswith(b"["):
            fitted = self._fit_blocks(_items.decode(block.content), f"{at}.content")
            if fitted is not None:
                changes["content"] = fitted
        return changes

    def fit_thinking(
        self, top: Mapping[str, msgspec.Raw], messages: list[msgspec.Raw]
    ) -> dict[str, msgspec.Raw]:
        """The request's fields, without a thinking budget where it would be refused."""
        changed = dict(top)
        thinking = top.get("thinking", _NULL)
        if bytes(thinking) == b"null" or _typed.decode(thinking).type != "enabled":
            return changed
        if not self._is_in_turn_without_thinking(messages):
            return changed
        self.notes.add("thinking", "off until the next turn: another model began this one")
        changed["thinking"] = msgspec.Raw(b'{"type":"disabled"}')
        management = top.get("context_management", _NULL)
        if bytes(management) != b"null":
            fields = _raw_fields.decode(management)
            edits = _items.decode(fields.get("edits", b"[]"))
            types = [_typed.decode(edit).type for edit in edits]
            left = [
                edit
                for edit, kind in zip(edits, types, strict=True)
                if not kind.startswith("clear_thinking")
            ]
            if len(left) < len(edits):
                self.notes.add(
                    "context_management.edits", "clearing of thinking is refused without thinking"
                )
                rest = {**fields, "edits": left} if left or len(fields) > 1 else None
                changed["context_management"] = msgspec.Raw(msgspec.json.encode(rest))
        return changed

    def _is_in_turn_without_thinking(self, messages: list[msgspec.Raw]) -> bool:
        """Whether the last turn waits for tool results, and has no thinking block."""
        has_calls = False
        for raw in reversed(messages):
            message = _message.decode(raw)
            blocks = message.content if isinstance(message.content, list) else []
            kinds = {_typed.decode(block).type for block in blocks}
            if message.role == "assistant":
                if kinds & {"thinking", "redacted_thinking"}:
                    return False
                has_calls = has_calls or "tool_use" in kinds
            elif message.role == "user" and "tool_result" not in kinds:
                break
        return has_calls


def _with_content(raw: msgspec.Raw, content: _Blocks) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode({**_fields.decode(raw), "content": content}))


def _blocks_of(raw: msgspec.Raw) -> _Blocks:
    content = _message.decode(raw).content
    return [{"type": "text", "text": content}] if isinstance(content, str) else [*(content or ())]
