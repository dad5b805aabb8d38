"""A model that was talked into costing time or memory: small arguments that ask for much work.

Rules: those of this package. Work is counted as steps, sizes and calls, never as seconds.
"""

from __future__ import annotations

from typing import Any

import pytest

from jackline.agents.structured_answer import StructuredAnswer, build_validator, check_group
from jackline.errors import BadArgumentError


def _patterns(*patterns: str) -> dict[str, Any]:
    return {"properties": {f"p{number}": {"pattern": each} for number, each in enumerate(patterns)}}


@pytest.mark.parametrize(
    "schema",
    [
        _patterns(*(rf"\pL{{8}}{number:x}" for number in range(5_500))),
        _patterns(*(f"a{number}" for number in range(10_000))),
        _patterns(r"\W" * 500),
        _patterns(r"\s" * 500),
        _patterns(r"(?i)" + "[ -\uffff]" * 50),
        _patterns(r"(?=a)\pL{8}" * 500),
        _patterns(*([r"\pL{24}"] * 100)),
        {"patternProperties": {rf"\pL{{8}}{number:x}": {} for number in range(5_500)}},
    ],
    ids=["many", "small", "classes", "spaces", "any case", "divided", "same", "names"],
)
def test_all_patterns_of_a_schema_share_one_allowance(schema: dict[str, Any]) -> None:
    with pytest.raises(BadArgumentError):
        build_validator(schema)


def test_usual_patterns_are_within_it() -> None:
    usual = (
        r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z$",
        r"^[\w.+-]+@[\w-]+\.[\w.-]+$",
        r"^(?=.*[A-Z])(?=.*\d)(?=.*[^\w]).{8,64}$",
        r"^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$",
        r"(?i)^(yes|no)$",
        r"^.{1,200}$",
        r"^\pL+$",
    )
    assert build_validator(_patterns(*usual, *(f"^item-{n}-[a-z]+$" for n in range(40))))


def test_the_schemas_of_a_group_share_one_allowance() -> None:
    schemas = [_patterns(*(f"^{name}{n}$" for n in range(100))) for name in range(200)]
    for each in schemas[:3]:
        assert build_validator(each)
    with pytest.raises(BadArgumentError, match="together"):
        check_group(schemas)
    assert check_group([schemas[0]] * 200) == 100
    many = check_group(schemas[:40])
    with pytest.raises(BadArgumentError):
        build_validator(_patterns(r"\pL{8}"), many)


def test_a_schema_is_built_once_for_all_agents_that_have_it() -> None:
    schema = _patterns("^once$")
    assert build_validator(schema) is build_validator(dict(schema))


@pytest.mark.parametrize("kind", ["allOf", "anyOf", "oneOf"])
def test_references_that_double_at_each_step_are_refused(kind: str) -> None:
    steps: dict[str, Any] = {
        f"s{n}": {kind: [{"$ref": f"#/$defs/s{n + 1}"}, {"$ref": f"#/$defs/s{n + 1}"}]}
        for n in range(40)
    }
    schema = {"$ref": "#/$defs/s0", "$defs": {**steps, "s40": {"type": "integer"}}}
    with pytest.raises(BadArgumentError, match="references"):
        build_validator(schema)


def test_a_definition_that_many_places_use_is_no_doubling() -> None:
    many = {f"p{n}": {"$ref": "#/$defs/text"} for n in range(3_000)}
    tree = {"anyOf": [{"type": "null"}, {"properties": {"left": {"$ref": "#/$defs/tree"}}}]}
    schema = {"properties": many, "$defs": {"text": {"type": "string"}, "tree": tree}}
    assert build_validator(schema).is_valid({"p1": "x"})


def test_a_value_that_is_to_be_a_pattern_is_read_with_bounded_work() -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "format": "regex"}
    validator = build_validator(schema)
    assert validator.is_valid(r"^\d+$")
    assert not validator.is_valid("(")
    assert not validator.is_valid(r"\W" * 500)


def test_of_an_answer_with_many_faults_only_the_first_are_looked_for() -> None:
    answer = StructuredAnswer({"type": "object", "additionalProperties": {"type": "integer"}})
    wrong: dict[str, object] = {f"k{n}": "x" for n in range(40_000)}
    fault = answer.fault(wrong)
    assert fault is not None
    assert fault.count("is not of type") == 1
    assert answer.fault_for_people(wrong).count("(type)") == 1
    assert answer.fault(dict(list(wrong.items())[:9])) is not None
    assert str(answer.fault(dict(list(wrong.items())[:9]))).endswith("; and more")
