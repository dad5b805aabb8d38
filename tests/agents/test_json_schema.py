"""Schemas that anybody may have written: nothing is fetched, quoted or run without bounds."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import jackline
from jackline.agents.runner import JsonObject
from jackline.agents.structured_answer import LARGEST_SCHEMA, StructuredAnswer, build_validator
from jackline.errors import BadArgumentError

_SOURCES = Path(jackline.__file__).parent
_OWNER = _SOURCES / "agents" / "structured_answer.py"
_TYPES = {"ValidationError", "ValidationErrorKind", "Validator"}


def _deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"not": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "nonsense"}, "at /type (anyOf)"),
        ({"properties": {"a": {"pattern": "("}}}, "at /properties/a/pattern"),
        ({"$ref": "#/nowhere"}, "leads nowhere"),
        ({"$schema": "file:///etc/hostname"}, "none is fetched"),
        ({"$ref": "file:///etc/hostname"}, "none is fetched"),
        ({"items": {"$ref": "https://example.invalid/x"}}, "none is fetched"),
        ({"$id": "https://example.invalid/a/", "items": {"$ref": "b"}}, "none is fetched"),
        ({"enum": ["x" * LARGEST_SCHEMA]}, "characters"),
        ({"pattern": "(?:a{1000}){1000}"}, "at /pattern"),
        ({"default": {1, 2}}, "TypeError"),
        (_deep(300), "ValueError"),
        (_deep(5000), "nested too deeply"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_by_place_and_rule(
    schema: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadArgumentError) as refused:
        build_validator(schema)
    assert "not valid JSON Schema" in refused.value.message
    assert words in refused.value.message
    assert len(refused.value.message) < 400
    assert "hostname" not in refused.value.message


def test_a_pattern_gives_up_after_a_bounded_number_of_steps() -> None:
    validator = build_validator({"pattern": "^(a+)+(?=b)$"})
    assert not validator.is_valid("a" * 5000)


def test_schemas_refer_to_themselves_and_to_the_known_meta_schemas() -> None:
    tree = {"type": "object", "properties": {"below": {"type": "array", "items": {"$ref": "#"}}}}
    validator = build_validator({"$schema": "https://json-schema.org/draft/2020-12/schema", **tree})
    assert validator.is_valid({"below": [{"below": []}]})
    assert not validator.is_valid({"below": [{"below": 1}]})


def test_no_other_module_builds_a_validator() -> None:
    found = [
        f"{path.relative_to(_SOURCES)}:{line}"
        for path in sorted(_SOURCES.rglob("*.py"))
        if path != _OWNER
        for line in _uses(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not found, f"use jackline.agents.structured_answer.build_validator: {found}"


def _uses(tree: ast.AST) -> list[int]:
    """Lines that take more than types from a library of JSON Schema."""
    lines: list[int] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and _is_library(node.module or ""):
            lines += [node.lineno for name in node.names if name.name not in _TYPES]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            taken = _is_library(node.value.id) and node.attr not in _TYPES
            lines += [node.lineno] if taken else []
    return lines


def _is_library(name: str) -> bool:
    return name.split(".", maxsplit=1)[0] in {"jsonschema_rs", "jsonschema", "fastjsonschema"}


def test_people_see_where_an_answer_is_wrong_without_the_keys_that_the_model_chose() -> None:
    numbers = {"type": "object", "additionalProperties": {"type": "integer"}}
    parts = {"type": "array", "items": numbers}
    schema: JsonObject = {"type": "object", "properties": {"parts": parts}}
    answer = StructuredAnswer(schema, lambda _value: [("parts.0.secret", "secret"), ("it", "odd")])
    wrong: JsonObject = {"parts": [{"secret": "words"}]}
    assert "secret" in (answer.fault(wrong) or ""), "the model sees its own words"
    assert answer.fault_for_people(wrong) == "/parts/0/… (type)"
    assert answer.fault_for_people({"parts": []}) == (
        "parts.0.… (a rule of its type), it (a rule of its type)"
    )
