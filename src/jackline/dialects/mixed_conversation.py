"""Make a conversation in which another model took part acceptable to Claude again.

Rules: (1) when nothing is wrong, the very same bytes come back; messages and blocks without a
fault are carried byte for byte, so that the vendor's cache still knows them; (2) every change is
noted; (3) a call and its result change their id together; an id that comes twice gets another one
the second time, and results follow the latest call of that id; (4) a thought that Claude did not
sign is dropped, never signed; (5) a thinking budget is turned off in a turn that another model
began, since Claude wants such a turn to begin with a thought; adaptive thinking is not changed;
(6) what cannot be read is left for the vendor to refuse.
Not here: the way there (openai_chat/, openai_responses/), when a conversation returns (calls/).
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from jackline.dialects.neutral.answer import INVALID
from jackline.dialects.neutral.conversation import CLAUDE_ID, digest
from jackline.dialects.neutral.fields import UNREADABLE, TranslatedDocument, TranslationNotes

Json: TypeAlias = dict[str, object]

_any = msgspec.json.Decoder(dict[str, object])
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
# Claude's signatures are plain base64. Others sign with the url-safe alphabet or in words of their
# own, and OpenAI's begin like this.
_SIGNATURE = re.compile(r"(?!gAAAA)[A-Za-z0-9+/]+={0,2}")


_NULL = msgspec.Raw(b"null")


class _Seen(msgspec.Struct):
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


_seen = msgspec.json.Decoder(_Seen)
_parts = msgspec.json.Decoder(list[msgspec.Raw])


class BlockFitter:
    """Mends the blocks of one conversation from its beginning to its end."""

    def __init__(
        self, notes: TranslationNotes, *, distrust_thinking: bool, refused: Container[str] = ()
    ) -> None:
        self.notes = notes
        self._distrust = distrust_thinking
        self._refused = refused
        # The id under which the latest call of each id is known now.
        self._ids: dict[str, str] = {}
        self._given: set[str] = set()

    def fit(self, blocks: list[msgspec.Raw], at: str) -> list[msgspec.Raw | Json] | None:
        """The mended blocks; None when nothing was wrong with them."""
        self.notes.count_objects(len(blocks))
        fitted: list[msgspec.Raw | Json] = []
        for place, raw in enumerate(blocks):
            mended = self._fit(raw, f"{at}[{place}]")
            if mended is not None:
                fitted.append(mended)
        if len(fitted) == len(blocks) and all(
            new is old for new, old in zip(fitted, blocks, strict=True)
        ):
            return None
        return fitted

    def _fit(self, raw: msgspec.Raw, at: str) -> msgspec.Raw | Json | None:
        block = _seen.decode(raw)
        match block.type:
            case "text":
                return self._fit_text(raw, block, at)
            case "thinking" | "redacted_thinking":
                return self._fit_thought(raw, block, at)
            case "tool_use":
                return self._fit_call(raw, block, at)
            case "tool_result":
                return self._fit_result(raw, block, at)
        return raw

    def _fit_text(self, raw: msgspec.Raw, block: _Seen, at: str) -> msgspec.Raw | None:
        if block.text is not None and not block.text.strip():
            self.notes.add(at, "Claude takes no empty text")
            return None
        return raw

    def _fit_thought(self, raw: msgspec.Raw, block: _Seen, at: str) -> msgspec.Raw | None:
        mark = block.signature if block.type == "thinking" else block.data
        signed = _SIGNATURE.fullmatch(mark or "")
        if signed and not self._distrust and mark not in self._refused:
            return raw
        self.notes.add(at, "a thought without a signature of Claude's")
        return None

    def _fit_call(self, raw: msgspec.Raw, block: _Seen, at: str) -> msgspec.Raw | Json:
        changes: Json = {}
        known, name = block.id or "", block.name or ""
        sent = known
        if not CLAUDE_ID.fullmatch(known) or known in self._given:
            sent = f"toolu_{digest(known)}"
            if sent in self._given:
                sent = f"toolu_{digest(known, at)}"
            changes["id"] = sent
            self.notes.add(f"{at}.id", "Claude takes plain ids, and each only once")
        self._given.add(sent)
        self._ids[known] = sent
        if not _NAME.fullmatch(name):
            changes["name"] = _NOT_IN_A_NAME.sub("_", name)[:128] or "unnamed"
            self.notes.add(f"{at}.name", "Claude takes plain names")
        given = bytes(block.input)
        if not given.lstrip().startswith(b"{"):
            changes["input"] = {INVALID: given.decode()}
            self.notes.add(f"{at}.input", f"Claude takes objects; it is told under {INVALID}")
        return {**_any.decode(raw), **changes} if changes else raw

    def _fit_result(self, raw: msgspec.Raw, block: _Seen, at: str) -> msgspec.Raw | Json:
        changes: Json = {}
        known = block.tool_use_id or ""
        sent = self._ids.get(known, known)
        if sent != known:
            changes["tool_use_id"] = sent
            self.notes.add(f"{at}.tool_use_id", "bound to the changed id of its call")
        content = bytes(block.content)
        if content.startswith(b"["):
            fitted = self.fit(_parts.decode(content), f"{at}.content")
            if fitted is not None:
                changes["content"] = fitted
        return {**_any.decode(raw), **changes} if changes else raw


class _Kind(msgspec.Struct):
    type: str


class _TurnMessage(msgspec.Struct):
    role: str
    content: list[_Kind] | str | None = None


_kind = msgspec.json.Decoder(_Kind)
_editing = msgspec.json.Decoder(dict[str, msgspec.Raw])
_edits = msgspec.json.Decoder(list[msgspec.Raw])
_turn_message = msgspec.json.Decoder(_TurnMessage)
_OFF = msgspec.Raw(b'{"type":"disabled"}')
_THOUGHTS = ("thinking", "redacted_thinking")


def without_thinking_if_needed(
    top: Mapping[str, msgspec.Raw], messages: list[msgspec.Raw], notes: TranslationNotes
) -> Mapping[str, msgspec.Raw]:
    """The request's fields, without a thinking budget where it would be refused."""
    asked = top.get("thinking")
    if asked is None or bytes(asked) == b"null" or _kind.decode(asked).type != "enabled":
        return top
    if not _in_a_thoughtless_turn(messages):
        return top
    notes.add("thinking", "off until the next turn: this one was begun by another model")
    changed = {**top, "thinking": _OFF}
    editing = top.get("context_management")
    if editing is not None and bytes(editing) != b"null":
        changed["context_management"] = _without_clearing(editing, notes)
    return changed


