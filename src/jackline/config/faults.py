"""What is wrong with a configuration, in sentences for its writer.

Rules: (1) each fault has its place, its key, what is wrong, and which key was probably intended;
(2) no sentence quotes a value that could be a secret.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jackline.config.declaration import ROOT, SETTINGS, Declared, declared_in
from jackline.config.keys import Key, dotted, plain
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
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "less_than_equal": ("le", "at most"),
    "greater_than": ("gt", "more than"),
    "less_than": ("lt", "less than"),
}


@dataclass(frozen=True, slots=True)
class ConfigFault:
    """One thing that is wrong. `where` is a file with its line, a variable or a flag."""

    where: str
    key: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.key + ': ' if self.key else ''}{self.what}"

    @property
    def line(self) -> int:
        """The line in the file; 0 if that is not known."""
        number = self.where.rpartition(":")[2]
        return int(number) if number.isdecimal() else 0

    @classmethod
    def from_pydantic(cls, error: ErrorDetails, where: Callable[[Key], str]) -> ConfigFault:
        """What pydantic found, in our words; `where` finds the line of a key."""
        place = tuple(part for part in error["loc"] if part != "[key]")
        kind, context = error["type"], error.get("ctx", {})
        if kind == "extra_forbidden":
            what = _unknown_key(place)
        elif kind == "value_error":
            what = error["msg"].removeprefix("Value error, ")
        elif kind == "literal_error":
            what = f"must be one of {context['expected']}"
        elif kind in _BOUNDS:
            name, words = _BOUNDS[kind]
            what = f"must be {words} {context[name]:g}"
        elif kind == "list_type" and place == ("upstream",):
            what = "must be a list: write [[upstream]]"
        else:
            what = _WANTED.get(kind, error["msg"])
        return cls(where(place), dotted(place), what)


def _unknown_key(place: Key) -> str:
    """Offer a key of the same table first, then one that has this name elsewhere."""
    *path, name = plain(place)
    table: Mapping[str, Declared] = ROOT
    free: type | None = None
    for part in path:
        if free is not None:  # this is a name that the user chose
            table, free = declared_in(free), None
            continue
        one = table.get(part)
        if one is None:
            break
        free = one.named_table
        table = declared_in(one.table) if one.table is not None else table
    close = difflib.get_close_matches(name, table, n=1, cutoff=0.6)
    if close:
        return f"there is no such key; did you mean {dotted([*place[:-1], close[0]])}?"
    elsewhere = sorted(dotted(key) for key in SETTINGS if key[-1] == name)
    if elsewhere:
        return f"there is no such key here; did you mean {' or '.join(elsewhere[:2])}?"
    return f"there is no such key; possible keys: {', '.join(table)}"


def config_error(faults: Sequence[ConfigFault]) -> BadConfigError:
    """The error that lists all of them."""
    many = "a fault" if len(faults) == 1 else f"{len(faults)} faults"
    lines = tuple(str(fault) for fault in faults)
    return BadConfigError(
        "\n  ".join((f"the configuration has {many}:", *(printable(line) for line in lines))),
        hint="correct what is named, then run: jackline config check",
        faults=lines,
    )
