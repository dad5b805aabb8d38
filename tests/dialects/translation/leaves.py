"""Take documents apart into their leaves, to see what became of each.

Rules: (1) it shares no code with what it judges; (2) JSON inside of a string is opened too.
Not here: what must become of a leaf (test_nothing_in_silence.py).
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with its path."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{place}]")
    else:
        yield path, value


# Names of the fields that may have any text.
FREE = [
    "text",
    "thinking",
    "signature",
    "data",
    "title",
    "context",
    "source",
    "description",
    "content",
    "user_id",
]


def numbered(value: Any, name: str = "", count: Iterator[int] | None = None) -> Any:
    """The same document with a mark in every free text, so that no two texts are the same."""
    count = itertools.count() if count is None else count
    if isinstance(value, dict):
        inside = "" if name != "input" else name
        return {key: numbered(inner, inside or key, count) for key, inner in value.items()}
    if isinstance(value, list):
        return [numbered(inner, name, count) for inner in value]
    if isinstance(value, str) and name in (*FREE, "input"):
        return f"{value}/{next(count)}/"
    return value


def all_values(value: Any) -> Iterator[Any]:
    """Every leaf, and every leaf of JSON that a string holds."""
    for _, leaf in leaves(value):
        yield leaf
        if isinstance(leaf, str) and leaf[:1] in "[{":
            try:
                opened = json.loads(leaf)
            except ValueError:
                continue
            yield from all_values(opened)


def keys(value: Any) -> Iterator[tuple[str, Any]]:
    """Every field with its value."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name, inner
            yield from keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner)


def names(note: str, path: str) -> bool:
    """Whether a note speaks of this leaf, or of something that holds it."""
    at = re.sub(r" \(\d+ times\)$", "", note.split(": ", 1)[0])
    place = re.sub(r"\[\d+\]", "[*]", path)
    return place == at or place.startswith((f"{at}.", f"{at}["))
