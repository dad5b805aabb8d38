"""Find the line on which each key of a TOML text stands, which the standard parser does not tell.

Laws: (1) lines count from 1; (2) a key that is not found has the line of the nearest table or key
around it; (3) a wrong guess only costs a wrong line number, never a wrong value.
Not here: parsing (the standard library's tomllib, which also refuses what is no TOML).
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TypeAlias

from jackline.config.keys import Key

Place: TypeAlias = Key

_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_PATH = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_TABLE = re.compile(rf"[ \t]*(\[\[?)[ \t]*({_PATH})[ \t]*\]")
_ASSIGNMENT = re.compile(rf"[ \t]*({_PATH})[ \t]*=(.*)")


class KeyLines:
    """The line of every key of one text."""

    def __init__(self, text: str) -> None:
        # The headers of all tables, in their order.
        self.tables: list[tuple[int, Place]] = []
        self._lines: dict[Place, int] = {}
        self._counts: Counter[Place] = Counter()
        self._read(text)

    def line_of(self, place: Place) -> int | None:
        """Where this key stands, or what holds it."""
        while place:
            if place in self._lines:
                return self._lines[place]
            place = place[:-1]
        return None

    def _read(self, text: str) -> None:
        table: Place = ()
        closing = ""
        for number, line in enumerate(text.splitlines(), 1):
            if closing:  # inside a text of several lines, whatever it looks like
                closing = "" if closing in line else closing
                continue
            header = _TABLE.match(line)
            if header is not None:
                table = self._table(header[1], _parts(header[2]))
                self._lines.setdefault(table, number)
                self.tables.append((number, table))
                continue
            assignment = _ASSIGNMENT.match(line)
            if assignment is None:
                continue
            self._lines.setdefault((*table, *_parts(assignment[1])), number)
            closing = _left_open(assignment[2])

    def _table(self, brackets: str, path: Place) -> Place:
        """The path with the places in arrays of tables put in."""
        place: Place = ()
        for depth, name in enumerate(path, 1):
            place = (*place, name)
            if brackets == "[[" and depth == len(path):
                self._counts[place] += 1
            if self._counts[place]:
                place = (*place, self._counts[place] - 1)
        return place


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in re.findall(_PART, path))


def _left_open(value: str) -> str:
    """The quotes that must come on a later line, or nothing."""
    for quotes in ('"""', "'''"):
        if value.lstrip().startswith(quotes) and value.count(quotes) == 1:
            return quotes
    return ""
