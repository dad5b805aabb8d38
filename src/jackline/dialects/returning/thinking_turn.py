"""Turn manual thinking off where Claude would refuse it in the middle of a foreign turn.

With a thinking budget Claude wants the turn that tools are being called in to have begun with a
thought. One that another model began has none, and none can be made up.

Laws: (1) adaptive thinking is left alone, because it asks for no such thing; (2) only the turn that
is under way counts.
Not here: thoughts with a foreign signature (blocks.py).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from jackline.dialects.neutral.account import Notes


class _Kind(msgspec.Struct):
    type: str


class _Message(msgspec.Struct):
    role: str
    content: list[_Kind] | str | None = None


_kind = msgspec.json.Decoder(_Kind)
_editing = msgspec.json.Decoder(dict[str, msgspec.Raw])
_edits = msgspec.json.Decoder(list[msgspec.Raw])
_message = msgspec.json.Decoder(_Message)
_OFF = msgspec.Raw(b'{"type":"disabled"}')
_THOUGHTS = ("thinking", "redacted_thinking")


def without_thinking_if_needed(
    top: Mapping[str, msgspec.Raw], messages: list[msgspec.Raw], notes: Notes
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


def _without_clearing(raw: msgspec.Raw, notes: Notes) -> msgspec.Raw:
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
        message = _message.decode(raw)
        content = message.content
        kinds = [block.type for block in content] if isinstance(content, list) else []
        if message.role == "assistant":
            if any(kind in _THOUGHTS for kind in kinds):
                return False
            calls = calls or "tool_use" in kinds
        elif message.role == "user" and "tool_result" not in kinds:
            break
    return calls
