"""Write a configuration down again: as TOML that can be read back, or as plain JSON values.

Laws: (1) what is written reads back as the same settings; (2) secrets appear as the references that
stand in the files, never as themselves; (3) durations and sizes are written as people write them.
Not here: reading (loading.py), printing (cli/config.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jackline.config.document import Document, defaults, field_of
from jackline.config.keys import Key, dotted, plain, quoted
from jackline.config.quantities import duration_text, size_text
from jackline.config.settings import Config
from jackline.config.table import IS_DURATION, IS_SIZE
from jackline.outside_names import printable


def as_json(config: Config) -> dict[str, object]:
    """Every key with its value, as one would write it."""
    return {dotted(key): value_of(key, value) for key, value in config.shown.items()}


def as_toml(config: Config, *, origins: bool = False) -> str:
    """The whole configuration as a `jackline.toml`; keys without a value stand as comments."""
    return "\n".join(_lines(config, origins=origins)) + "\n"


def value_of(key: Key, value: Any) -> object:
    """The value as one would write it in a file."""
    if value is None or isinstance(value, bool):
        return value
    info = field_of(key)
    marks = () if info is None else info.metadata
    if any(mark is IS_DURATION for mark in marks):
        return duration_text(value)
    return size_text(value) if any(mark is IS_SIZE for mark in marks) else value


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
        value = value_of(key, config.shown[key])
        name = dotted(key[-1:])
        if value is None:
            yield f"# {name} is not set"
        else:
            yield f"{name} = {literal(value)}{origin}"


def _in_order(shown: Mapping[Key, object]) -> list[Key]:
    """As the document has them: plain keys of a table before the tables inside it."""
    sections: list[str | int] = list(Document.model_fields)
    names = [key[-1] for key in defaults()]
    # Patterns of models keep the order in which they were written: the first that fits wins.
    tables = list(dict.fromkeys(key[:-1] for key in shown))

    def rank(key: Key) -> tuple[int, int, int, int, int]:
        section = sections.index(key[0]) if len(key) > 1 else -1
        upstream = key[1] if len(key) > 1 and isinstance(key[1], int) else 0
        name = names.index(str(key[-1])) if field_of(key) is not None else 0
        return section, upstream, len(key), tables.index(key[:-1]), name

    return sorted(shown, key=rank)
