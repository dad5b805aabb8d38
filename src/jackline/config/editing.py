"""Add an upstream to a configuration file, or take one out, and change nothing else in it.

Laws: (1) every other line stays as it is, comments and order included; a comment right above a
table belongs to that table; (2) what comes out is read again and must say exactly what was meant,
or nothing is changed; (3) text in, text out.
Not here: which file (cli/upstream_file.py), whether the upstream makes sense (upstreams.py).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from jackline.config.keys import dotted, quoted
from jackline.config.lines import KeyLines
from jackline.config.showing import literal
from jackline.errors import UsageError

_WIDTH = 100
_NAME = "upstream"


def with_upstream(
    text: str, values: Mapping[str, Any], *, under: tuple[str, ...] = (), first: bool = False
) -> str:
    """The text with one more upstream: the last of them, or the first."""
    unix = text.replace("\r\n", "\n")
    lines = unix.splitlines()
    block = _block(values, under)
    blocks = _blocks(unix, under)
    if not blocks:
        lines += [""] * bool(lines and lines[-1].strip()) + block
    elif first:
        at = blocks[0][0]
        lines[at:at] = [*block, ""]
    else:
        at = blocks[-1][1]
        lines[at:at] = ["", *block]
    listed = list(_upstreams(unix, under))
    listed.insert(0 if first else len(listed), dict(values))
    return _checked(text, lines, under, listed)


def without_upstream(text: str, place: int, *, under: tuple[str, ...] = ()) -> str:
    """The text without its upstream at this place, and without the comment right above it."""
    unix = text.replace("\r\n", "\n")
    lines = unix.splitlines()
    blocks = _blocks(unix, under)
    if place >= len(blocks):
        raise _by_hand()
    begin, end = blocks[place]
    while end < len(lines) and not lines[end].strip():
        end += 1
    del lines[begin:end]
    listed = list(_upstreams(unix, under))
    del listed[place]
    return _checked(text, lines, under, listed)


def _block(values: Mapping[str, Any], under: tuple[str, ...]) -> list[str]:
    block = [f"[[{dotted((*under, _NAME))}]]"]
    for name, value in values.items():
        if not isinstance(value, Mapping):
            block.append(f"{name} = {literal(value)}")
            continue
        pairs = [(quoted(str(key)), literal(one)) for key, one in value.items()]
        line = f"{name} = {{ {', '.join(f'{key} = {one}' for key, one in pairs)} }}"
        fits = len(line) <= _WIDTH
        block += [line] if fits else [f"{name}.{key} = {one}" for key, one in pairs]
    return block


def _blocks(text: str, under: tuple[str, ...]) -> list[tuple[int, int]]:
    """First line and end of each upstream, with the comment above it and the tables inside it."""
    lines = text.splitlines()
    tables = KeyLines(text).tables
    found = []
    for index, (number, place) in enumerate(tables):
        if place[:-1] != (*under, _NAME) or not isinstance(place[-1], int):
            continue
        inside = index + 1
        while inside < len(tables) and tables[inside][1][: len(place)] == place:
            inside += 1
        end = tables[inside][0] - 1 if inside < len(tables) else len(lines)
        if inside < len(tables):
            end = _above(lines, end)
        while end > number and not lines[end - 1].strip():
            end -= 1
        found.append((_above(lines, number - 1), end))
    return found


def _above(lines: list[str], line: int) -> int:
    """Where the comment begins that stands right above this line."""
    while line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
    return line


def _upstreams(text: str, under: tuple[str, ...]) -> list[Any]:
    table: Any = tomllib.loads(text)
    for name in (*under, _NAME):
        table = table.get(name, {})
    return table if isinstance(table, list) else []


def _checked(before: str, lines: list[str], under: tuple[str, ...], upstreams: list[Any]) -> str:
    text = "\n".join([*lines, ""]).lstrip("\n") if lines else ""
    wanted = tomllib.loads(before)
    holder: Any = wanted
    for name in under:
        holder = holder.setdefault(name, {})
    holder[_NAME] = upstreams
    if not upstreams:
        del holder[_NAME]
    try:
        is_meant = tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        is_meant = False
    if not is_meant:
        raise _by_hand()
    return text.replace("\n", "\r\n") if "\r\n" in before else text


def _by_hand() -> UsageError:
    return UsageError(
        "the list of upstreams is written in a way that cannot be edited without touching the rest",
        next="write each as its own [[upstream]] table, or edit the file by hand",
    )
