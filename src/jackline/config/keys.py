"""Write and read dotted keys, and find the line of a key in a TOML text.

Rules: (1) one dotted key per setting, the same in files, errors, `config show` and docs; a key
without a place means the first upstream; (2) lines count from 1; a key that is not found has the
line of the nearest table or key around it: at worst, an error has a wrong line number.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

# Names, and places in the list of upstreams.
Key: TypeAlias = tuple[str | int, ...]

PREFIX = "JACKLINE_"
# Names the file to read, so it is no setting itself.
FILE_VARIABLE = "JACKLINE_CONFIG"
FILE_FLAG = "config"

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dotted(key: Iterable[str | int]) -> str:
    """`upstream.model_limits."claude-*".parallel`, and `upstream[1].…` for the second upstream."""
    text = ""
    for part in key:
        if isinstance(part, str):
            text += f"{'.' if text else ''}{part if _BARE.fullmatch(part) else quoted(part)}"
        elif part:
            text += f"[{part}]"
    return text


def plain(key: Iterable[str | int]) -> tuple[str, ...]:
    """The key as it is for every item of a list."""
    return tuple(part for part in key if isinstance(part, str))


def undotted(text: str) -> tuple[str, ...]:
    """The key that `dotted` wrote of one without places."""
    parts = re.findall(r'"(?:[^"\\]|\\.)*"|[^."]+', text)
    return tuple(json.loads(part) if part.startswith('"') else part for part in parts)


def quoted(text: str) -> str:
    """The text as TOML's basic string, with escapes for what could steer a terminal.

    It is JSON's, too; beyond U+FFFF the two have different escapes, and nothing steers.
    """
    return "".join(
        letter if letter.isprintable() or letter > "\uffff" else f"\\u{ord(letter):04x}"
        for letter in json.dumps(text, ensure_ascii=False)
    )


_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_PATH = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_TABLE = re.compile(rf"[ \t]*(\[\[?)[ \t]*({_PATH})[ \t]*\]")
_ASSIGNMENT = re.compile(rf"[ \t]*({_PATH})[ \t]*=(.*)")


class KeyLines:
    """The line of every key of one text."""

    def __init__(self, text: str) -> None:
        # The headers of all tables, in their order.
        self.tables: list[tuple[int, Key]] = []
        self._lines: dict[Key, int] = {}
        self._counts: Counter[Key] = Counter()
        table: Key = ()
        closing = ""
        for number, line in enumerate(text.splitlines(), 1):
            if closing:  # inside a text of several lines, whatever it looks like
                closing = "" if closing in line else closing
            elif (header := _TABLE.match(line)) is not None:
                table = self._table(header[1], _parts(header[2]))
                self._lines.setdefault(table, number)
                self.tables.append((number, table))
            elif (assignment := _ASSIGNMENT.match(line)) is not None:
                self._lines.setdefault((*table, *_parts(assignment[1])), number)
                value = assignment[2].lstrip()
                if value.startswith(('"""', "'''")) and value.count(value[:3]) == 1:
                    closing = value[:3]

    def line_of(self, place: Key) -> int | None:
        """The line of this key, or of what holds it."""
        while place:
            if place in self._lines:
                return self._lines[place]
            place = place[:-1]
        return None

    def _table(self, brackets: str, path: Key) -> Key:
        """The path with the places in arrays of tables put in."""
        place: Key = ()
        for depth, name in enumerate(path, 1):
            place = (*place, name)
            if brackets == "[[" and depth == len(path):
                self._counts[place] += 1
            if self._counts[place]:
                place = (*place, self._counts[place] - 1)
        return place


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in re.findall(_PART, path))
