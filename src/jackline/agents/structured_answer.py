"""Request a structured answer through a tool, and validate what comes.

Rules: (1) a value is valid by the user's schema and type, or there is no value; (2) the model sees
a fault in the validator's words, people see it without the model's words; (3) no other module
builds a validator (tests/agents/test_json_schema.py): a schema may come from anybody, so it has a
largest size, its patterns a largest number of steps, all of it a largest amount of work
(schema_bounds.py), and nothing is fetched: a schema that refers to a file or an address is refused,
because the library would read it while the whole process waits; (4) what is wrong with a schema is
described by place and rule, never by its own words; (5) of a value with many faults only as many
are looked for as are shown, because the library collects all of them before it gives the first; an
answer to which a schema applies too many schemas is not checked, and is not valid.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn

from jackline.agents import schema_bounds
from jackline.agents.runner import Check, JsonObject
from jackline.errors import BadArgumentError
from jackline.outside_names import printable

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

STRUCTURED_OUTPUT = "StructuredOutput"
"""The tool by which a model returns its structured answer; Claude Code's name for it."""
LARGEST_SCHEMA = 256 * 1024
"""In characters of JSON. A model is shown the schema with every call: real ones are far smaller."""
_MOST_BACKTRACKING = 100_000
_LONGEST_PLACE = 200
_DESCRIPTION = "Give the final answer of this task. Call it once, when everything else is done."
_VALUE = "value"
_DEFINED = ("$defs", "definitions")
_MOST_FAULTS = 5
_LONGEST = 400
_MOST_PARTS = 10_000
"""Of a value of which all faults are looked for."""
_SAME_SCHEMAS = 8


def build_validator(schema: dict[str, Any], together: int = 0) -> Validator:
    """The validator; BadArgumentError for a schema that is broken, large or refers elsewhere.

    `together` is what `check_group` gave, for one of a group. Agents that have the same schema
    share one validator.
    """
    many = together or schema_bounds.programs(schema)
    text = _text_of(schema)
    return _build(schema, many) if text is None else _build_once(text, many)


def check_group(schemas: Iterable[dict[str, Any]]) -> int:
    """How many programs share one room; BadArgumentError where all schemas ask for too much."""
    distinct = list({_text_of(each): each for each in schemas}.values())
    if len(distinct) > 1 and (excess := schema_bounds.excess(distinct)):
        raise BadArgumentError(
            f"The schemas of these agents ask for too much: together, {excess}.",
            hint="Give the agents the same schema, or start fewer at once.",
        )
    return schema_bounds.programs(distinct)


def _text_of(schema: object) -> str | None:
    try:
        return json.dumps(schema)
    except (ValueError, TypeError, RecursionError):
        return None


@lru_cache(maxsize=_SAME_SCHEMAS)
def _build_once(text: str, many: int) -> Validator:
    return _build(json.loads(text), many)


def _build(schema: dict[str, Any], many: int) -> Validator:
    """With patterns that share the room of so many programs."""
    # Imported where it is needed: most agents and all short commands do without.
    import jsonschema_rs  # noqa: PLC0415

    references: list[str] = []

    def refuse(uri: str) -> NoReturn:
        references.append(uri)
        raise ValueError("not fetched")

    try:
        if len(json.dumps(schema)) > LARGEST_SCHEMA:
            why = f"it has more than {LARGEST_SCHEMA} characters"
        elif excess := schema_bounds.excess(schema):
            why = excess
        else:
            limit = schema_bounds.program_limit(many)
            return jsonschema_rs.validator_for(
                schema,
                formats={"regex": _is_pattern},
                retriever=refuse,
                pattern_options=jsonschema_rs.FancyRegexOptions(
                    backtrack_limit=_MOST_BACKTRACKING, size_limit=limit, dfa_size_limit=limit
                ),
            )
    except jsonschema_rs.ValidationError as error:
        place = printable("".join(f"/{step}" for step in error.instance_path)[:_LONGEST_PLACE])
        # The library gives neither place nor rule for these.
        why = "a reference in it, or its `$schema`, leads nowhere"
        if error.schema_path:
            why = f"at {place or 'the top'} ({error.schema_path[-1]})"
    except RecursionError:
        why = "it is nested too deeply"
    except (ValueError, TypeError) as error:
        why = f"it cannot be read ({type(error).__name__})"
    if references:
        why = (
            "it refers to another document, and none is fetched:"
            " put what that defines into the schema itself"
        )
    raise BadArgumentError(
        f"The schema of the answer is not valid JSON Schema: {why}.", hint="Correct the schema."
    )


def _is_pattern(text: str) -> bool:
    """Whether a value is a pattern, of one that can be read with bounded work."""
    import jsonschema_rs  # noqa: PLC0415 -- as above

    if schema_bounds.excess({"pattern": text}) is not None:
        return False
    limit = schema_bounds.program_limit(schema_bounds.programs({"pattern": text}))
    options = jsonschema_rs.FancyRegexOptions(size_limit=limit)
    try:
        jsonschema_rs.validator_for({"pattern": text}, pattern_options=options)
    except jsonschema_rs.ValidationError:
        return False
    return True


