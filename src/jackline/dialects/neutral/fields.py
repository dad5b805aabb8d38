"""Account for every field of a document, so that nothing is dropped silently.

Rules: (1) a field is used, dropped with a note, or refused with its path and name; (2) notes and
refusals name places, never their content, which may be a prompt; (3) the same note about many
places is written once, with their number; (4) a document with more objects than a conversation
has is not read to its end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self, TypeVar

import msgspec

from jackline.dialects.json_bounds import MOST_OBJECTS, UNREADABLE

_T = TypeVar("_T")
_NUMBERED = re.compile(r"\[\d+\]")
_ODD = re.compile(r"[^\w.:/@+-]")
_LONGEST_NAME = 60
_MOST_NOTES = 100
# Of one object, by name; what it has beyond is noted together.
_MOST_NAMED = 50
# So many fields cost about as much as an object.
_FIELDS_PER_OBJECT = 32

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list = msgspec.json.Decoder(list[msgspec.Raw])
_text = msgspec.json.Decoder(str)
_flag = msgspec.json.Decoder(bool)
_count = msgspec.json.Decoder(int)


class UntranslatableError(ValueError):
    """The target dialect cannot express something; `at` is its path and `what` names it."""

    def __init__(self, at: str, what: str) -> None:
        super().__init__(f"{at or 'the request'}: {what}")
        self.at = at
        self.what = what


@dataclass(frozen=True, slots=True)
class TranslatedDocument:
    """A translated document, with notes on what was changed or left out.

    `tool_names` maps each changed tool name to the real one, for translating the answer.
    `is_error`: the document is an error and not an answer.
    """

    body: bytes
    notes: tuple[str, ...] = ()
    tool_names: Mapping[str, str] = field(default_factory=dict)
    is_error: bool = False


class TranslationNotes:
    """What was changed or left out, by place."""

    __slots__ = ("_counts", "_objects", "most_objects")

    def __init__(self, most_objects: int = MOST_OBJECTS) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._objects = 0
        # Of a document; for a stream it grows with the stream's length.
        self.most_objects = most_objects

    def count_objects(self, more: int = 1) -> None:
        """Count messages and blocks that are read; UntranslatableError when they are too many."""
        self._objects += more
        if self._objects > self.most_objects:
            raise UntranslatableError(
                "", f"has more than {self.most_objects:,} messages and blocks"
            )

    def allow_objects(self, more: int, most: int) -> None:
        """Allow a longer stream more objects, but at most `most` in one event."""
        self.most_objects = min(self.most_objects + more, self._objects + most)

    def add(self, at: str, why: str, times: int = 1) -> None:
        """Note why the field at a path, or so many of them, changed."""
        key = (_NUMBERED.sub("[*]", at), why)
        if key not in self._counts and len(self._counts) >= _MOST_NOTES:
            # A server may invent any number of names.
            key = ("other places", "not listed one by one")
        self._counts[key] = self._counts.get(key, 0) + times

    def sentences(self) -> tuple[str, ...]:
        """One sentence for each kind of place."""
        return tuple(
            f"{at} ({count} times): {why}" if count > 1 else f"{at}: {why}"
            for (at, why), count in self._counts.items()
        )


def shown(name: str) -> str:
    """A name from outside, short and with plain characters only."""
    if len(name) <= _LONGEST_NAME and name.isidentifier():
        return name
    return _ODD.sub("?", name[:_LONGEST_NAME])


class Fields:
    """The fields of one object that have not been accounted for yet; null is absence."""

    __slots__ = ("_left", "at", "notes")

    def __init__(self, raw: bytes | msgspec.Raw, at: str, notes: TranslationNotes) -> None:
        self.at = at
        self.notes = notes
        fields = _decoded(_object, raw, at, "an object")
        notes.count_objects(1 + len(fields) // _FIELDS_PER_OBJECT)
        self._left = {name: value for name, value in fields.items() if bytes(value) != b"null"}

    @classmethod
    def of_document(cls, body: bytes | bytearray, notes: TranslationNotes) -> Self:
        """The fields of a whole document."""
        whole = bytes(body)
        try:
            # Values that are only copied are not decoded, so broken characters would pass unseen.
            whole.decode()
        except UnicodeDecodeError:
            raise UntranslatableError("", "is not written in UTF-8") from None
        return cls(whole, "", notes)

    def path(self, name: str) -> str:
        """The path of a field of this object."""
        return f"{self.at}.{shown(name)}" if self.at else shown(name)

    def raw(self, name: str) -> msgspec.Raw | None:
        """The field as written."""
        return self._left.pop(name, None)

    def needed(self, name: str) -> msgspec.Raw:
        """The field as written; UntranslatableError when it is missing."""
        value = self.raw(name)
        if value is None:
            raise UntranslatableError(self.path(name), "is missing")
        return value

    def text(self, name: str) -> str | None:
        """A string; None when it is missing."""
        return self._decoded(name, _text, "a string")

    def needed_text(self, name: str) -> str:
        """A string; UntranslatableError when it is missing."""
        text = self.text(name)
        if text is None:
            raise UntranslatableError(self.path(name), "is missing")
        return text

    def flag(self, name: str) -> bool:
        """True or false; false when it is missing."""
        return self._decoded(name, _flag, "true or false") or False

    def count(self, name: str) -> int | None:
        """A whole number; None when it is missing."""
        return self._decoded(name, _count, "a whole number")

    def items(self, name: str) -> list[msgspec.Raw]:
        """The items of a list; none when it is missing."""
        return self._decoded(name, _list, "a list") or []

    def texts(self, name: str) -> tuple[str, ...]:
        """The items of a list of strings; none when it is missing."""
        at = self.path(name)
        return tuple(_decoded(_text, item, at, "a string") for item in self.items(name))

    def inner(self, name: str) -> Fields | None:
        """The fields of an object inside of this one."""
        value = self.raw(name)
        return None if value is None else Fields(value, self.path(name), self.notes)

    def drop(self, name: str, why: str) -> None:
        """Leave a field out, and note it."""
        if self._left.pop(name, None) is not None:
            self.notes.add(self.path(name), why)

    def names(self) -> tuple[str, ...]:
        """The names of the fields that are not accounted for."""
        return tuple(self._left)

    def close(self) -> None:
        """Refuse by name what is left."""
        for name in self._left:
            raise UntranslatableError(self.path(name), "this field is not known, and may matter")

    def note_rest(self, why: str) -> None:
        """Drop what is left, with a note for each field that is not empty."""
        named = [
            name for name, value in self._left.items() if bytes(value) not in (b"[]", b"{}", b'""')
        ]
        for name in named[:_MOST_NAMED]:
            self.notes.add(self.path(name), why)
        if len(named) > _MOST_NAMED:
            self.notes.add(f"{self.at}.*", why, len(named) - _MOST_NAMED)
        self._left.clear()

    def _decoded(self, name: str, decoder: msgspec.json.Decoder[_T], kind: str) -> _T | None:
        value = self._left.pop(name, None)
        if value is None:
            return None
        try:
            return decoder.decode(value)
        except UNREADABLE:
            raise UntranslatableError(self.path(name), f"is not {kind}") from None


def read_items(raw: msgspec.Raw, at: str) -> list[msgspec.Raw]:
    """The items of a list at a path."""
    return _decoded(_list, raw, at, "a list")


def read_text(raw: msgspec.Raw, at: str) -> str | None:
    """The string at a path; None for a value of another kind."""
    return _decoded(_text, raw, at, "a string") if bytes(raw)[:1] == b'"' else None


def _decoded(decoder: msgspec.json.Decoder[_T], raw: bytes | msgspec.Raw, at: str, kind: str) -> _T:
    try:
        return decoder.decode(raw)
    except UNREADABLE:
        # The decoder's own message may quote the content.
        raise UntranslatableError(at, f"is not {kind}") from None
