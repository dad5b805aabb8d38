"""Bound the work that a JSON Schema can cause, before a library compiles it or applies it.

Rules: (1) pure, and bounded itself; (2) what counts is the work of the whole schema, never of
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

MOST_CHECKED = 1_000_000
"""Schemas applied to all parts of one answer together."""
MOST_DESCRIBED = 50_000
"""The same for an answer whose faults are described: each branch that fails is a fault."""
_MOST_PAIRS = 100_000
"""Of a schema and a part of an answer that are looked at while counting."""

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


def size(schema: Mapping[str, Any]) -> int:
    """How many schemas it applies to one part of an answer, at most; many if it has references."""
    many, ahead = 1, [schema]
    while ahead:
        node: object = ahead.pop()
        if isinstance(node, Mapping):
            if any(isinstance(node.get(name), str) for name in _REFERENCES):
                return MOST_DESCRIBED
            many += 1
            ahead.extend(node.values())
        elif isinstance(node, list):
            ahead.extend(node)
    return many


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


def applied_to(root: Mapping[str, Any], value: object) -> int:
    """How many schemas a naive reader applies to an answer; beyond MOST_CHECKED: too many.

    Each pair of a schema and a part of the answer is looked at once, however often it counts.
    """
    try:
        return _Count(root).of(root, value)
    except (_TooManyError, RecursionError):
        return MOST_CHECKED + 1


class _TooManyError(Exception):
    """There are more pairs than are looked at."""


class _Count:
    """One count; an answer is a tree, and does not change meanwhile."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._known: dict[tuple[int, int], int] = {}
        self._in_place: dict[int, list[Mapping[str, Any]]] = {}

    def of(self, schema: object, value: object) -> int:
        if not isinstance(schema, Mapping):
            return 1
        pair = (id(schema), id(value))
        if pair in self._known:
            return self._known[pair]
        if len(self._known) >= _MOST_PAIRS:
            raise _TooManyError
        self._known[pair] = 1  # for a reference to itself
        if id(schema) not in self._in_place:
            self._in_place[id(schema)] = _in_place(schema, self._root)
        many = 1 + sum(self.of(each, value) for each in self._in_place[id(schema)])
        if isinstance(value, list):
            many += self._of_items(schema, value)
        elif isinstance(value, Mapping):
            many += self._of_properties(schema, value)
        self._known[pair] = many = min(many, MOST_CHECKED + 1)
        return many

    def _of_items(self, schema: Mapping[str, Any], value: list[object]) -> int:
        many = 0
        for name in ("items", "additionalItems", "contains", "unevaluatedItems"):
            each = schema.get(name)
            if isinstance(each, Mapping):
                many += sum(self.of(each, item) for item in value)
        for name in ("prefixItems", "items"):
            listed = schema.get(name)
            if isinstance(listed, list):
                many += sum(map(self.of, listed, value))
        return many

    def _of_properties(self, schema: Mapping[str, Any], value: Mapping[str, object]) -> int:
        many = 0
        properties = schema.get("properties")
        if isinstance(properties, Mapping):
            many += sum(self.of(properties.get(name), part) for name, part in value.items())
        patterns = schema.get("patternProperties")
        others = list(patterns.values()) if isinstance(patterns, Mapping) else []
        others += [schema.get("additionalProperties"), schema.get("unevaluatedProperties")]
        for each in others:
            if isinstance(each, Mapping):
                many += sum(self.of(each, part) for part in value.values())
        names = schema.get("propertyNames")
        if isinstance(names, Mapping):
            many += sum(self.of(names, name) for name in value)
        return many
