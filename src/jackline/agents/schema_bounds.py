"""Bound the work that a JSON Schema can cause before a library compiles it.

Rules: (1) pure and linear in the schema; (2) what counts is the work of the whole schema, never of
one pattern or one place: many small parts are as costly as a large one; (3) the library holds the
interpreter while it works, so that no thread helps: only these bounds do; (4) what is counted was
measured: a pattern is rewritten once for each class in it, one without regard to case looks at
every sign of each range, and a lookaround divides a pattern into parts with a program each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

MOST_STEPS = 40_000
"""Of reading all patterns; about a fifth of a second."""
COMPILED_BYTES = 16 * 1024 * 1024
"""Of the programs of all patterns together."""
LARGEST_PROGRAM = 1024 * 1024
MOST_APPLIED = 10_000
"""Schemas that apply to one place of an answer, counted as often as a reference repeats them."""

_CLASS = re.compile(r"\\[dDwWsS]")
_NAMED_CLASS = re.compile(r"\\[pP]")
_ANY_CASE = re.compile(r"\(\?[a-zA-Z]*i")
_DIVIDED = re.compile(r"\(\?[=!<>(]|\\[1-9kKGg]|[?*+}]\+")
_DIVIDER = re.compile(r"[(|\\+*?{]")
_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLE = ("not", "if", "then", "else")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def patterns_of(schema: object) -> Iterator[str]:
    """Every pattern in it, and whatever else stands where a pattern might."""
    ahead = [schema]
    while ahead:
        node = ahead.pop()
        if isinstance(node, Mapping):
            if isinstance(pattern := node.get("pattern"), str):
                yield pattern
            if isinstance(by_pattern := node.get("patternProperties"), Mapping):
                yield from map(str, by_pattern)
            ahead.extend(node.values())
        elif isinstance(node, list):
            ahead.extend(node)


def steps(pattern: str) -> int:
    """The work of reading one pattern."""
    named = len(_NAMED_CLASS.findall(pattern))
    work = 5 + len(pattern) // 3 + len(_CLASS.findall(pattern)) ** 2 + 40 * named
    if _ANY_CASE.search(pattern):
        work += 2_000 * pattern.count("[") + 200 * pattern.count("\\")
    return work


def programs(schema: object) -> int:
    """Into how many programs its patterns are compiled, at most."""
    return sum(
        1 + len(_DIVIDER.findall(pattern)) if _DIVIDED.search(pattern) else 1
        for pattern in patterns_of(schema)
    )


def program_limit(many: int) -> int:
    """The bytes that each of so many programs may have, to keep within COMPILED_BYTES together."""
    return min(LARGEST_PROGRAM, COMPILED_BYTES // max(1, many))


def excess(schema: object) -> str | None:
    """What of it is too much; None when it keeps within the bounds."""
    work = 0
    for pattern in patterns_of(schema):
        work += steps(pattern)
        if work > MOST_STEPS:
            return "the patterns are too many, or take too much work"
    if isinstance(schema, Mapping) and _most_applied(schema) > MOST_APPLIED:
        return f"the references apply more than {MOST_APPLIED:,} schemas to one place"
    return None


def _most_applied(root: Mapping[str, Any]) -> int:
    """How many schemas one place of an answer is checked against, at most; without recursion."""
    known: dict[int, int] = {}
    most = 0
    ahead: list[object] = [root]
    while ahead:
        node = ahead.pop()
        if isinstance(node, Mapping):
            most = max(most, _applied(node, root, known))
            ahead.extend(node.values())
        elif isinstance(node, list):
            ahead.extend(node)
        if most > MOST_APPLIED:
            break
    return most


def _applied(start: Mapping[str, Any], root: Mapping[str, Any], known: dict[int, int]) -> int:
    """Of one schema: itself and all that it applies to the same place."""
    under_way: dict[int, list[Mapping[str, Any]]] = {}
    stack = [start]
    while stack:
        node = stack[-1]
        mark = id(node)
        if mark in known:
            stack.pop()
        elif mark not in under_way:
            under_way[mark] = _in_place(node, root)
            # One that is under way refers to itself: how deep that goes, the answer decides.
            stack.extend(e for e in under_way[mark] if id(e) not in under_way)
        else:
            stack.pop()
            many = 1 + sum(known.get(id(each), 1) for each in under_way[mark])
            known[mark] = min(many, MOST_APPLIED + 1)
    return known[id(start)]


def _in_place(node: Mapping[str, Any], root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found: list[object] = []
    for name in _LISTS:
        each = node.get(name)
        found += each if isinstance(each, list) else []
    found += [node.get(name) for name in _SINGLE]
    for name in ("dependentSchemas", "dependencies"):
        by_name = node.get(name)
        found += by_name.values() if isinstance(by_name, Mapping) else []
    for name in _REFERENCES:
        reference = node.get(name)
        found += [_at(reference, root)] if isinstance(reference, str) else []
    return [each for each in found if isinstance(each, Mapping)]


def _at(reference: str, root: Mapping[str, Any]) -> object:
    """What a reference within the document leads to; None for anchors and other documents."""
    if not reference.startswith("#"):
        return None
    node: object = root
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and name.isdecimal() and len(name) < 7 and int(name) < len(node):
            node = node[int(name)]
        elif isinstance(node, Mapping):
            node = node.get(name)
        else:
            return None
    return node
