"""Account for every field of a document, so that nothing is dropped silently.

Rules: (1) a field is taken, dropped with a note, or refused with its path and name; (2) notes and
refusals name places, never their content: a prompt may be there; (3) the same note about many
places is written once, with their number; (4) a document of more objects than a conversation has
is not read to its end.
Not here: which field means what (request.py, answer.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from jackline.dialects.json_bounds import MOST_OBJECTS

_T = TypeVar("_T")
_NUMBERED = re.compile(r"\[\d+\]")
_ODD = re.compile(r"[^\w.:/@+-]")
_LONGEST_NAME = 60
_MOST_NOTES = 100
# Of one object, by name; what it has beyond is noted together.
_MOST_NAMED = 50
# So many fields cost about as much as an object.
_FIELDS_PER_OBJECT = 32
_NULL = b"null"
_EMPTY = (b"[]", b"{}", b'""')
UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list = msgspec.json.Decoder(list[msgspec.Raw])
_text = msgspec.json.Decoder(str)
_flag = msgspec.json.Decoder(bool)
_count = msgspec.json.Decoder(int)


class UntranslatableError(ValueError):
    """The target has no words for something; `at` is its path and `what` names it."""

    def __init__(self, at: str, what: str) -> None:
        super().__init__(f"{at or 'the request'}: {what}")
        self.at = at
        self.what = what


@dataclass(frozen=True, slots=True)
class TranslatedDocument:
    """A translated document, and what was changed or left out on the way.

    `tool_names` leads from each tool name that had to be changed back to the real one; the answer
    is translated with it. `is_error` tells that the document is an error and not an answer.
    """

    body: bytes
    notes: tuple[str, ...] = ()
    tool_names: Mapping[str, str] = field(default_factory=dict)
    is_error: bool = False


class TranslationNotes:
    """What was changed or let go, by place."""

    __slots__ = ("_counts", "_objects", "most_objects")

    def __init__(self, most_objects: int = MOST_OBJECTS) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._objects = 0
        # Of a document; whoever reads a stream lets it have more as it becomes longer.
        self.most_objects = most_objects

    def count_objects(self, more: int = 1) -> None:
        """So many more messages and blocks are read; CannotSayError when that is too many."""
        self._objects += more
        if self._objects > self.most_objects:
            raise UntranslatableError(
                "", f"has more than {self.most_objects:,} messages and blocks"
            )

    def allow_objects(self, more: int, most: int) -> None:
        """A stream has become longer: it may have more objects, but not so many in one event."""
        self.most_objects = min(self.most_objects + more, self._objects + most)

    def add(self, at: str, why: str, times: int = 1) -> None:
        """Note what became of the field at a path, or of so many of them."""
        key = (_NUMBERED.sub("[*]", at), why)
        if key not in self._counts and len(self._counts) >= _MOST_NOTES:
            # A server may make up as many names as it likes.
            key = ("other places", "not told one by one")
        self._counts[key] = self._counts.get(key, 0) + times

    def told(self) -> tuple[str, ...]:
        """One sentence for each kind of place."""
        return tuple(
            f"{at} ({count} times): {why}" if count > 1 else f"{at}: {why}"
            for (at, why), count in self._counts.items()
        )


def shown(name: str) -> str:
    """A name from outside, fit for a message: short, and without anything odd."""
    if len(name) <= _LONGEST_NAME and name.isidentifier():
        return name
    return _ODD.sub("?", name[:_LONGEST_NAME])


class Fields:
    """The fields of one object that have not been accounted for yet; null is absence."""

    __slots__ = ("_left", "at", "notes")

    def __init__(self, raw: bytes | msgspec.Raw, at: str, notes: TranslationNotes) -> None:
        self.at = at
        self.notes = notes
        told = _decoded(_object, raw, at, "an object")
        notes.count_objects(1 + len(told) // _FIELDS_PER_OBJECT)
        self._left = {name: value for name, value in told.items() if bytes(value) != _NULL}

    def path(self, name: str) -> str:
        """Where a field of this object stands."""
        return f"{self.at}.{shown(name)}" if self.at else shown(name)

    def raw(self, name: str) -> msgspec.Raw | None:
        """The field as it is written."""
        return self._left.pop(name, None)

    def needed(self, name: str) -> msgspec.Raw:
        """The field as it is written, which must be there."""
        value = self.raw(name)
        if value is None:
            raise UntranslatableError(self.path(name), "is missing")
        return value

    def text(self, name: str) -> str | None:
        """A string."""
        return self._taken(name, _text, "a string")

    def needed_text(self, name: str) -> str:
        """A string that must be there."""
        told = self._taken(name, _text, "a string")
        if told is None:
            raise UntranslatableError(self.path(name), "is missing")
        return told

    def flag(self, name: str) -> bool:
        """True or false; false when it is not there."""
        return self._taken(name, _flag, "true or false") or False

    def count(self, name: str) -> int | None:
        """A whole number."""
        return self._taken(name, _count, "a whole number")

    def items(self, name: str) -> list[msgspec.Raw]:
        """The items of a list; none when it is not there."""
        return self._taken(name, _list, "a list") or []

    def inner(self, name: str) -> Fields | None:
        """An object inside of this one."""
        value = self.raw(name)
        return None if value is None else Fields(value, self.path(name), self.notes)

    def let_go(self, name: str, why: str) -> None:
        """Leave a field out, and note it."""
        if self._left.pop(name, None) is not None:
            self.notes.add(self.path(name), why)

    def names(self) -> tuple[str, ...]:
        """What has not been accounted for."""
        return tuple(self._left)

    def close(self) -> None:
        """Refuse by name whatever is left."""
        for name in self._left:
            raise UntranslatableError(self.path(name), "this field is not known, and may matter")

    def note_rest(self, why: str) -> None:
        """Let go of whatever is left, with a note for each name that holds something."""
        named = [name for name, value in self._left.items() if bytes(value) not in _EMPTY]
        for name in named[:_MOST_NAMED]:
            self.notes.add(self.path(name), why)
        if len(named) > _MOST_NAMED:
            self.notes.add(f"{self.at}.*", why, len(named) - _MOST_NAMED)
        self._left.clear()

    def _taken(self, name: str, decoder: msgspec.json.Decoder[_T], kind: str) -> _T | None:
        value = self._left.pop(name, None)
        if value is None:
            return None
        try:
            return decoder.decode(value)
        except UNREADABLE:
            raise UntranslatableError(self.path(name), f"is not {kind}") from None


def document(body: bytes | bytearray, notes: TranslationNotes) -> Fields:
    """The fields of a whole document."""
    whole = bytes(body)
    try:
        # Values that only pass through are not decoded, and would carry broken letters along.
        whole.decode()
    except UnicodeDecodeError:
        raise UntranslatableError("", "is not written in UTF-8") from None
    return Fields(whole, "", notes)


def items_of(raw: msgspec.Raw, at: str) -> list[msgspec.Raw]:
    """The items of a list."""
    return _decoded(_list, raw, at, "a list")


def text_of(raw: msgspec.Raw, at: str) -> str:
    """A string."""
    return _decoded(_text, raw, at, "a string")


def is_text(raw: msgspec.Raw) -> bool:
    """Whether a value is a string."""
    return bytes(raw)[:1] == b'"'


def _decoded(decoder: msgspec.json.Decoder[_T], raw: bytes | msgspec.Raw, at: str, kind: str) -> _T:
    try:
        return decoder.decode(raw)
    except UNREADABLE:
        # The decoder's own words may quote what stands there.
        raise UntranslatableError(at, f"is not {kind}") from None