def first_faults(validator: Validator, value: object, most: int) -> list[ValidationError]:
    """The first faults of a value: of a small one as many as `most`, of a large one the first."""
    import jsonschema_rs  # noqa: PLC0415 -- as above

    if _parts_of(value, _MOST_PARTS) is not None:
        return list(islice(validator.iter_errors(value), most))
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        return [error]
    return []


def fault_words(error: ValidationError) -> str:
    """What is wrong, with the beginning of a long value: the rule comes behind the value."""
    words = error.message
    if len(words) <= _LONGEST:
        return words
    return f"{words[: _LONGEST // 2]}…{words[-_LONGEST // 2 :]}"


def _parts_of(value: object, most: int) -> int | None:
    """How many objects, lists, names and plain values it has; None where more than `most`."""
    many, ahead = 1, [value]
    while ahead:
        node = ahead.pop()
        if isinstance(node, Mapping | list):
            many += len(node)
            if many > most:
                return None
            ahead.extend(node.values() if isinstance(node, Mapping) else node)
    return many if many <= most else None


class StructuredAnswer:
    """The answer that a schema describes; BadArgumentError when the schema itself is at fault."""

    def __init__(self, schema: JsonObject, check: Check | None = None) -> None:
        self._schema = schema
        self._check = check
        self._is_wrapped = schema.get("type") != "object"
        self._validator = build_validator(schema)
        self._size = schema_bounds.size(schema)

    @property
    def tool(self) -> JsonObject:
        """The tool as it is offered to the model."""
        return {
            "name": STRUCTURED_OUTPUT,
            "description": _DESCRIPTION,
            "input_schema": self.input_schema,
        }

    @property
    def input_schema(self) -> JsonObject:
        """The schema of the tool's input: an object, which holds an answer that is none."""
        if not self._is_wrapped:
            return self._schema
        inner = {key: value for key, value in self._schema.items() if key not in _DEFINED}
        return {
            "type": "object",
            "properties": {_VALUE: inner},
            "required": [_VALUE],
            "additionalProperties": False,
            # Definitions are referred to from the root.
            **{key: self._schema[key] for key in _DEFINED if key in self._schema},
        }

    def value(self, tool_input: JsonObject) -> object:
        """The answer inside of the tool's input."""
        return tool_input.get(_VALUE) if self._is_wrapped else tool_input

    def fault(self, tool_input: JsonObject) -> str | None:
        """What is wrong with the answer, for the model; None when it is valid."""
        if self._is_wrapped and _VALUE not in tool_input:
            return f'the input must have the one property "{_VALUE}", which holds the answer'
        if vague := self._vague_fault(tool_input):
            return vague
        errors, own = self._faults(tool_input)
        faults = [f"at {_place(error)}: {fault_words(error)}" for error in errors]
        faults += [f"at {place}: {words[:_LONGEST]}" for place, words in own]
        rest = ["and more"] if len(faults) > _MOST_FAULTS else []
        return "; ".join(faults[:_MOST_FAULTS] + rest) or None

    def fault_for_people(self, tool_input: JsonObject) -> str:
        """Where the answer is wrong and by which rule, without a word of the answer."""
        if self._is_wrapped and _VALUE not in tool_input:
            return "the answer is not there"
        if vague := self._vague_fault(tool_input):
            return vague
        errors, own = self._faults(tool_input)
        known = set(property_names(self._schema))
        faults = [f"{_place(error, known)} ({error.schema_path[-1]})" for error in errors]
        for place, _ in own:
            parts = place.split(".")
            steps = (s if s in known or s.isdigit() or place == "it" else "…" for s in parts)
            faults.append(f"{'.'.join(steps)} (a rule of its type)")
        return ", ".join(faults[:_MOST_FAULTS])

    def _vague_fault(self, tool_input: JsonObject) -> str | None:
        """What is wrong with an answer of which it would take too much work to say more."""
        value = self.value(tool_input)
        if _parts_of(value, schema_bounds.MOST_DESCRIBED // self._size) is not None:
            return None
        many = schema_bounds.applied_to(self._schema, value)
        if many > schema_bounds.MOST_CHECKED:
            return "it takes too much work to check: give a smaller answer, or one less nested"
        if many > schema_bounds.MOST_DESCRIBED and not self._validator.is_valid(value):
            return "it does not fit the schema, and is too large to say where"
        return None

    def _faults(
        self, tool_input: JsonObject
    ) -> tuple[list[ValidationError], Sequence[tuple[str, str]]]:
        """Those by the schema; those by the user's own type only where there are none."""
        value = self.value(tool_input)
        errors = first_faults(self._validator, value, _MOST_FAULTS + 1)
        return errors, () if errors or self._check is None else self._check(value)


def _place(error: ValidationError, known: Container[str] | None = None) -> str:
    """Where it is; with `known`, keys that the schema does not name are not shown: the model's."""
    steps = error.instance_path
    if known is not None:
        steps = [step if isinstance(step, int) or step in known else "…" for step in steps]
    return "".join(f"/{step}" for step in steps) or "the top"


def property_names(schema: object) -> Iterator[str]:
    """Every name of a property in a JSON Schema."""
    if isinstance(schema, Mapping):
        properties = schema.get("properties")
        yield from properties if isinstance(properties, Mapping) else ()
        for each in schema.values():
            yield from property_names(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from property_names(each)
