"""Say whether OpenAI's strict answers can follow a schema, and write it as they want it.

Laws: (1) pure; (2) what the strict form accepts, the schema accepts too: nothing is loosened; (3) a
schema that cannot be written so is not bent: it is asked for in words, and validated all the same.
Not here: validating answers (messages/structured.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from jackline.agents.task import JsonObject

# What strict answers know of JSON Schema; of the rest only annotations may be left out.
_KNOWN = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf"}
    | {"$ref", "$defs", "description", "title", "pattern", "format", "multipleOf"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"}
)
_ANNOTATIONS = frozenset({"default", "examples", "$schema", "$id", "$comment", "deprecated"})
_MAPS = frozenset({"properties", "$defs"})


def strict_schema(schema: JsonObject) -> JsonObject | None:
    """The schema in the strict form; None when it has none."""
    try:
        return _strict(schema)
    except _NotStrictError:
        return None


class _NotStrictError(Exception):
    pass


def _strict(schema: Mapping[str, object]) -> JsonObject:
    written: JsonObject = {}
    for key, value in schema.items():
        if key in _ANNOTATIONS:
            continue
        if key not in _KNOWN:
            raise _NotStrictError
        written[key] = _inner(key, value)
    if written.get("type") == "object" or "properties" in written:
        properties = written.get("properties")
        named = set(properties) if isinstance(properties, dict) else set()
        required = written.get("required")
        if not isinstance(required, list) or set(required) != named:
            raise _NotStrictError
        if written.setdefault("additionalProperties", False) is not False:
            raise _NotStrictError
    return written


def _inner(key: str, value: object) -> object:
    if key in _MAPS:
        given = value if isinstance(value, dict) else {}
        return {name: _subschema(each) for name, each in given.items()}
    if key == "items":
        return _subschema(value)
    if key == "anyOf":
        return [_subschema(each) for each in value] if isinstance(value, list) else value
    return value


def _subschema(value: object) -> JsonObject:
    if not isinstance(value, dict) or not value:
        # `true`, or an empty schema: anything goes, which strict answers do not know.
        raise _NotStrictError
    return _strict(value)
