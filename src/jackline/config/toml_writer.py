"""Write settings as TOML, JSON or JSON Schema, and add or remove an upstream in a file's text.

Rules: (1) what is written reads back as the same settings; (2) secrets appear as the references in
the files, never as themselves; (3) durations and sizes are written as people write them; (4) the
schema is made from the document that the loader checks with, so both agree; (5) an edit leaves
every other line as it is, comments and order included; its result is parsed again and must mean
exactly what was wanted, or nothing is changed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from jackline.config.declaration import ROOT, SETTINGS
from jackline.config.document import Document, shown_value
from jackline.config.keys import Key, KeyLines, dotted, plain, quoted
from jackline.config.settings import Config
from jackline.errors import UsageError
from jackline.outside_names import printable


def as_json(config: Config) -> dict[str, object]:
    """Every key with its value, as one would write it."""
    return {dotted(key): shown_value(key, value) for key, value in config.shown.items()}


def as_toml(config: Config, *, origins: bool = False) -> str:
    """The whole configuration as a `jackline.toml`; keys without a value stand as comments."""
    return "\n".join(_lines(config, origins=origins)) + "\n"


def literal(value: object) -> str:
    """The value in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return f"[{', '.join(literal(one) for one in value)}]"
    return repr(value)


def _lines(config: Config, *, origins: bool) -> Iterator[str]:
    table: Key = ()
    for key in _in_order(config.shown):
        if key[:-1] != table:
            table = key[:-1]
            yield ""
            is_upstream = plain(table) == ("upstream",)
            yield "[[upstream]]" if is_upstream else f"[{dotted(plain(table))}]"
        origin = f"  # {printable(config.origins[dotted(key)])}" if origins else ""
        value = shown_value(key, config.shown[key])
        name = dotted(key[-1:])
        if value is None:
            yield f"# {name} is not set"
        else:
            yield f"{name} = {literal(value)}{origin}"


def _in_order(shown: Mapping[Key, object]) -> list[Key]:
    """As the document has them: plain keys of a table before the tables inside it."""
    sections, names = list(ROOT), list(SETTINGS)
    # Patterns of models stay in the order in which they were written: the first that fits wins.
    tables = list(dict.fromkeys(key[:-1] for key in shown))

    def rank(key: Key) -> tuple[int, int, int, int, int]:
        section = sections.index(str(key[0])) if len(key) > 1 else -1
        upstream = key[1] if len(key) > 1 and isinstance(key[1], int) else 0
        name = names.index(plain(key)) if plain(key) in SETTINGS else 0
        return section, upstream, len(key), tables.index(key[:-1]), name

    return sorted(shown, key=rank)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the document."""
    schema = Document.model_json_schema()
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
    """Where the comment begins that is right above this line."""
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
        hint="write each as its own [[upstream]] table, or edit the file by hand",
    )
