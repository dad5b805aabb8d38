"""Say what is wrong with a configuration: where, which key, what, and what was probably meant.

Laws: (1) all faults are told at once; (2) no sentence quotes a value that could be a secret.
Not here: finding them (document.py, layers.py, loading.py).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jackline.config.document import Document, table_class
from jackline.config.keys import dotted
from jackline.config.lines import Place
from jackline.config.table import Table
from jackline.errors import BadConfigError
from jackline.outside_names import printable

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_WANTED = {
    "string_type": "must be a text in quotes",
    "string_too_short": "must not be empty",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "list_type": "must be a list",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong. `where` is a file with its line, a variable or a flag."""

    where: str
    key: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.key + ': ' if self.key else ''}{self.what}"


def rejection(faults: Sequence[Fault]) -> BadConfigError:
    """The error that tells all of them."""
    many = "a fault" if len(faults) == 1 else f"{len(faults)} faults"
    lines = tuple(str(fault) for fault in faults)
    return BadConfigError(
        "\n  ".join((f"the configuration has {many}:", *(printable(line) for line in lines))),
        next="correct what is named, then run: jackline config check",
        faults=lines,
    )


def from_validation(
    errors: Iterable[ErrorDetails], where: Callable[[Place], str]
) -> tuple[Fault, ...]:
    """What pydantic found, in our words; `where` finds the line of a key."""
    return tuple(
        Fault(where(place), dotted(place), _what(error, place))
        for error in errors
        for place in (tuple(part for part in error["loc"] if part != "[key]"),)
    )


def unknown(name: str, known: Iterable[str]) -> str:
    """The sentence for a name that does not exist, with the one that was probably meant."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"there is no such key{f'; did you mean {close[0]}?' if close else ''}"


def _what(error: ErrorDetails, place: Place) -> str:
    kind = error["type"]
    context: dict[str, Any] = error.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(place)
    if kind == "value_error":
        return error["msg"].removeprefix("Value error, ")
    if kind == "literal_error":
        return f"must be one of {context['expected']}"
    if kind in ("greater_than_equal", "less_than_equal"):
        side = ("ge", "at least") if kind == "greater_than_equal" else ("le", "at most")
        return f"must be {side[1]} {context[side[0]]:g}"
    if kind == "greater_than":
        return f"must be more than {context['gt']:g}"
    if kind == "list_type" and place == ("upstream",):
        return "must be a list: write [[upstream]]"
    return _WANTED.get(kind, error["msg"])


def _unknown_key(place: Place) -> str:
    """Offer a key of the same table first, then one that has this name elsewhere."""
    names = [part for part in place if isinstance(part, str)]
    siblings = _keys_beside(names)
    close = difflib.get_close_matches(names[-1], siblings, n=1, cutoff=0.6)
    if close:
        return f"there is no such key; did you mean {dotted([*place[:-1], close[0]])}?"
    elsewhere = sorted(dotted(key) for key in _all_keys() if key[-1] == names[-1])
    if elsewhere:
        return f"there is no such key here; did you mean {' or '.join(elsewhere[:2])}?"
    return f"there is no such key; here can stand: {', '.join(siblings)}"


def _keys_beside(names: Sequence[str]) -> list[str]:
    table: type[Table] = Document
    for depth, name in enumerate(names[:-1]):
        # In a table of free names, the names are skipped and its tables are all alike.
        inner = table_class(table, name) or _free_table(table, names[depth - 1])
        if inner is not None:
            table = inner
    return list(table.model_fields)


def _free_table(table: type[Table], name: str) -> type[Table] | None:
    info = table.model_fields.get(name)
    arguments: tuple[object, ...] = getattr(info and info.annotation, "__args__", ())
    kinds = [kind for kind in arguments if isinstance(kind, type) and issubclass(kind, Table)]
    return kinds[0] if kinds else None


def _all_keys(table: type[Table] = Document, under: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    keys: list[tuple[str, ...]] = []
    for name in table.model_fields:
        keys.append((*under, name))
        inner = table_class(table, name)
        if inner is not None:
            keys += _all_keys(inner, (*under, name))
    return keys