def _without_clearing(raw: msgspec.Raw, notes: TranslationNotes) -> msgspec.Raw:
    """The editing of the context without what asks for thinking."""
    editing = _editing.decode(raw)
    edits = _edits.decode(editing.get("edits", b"[]"))
    kept = [edit for edit in edits if not _kind.decode(edit).type.startswith("clear_thinking")]
    if len(kept) == len(edits):
        return raw
    notes.add("context_management.edits", "clearing of thoughts is refused without thinking")
    left = {**editing, "edits": kept}
    return msgspec.Raw(msgspec.json.encode(left if kept or len(left) > 1 else None))


def _in_a_thoughtless_turn(messages: list[msgspec.Raw]) -> bool:
    """Whether results of tools are awaited by a turn in which nobody has thought."""
    calls = False
    for raw in reversed(messages):
        message = _turn_message.decode(raw)
        content = message.content
        kinds = [block.type for block in content] if isinstance(content, list) else []
        if message.role == "assistant":
            if any(kind in _THOUGHTS for kind in kinds):
                return False
            calls = calls or "tool_use" in kinds
        elif message.role == "user" and "tool_result" not in kinds:
            break
    return calls


_top = msgspec.json.Decoder(dict[str, msgspec.Raw])
_messages = msgspec.json.Decoder(list[msgspec.Raw])


class _Message(msgspec.Struct):
    role: str
    content: list[msgspec.Raw] | str | None = None


_message = msgspec.json.Decoder(_Message)
_fields = msgspec.json.Decoder(dict[str, object])


def fit_for_claude(
    body: bytes | bytearray,
    *,
    distrust_thinking: bool = False,
    refused: Container[str] = (),
) -> TranslatedDocument:
    """The request as Claude takes it.

    `distrust_thinking` drops every thinking block: for when the vendor has said that a signature
    is invalid, which cannot be seen from outside. `refused` are signatures that it said so of.
    """
    whole = bytes(body)
    notes = TranslationNotes()
    try:
        whole.decode()
        top = _top.decode(whole)
        kept = _messages.decode(top["messages"])
        fitter = BlockFitter(notes, distrust_thinking=distrust_thinking, refused=refused)
        messages = _fitted(kept, fitter)
        changed = without_thinking_if_needed(top, messages, notes)
    except (*UNREADABLE, KeyError):
        return TranslatedDocument(whole)
    if not notes.told():
        return TranslatedDocument(whole)
    told: dict[str, msgspec.Raw | list[msgspec.Raw]] = {**changed, "messages": messages}
    return TranslatedDocument(msgspec.json.encode(told), notes.told())


class _Joint(NamedTuple):
    """Messages that become one: the first of them, and the blocks of all."""

    first: msgspec.Raw
    blocks: list[msgspec.Raw | Json]


def _fitted(kept: list[msgspec.Raw], fitter: BlockFitter) -> list[msgspec.Raw]:
    """The messages; those that lost all they said are gone, and their neighbours are one."""
    fitter.notes.count_objects(len(kept))
    messages: list[msgspec.Raw | _Joint] = []
    fallen, last_role = False, ""
    for place, raw in enumerate(kept):
        message = _message.decode(raw)
        content = _fitted_content(message, fitter, f"messages[{place}].content")
        if content is None:
            fitted = raw
        elif content:
            fitted = _with_content(raw, content)
        else:
            fallen = True
            continue
        if fallen and messages and message.role == last_role:
            last = messages[-1]
            if not isinstance(last, _Joint):
                last = messages[-1] = _Joint(last, _blocks(last))
            # Written only once, however many follow: each time anew would cost their square.
            last.blocks.extend(_blocks(fitted))
        else:
            messages.append(fitted)
        fallen, last_role = False, message.role
    return [_with_content(*each) if isinstance(each, _Joint) else each for each in messages]


def _fitted_content(
    message: _Message, fitter: BlockFitter, at: str
) -> list[msgspec.Raw | Json] | None:
    """What the message says now; None when nothing was wrong with it."""
    content = message.content
    if isinstance(content, list):
        return fitter.fit(content, at)
    if content is None or content.strip() or message.role == "system":
        return None
    fitter.notes.add(at, "an empty message says nothing")
    return []


def _with_content(raw: msgspec.Raw, content: list[msgspec.Raw | Json]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode({**_fields.decode(raw), "content": content}))


def _blocks(raw: msgspec.Raw) -> list[msgspec.Raw | Json]:
    content = _message.decode(raw).content
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [*(content or ())]
