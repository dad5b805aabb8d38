"""Write settings as TOML, JSON or JSON Schema, and add or remove an upstream in a file's text.

Rules: (1) what is written reads back as the same settings; (2) secrets appear as the references in
the files, never as themselves; (3) durations and sizes are written as people write them; (4) the
schema is made from the document that the loader checks with, so both agree; (5) an edit leaves
every other line as it is, comments and order included; its result is parsed again and must mean
exactly what was wanted, or nothing is changed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from jackline.config import Config
from jackline.config.declaration import ROOT, SETTINGS, shown_value
from jackline.config.document import document_schema
from jackline.config.keys import Key, KeyLines, dotted, plain, quoted
from jackline.errors import UsageError
from jackline.outside_names import printable


def as_json(config: Config) -> dict[str, object]:
    """Every key with its value, as one would write it."""
    return {dotted(key): shown_value(key, value) for key, value in config.shown.items()}


def as_toml(config: Config, *, origins: bool = False) -> str:
    """The whole configuration as a `jackline.toml`; keys without a value stand as comments."""
    sections, names = list(ROOT), list(SETTINGS)
    # Patterns of models stay in the order in which they were written: the first that fits wins.
    tables = list(dict.fromkeys(key[:-1] for key in config.shown))

    def rank(key: Key) -> tuple[int, int, int, int, int]:
        """As the document has them: plain keys of a table before the tables inside it."""
        section = sections.index(str(key[0])) if len(key) > 1 else -1
        upstream = key[1] if len(key) > 1 and isinstance(key[1], int) else 0
        name = names.index(plain(key)) if plain(key) in SETTINGS else 0
        return section, upstream, len(key), tables.index(key[:-1]), name

    lines = []
    table: Key = ()
    for key in sorted(config.shown, key=rank):
        if key[:-1] != table:
            table = key[:-1]
            is_upstream = plain(table) == (_NAME,)
            lines += ["", "[[upstream]]" if is_upstream else f"[{dotted(plain(table))}]"]
        origin = f"  # {printable(config.origins[dotted(key)])}" if origins else ""
        value = shown_value(key, config.shown[key])
        name = dotted(key[-1:])
        lines.append(
            f"# {name} is not set" if value is None else f"{name} = {literal(value)}{origin}"
        )
    return "\n".join(lines) + "\n"


def literal(value: object) -> str:
    """The value in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return f"[{', '.join(literal(one) for one in value)}]"
    return repr(value)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the document."""
    schema = document_schema()
    for table in (schema, *schema["$defs"].values()):
        for part in table["properties"].values():
            part.pop("title", None)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "jackline.config/1",
        **schema,
        "title": "jackline.toml",
    }


_WIDTH = 100
_NAME = "upstream"


def with_upstream(
    text: str, values: Mapping[str, Any], *, under: tuple[str, ...] = (), first: bool = False
) -> str:
    """The text with one more upstream: the last of them, or the first."""
    document = _Upstreams(text, under)
    block = [f"[[{dotted((*under, _NAME))}]]"]
    for name, value in values.items():
        if not isinstance(value, Mapping):
            block.append(f"{name} = {literal(value)}")
            continue
        pairs = [f"{quoted(str(key))} = {literal(one)}" for key, one in value.items()]
        line = f"{name} = {{ {', '.join(pairs)} }}"
        block += [line] if len(line) <= _WIDTH else [f"{name}.{pair}" for pair in pairs]
    lines, blocks = document.lines, document.blocks
    if not blocks:
        lines += [""] * bool(lines and lines[-1].strip()) + block
    elif first:
        at = blocks[0][0]
        lines[at:at] = [*block, ""]
    else:
        at = blocks[-1][1]
        lines[at:at] = ["", *block]
    document.listed.insert(0 if first else len(document.listed), dict(values))
    return document.edited()


def without_upstream(text: str, place: int, *, under: tuple[str, ...] = ()) -> str:
    """The text without its upstream at this place, and without the comment right above it."""
    document = _Upstreams(text, under)
    if place >= len(document.blocks):
        raise _by_hand()
    begin, end = document.blocks[place]
    while end < len(document.lines) and not document.lines[end].strip():
        end += 1
    del document.lines[begin:end]
    del document.listed[place]
    return document.edited()


class _Upstreams:
    """The upstreams in a file's text: where each is, and what they say; both are to be edited."""

    def __init__(self, text: str, under: tuple[str, ...]) -> None:
        self._before = text
        self._under = under
        unix = text.replace("\r\n", "\n")
        self.lines = unix.splitlines()
        # First line and end of each, with the comment above it and the tables inside it.
        self.blocks: list[tuple[int, int]] = []
        tables = KeyLines(unix).tables
        for index, (number, place) in enumerate(tables):
            if place[:-1] != (*under, _NAME) or not isinstance(place[-1], int):
                continue
            inside = index + 1
            while inside < len(tables) and tables[inside][1][: len(place)] == place:
                inside += 1
            end = len(self.lines)
            if inside < len(tables):
                end = self._comment_above(tables[inside][0] - 1)
            while end > number and not self.lines[end - 1].strip():
                end -= 1
            self.blocks.append((self._comment_above(number - 1), end))
        table: Any = tomllib.loads(unix)
        for name in (*under, _NAME):
            table = table.get(name, {})
        self.listed: list[Any] = table if isinstance(table, list) else []

    def _comment_above(self, line: int) -> int:
        """Where the comment begins that is right above this line."""
        while line > 0 and self.lines[line - 1].lstrip().startswith("#"):
            line -= 1
        return line

    def edited(self) -> str:
        """The text with the edited lines, once it reads as the edited list."""
        text = "\n".join([*self.lines, ""]).lstrip("\n") if self.lines else ""
        wanted = tomllib.loads(self._before)
        holder: Any = wanted
        for name in self._under:
            holder = holder.setdefault(name, {})
        holder[_NAME] = self.listed
        if not self.listed:
            del holder[_NAME]
        try:
            is_wanted = tomllib.loads(text) == wanted
        except tomllib.TOMLDecodeError:
            is_wanted = False
        if not is_wanted:
            raise _by_hand()
        return text.replace("\n", "\r\n") if "\r\n" in self._before else text


def _by_hand() -> UsageError:
    return UsageError(
        "the list of upstreams is written in a way that cannot be edited without touching the rest",
        hint="write each as its own [[upstream]] table, or edit the file by hand",
    )
