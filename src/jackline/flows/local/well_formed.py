"""Check that what was read from the file is of the kind that its column holds.

Rules: SQLite keeps any kind of value in any column; a file that somebody else wrote, or a damaged
one, must not bring a text where a number is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

E = TypeVar("E", bound=StrEnum)

Kinds: TypeAlias = tuple[type, ...]

TEXT: Kinds = (str,)
FLOAT: Kinds = (float, int)
MAYBE_FLOAT: Kinds = (float, int, type(None))
INTEGER: Kinds = (int,)
BYTES: Kinds = (bytes,)
MAYBE_BYTES: Kinds = (bytes, type(None))
MAYBE_TEXT: Kinds = (str, type(None))
# Most of these numbers are times, and no calendar goes further.
_FARTHEST = 2.5e11


class MalformedError(ValueError):
    """A row holds a value of another kind than its column."""


def member(kind: type[E], value: str) -> E:
    """The member of an enumeration; MalformedError when there is none of that name."""
    try:
        return kind(value)
    except ValueError as error:
        raise MalformedError(f"a row holds a {kind.__name__} that is none") from error


def well_formed(row: Sequence[Any], kinds: Sequence[Kinds]) -> Sequence[Any]:
    """The row; MalformedError when a value is not of its column's kind."""
    for value, kind in zip(row, kinds, strict=True):
        far = isinstance(value, float) and not abs(value) < _FARTHEST
        if far or not isinstance(value, kind):
            raise MalformedError("a row holds a value of another kind than its column")
    return row
