"""Find and mend the content blocks that Claude refuses.

Laws: (1) a block without a fault stays as it is written; (2) an id that comes twice gets another
one the second time, and results follow the latest call of that id; (3) a thought that Claude did
not sign is dropped, never signed.
Not here: the messages around the blocks (fitting.py).
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import TypeAlias

import msgspec

from jackline.dialects.neutral.account import Notes
from jackline.dialects.neutral.answer import INVALID
from jackline.dialects.neutral.ids import CLAUDE_ID, digest

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
        self, notes: Notes, *, distrust_thinking: bool, refused: Container[str] = ()
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
