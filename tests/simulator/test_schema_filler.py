"""Any schema that a flow asks by is filled in with something valid."""

from __future__ import annotations

from typing import Annotated, Literal

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from jackline.simulator.reply_script import SchemaFiller


class Leaf(BaseModel):
    name: str
    score: Annotated[float, Field(ge=0, le=1)]
    kind: Literal["a", "b"]
    note: str | None = None


class Tree(BaseModel):
    title: Annotated[str, Field(min_length=40, max_length=60)]
    leaves: Annotated[list[Leaf], Field(min_length=2, max_length=5)]
    count: Annotated[int, Field(ge=10, le=12)]
    inner: list[Tree] = []
    ok: bool


@given(st.text(max_size=30))
def test_what_is_filled_in_is_valid_and_always_the_same(about: str) -> None:
    schema = Tree.model_json_schema()
    value = SchemaFiller(schema, about).filled()
    assert jsonschema_rs.validator_for(schema).is_valid(value), value
    assert value == SchemaFiller(schema, about).filled()
    Tree.model_validate(value)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"allOf": [{"type": "integer", "minimum": 3}]}}},
        {"type": "object", "properties": {"a": {"const": 4}, "b": {"enum": [1, 2]}}},
        {"type": "object", "properties": {"v": {"type": "array", "items": {"type": "string"}}}},
        {"type": "object"},
    ],
)
def test_common_shapes(schema: dict[str, object]) -> None:
    assert jsonschema_rs.validator_for(schema).is_valid(SchemaFiller(schema, "x").filled())


def test_different_questions_get_different_answers() -> None:
    schema = Leaf.model_json_schema()
    assert SchemaFiller(schema, "one").filled() != SchemaFiller(schema, "two").filled()
