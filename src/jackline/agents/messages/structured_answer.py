"""Request a structured answer through a tool, and validate what comes.

Rules: (1) a value is valid by the user's schema and type, or there is no value; (2) the model sees
a fault in the validator's words, people see it without the model's words.
Not here: which schemas are allowed (agents/json_schema.py), how often the request is repeated
(next_move.py), the user's own types (flows/).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jackline.agents.json_schema import build_validator
from jackline.agents.messages.request import STRUCTURED_OUTPUT
from jackline.agents.runner import Check, JsonObject

if TYPE_CHECKING:
    import jsonschema_rs

_DESCRIPTION = "Give the final answer of this task. Call it once, when everything else is done."
_VALUE = "value"
_DEFINED = ("$defs", "definitions")
_TOLD = 5
_LONGEST = 400


class StructuredAnswer:
    """The answer that a schema asks for; BadArgumentError when the schema itself is at fault."""

    def __init__(self, schema: JsonObject, check: Check | None = None) -> None:
        self._schema = schema
        self._check = check
        self._is_wrapped = schema.get("type") != "object"
        self._validator = build_validator(schema)

    @property
    def tool(self) -> JsonObject:
        """The tool as it is offered to the model."""
        return {
            "name": STRUCTURED_OUTPUT,
            "description": _DESCRIPTION,
            "input_schema": self._wrapped() if self._is_wrapped else self._schema,
        }

    def value(self, given: JsonObject) -> object:
        """The answer inside of the tool's input."""
        return given.get(_VALUE) if self._is_wrapped else given

    def fault(self, given: JsonObject) -> str | None:
        """What is wrong with the answer, for the model; None when it is valid."""
        if self._is_wrapped and _VALUE not in given:
            return f'the input must have the one property "{_VALUE}", which holds the answer'
        faults = [_in_words(error) for error in self._errors(given)]
        faults = faults or [f"at {place}: {words[:_LONGEST]}" for place, words in self._own(given)]
        more = len(faults) - _TOLD
        told = faults[:_TOLD] + ([f"and {more} more"] if more > 0 else [])
        return "; ".join(told) or None

    def fault_for_people(self, given: JsonObject) -> str:
        """Where the answer is wrong and by which rule, without a word of the answer."""
        if self._is_wrapped and _VALUE not in given:
            return "the answer is not there"
        faults = [f"{_place(error)} ({error.schema_path[-1]})" for error in self._errors(given)]
        faults = faults or [f"{place} (a rule of its type)" for place, _ in self._own(given)]
        return ", ".join(faults[:_TOLD])

    def _errors(self, given: JsonObject) -> list[jsonschema_rs.ValidationError]:
        return list(self._validator.iter_errors(self.value(given)))

    def _own(self, given: JsonObject) -> Sequence[tuple[str, str]]:
        return () if self._check is None else self._check(self.value(given))

    def _wrapped(self) -> JsonObject:
        """The API takes only objects as input; definitions are referred to from the root."""
        inner = {key: value for key, value in self._schema.items() if key not in _DEFINED}
        return {
            "type": "object",
            "properties": {_VALUE: inner},
            "required": [_VALUE],
            "additionalProperties": False,
            **{key: self._schema[key] for key in _DEFINED if key in self._schema},
        }


def _in_words(error: jsonschema_rs.ValidationError) -> str:
    return f"at {_place(error)}: {error.message[:_LONGEST]}"


def _place(error: jsonschema_rs.ValidationError) -> str:
    path = "".join(f"/{step}" for step in error.instance_path)
    return path or "the top"
