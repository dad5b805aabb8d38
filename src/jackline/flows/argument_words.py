"""Say in words what a flow's parameters take, and how to write them on a command line.

Laws: (1) everything follows from the JSON Schema of the annotation, so that models, dataclasses and
unions are told alike; (2) no value that was given is repeated: it may be a prompt.
Not here: checking (arguments.py).
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from jackline.flows.values import JsonObject

_KINDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
}
_EXAMPLES = {"string": "…", "integer": 3, "number": 0.5, "boolean": True, "null": None}
_DEEPEST = 3


def expected(schema: JsonObject | None) -> str:
    """What a parameter takes: "a list of text", "one of low, high", "a whole number or null"."""
    return _expected(schema or {}, _definitions(schema), _DEEPEST)


def kind_of(value: object) -> str:
    """What kind of JSON was given."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list() | tuple():
            return "a list"
        case _:
            return "an object" if isinstance(value, dict) else f"a {type(value).__name__}"


def as_word(name: str, schema: JsonObject | None) -> str:
    """How a parameter is written on a command line: `--modules '["…"]'`."""
    example = _example(schema or {}, _definitions(schema), _DEEPEST)
    if isinstance(example, str):
        return f'--{name} "{example}"'
    told = json.dumps(example, ensure_ascii=False)
    return f"--{name} '{told}'" if isinstance(example, list | dict) else f"--{name} {told}"


def signature_words(function: Callable[..., object]) -> str:
    """The parameters as they stand in the file: `topic: str = 'knots', readers: int`."""
    return ", ".join(_parameter(each) for each in inspect.signature(function).parameters.values())


def nearest(name: str, known: Mapping[str, object]) -> str:
    """ " (did you mean --modules?)", or nothing."""
    close = get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _parameter(parameter: inspect.Parameter) -> str:
    hint, default = parameter.annotation, parameter.default
    words = parameter.name
    if hint is not parameter.empty:
        words += f": {hint if isinstance(hint, str) else inspect.formatannotation(hint)}"
    return words if default is parameter.empty else f"{words} = {default!r}"


def _definitions(schema: JsonObject | None) -> Mapping[str, Any]:
    found = (schema or {}).get("$defs")
    return found if isinstance(found, dict) else {}


def _resolved(schema: Any, known: Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(schema, dict) and "$ref" in schema:
        schema = known.get(str(schema["$ref"]).rpartition("/")[2])
    return schema if isinstance(schema, dict) else {}


def _expected(schema: Any, known: Mapping[str, Any], deep: int) -> str:
    schema = _resolved(schema, known)
    if "enum" in schema or "const" in schema:
        values = schema.get("enum") or [schema.get("const")]
        return f"one of {', '.join(map(str, values))}" if len(values) > 1 else str(values[0])
    options = schema.get("anyOf") or schema.get("oneOf")
    if options and deep:
        return " or ".join(dict.fromkeys(_expected(each, known, deep - 1) for each in options))
    kind = schema.get("type")
    words = _KINDS.get(kind, "anything") if isinstance(kind, str) else "anything"
    if kind == "array" and deep and schema.get("items"):
        inner = _expected(schema["items"], known, deep - 1)
        return f"{words} of {inner.removeprefix('a ').removeprefix('an ')}"
    if kind == "object" and schema.get("properties"):
        return f"{words} with {', '.join(schema['properties'])}"
    return words


def _example(schema: Any, known: Mapping[str, Any], deep: int) -> Any:
    schema = _resolved(schema, known)
    if "enum" in schema or "const" in schema:
        return (schema.get("enum") or [schema.get("const")])[0]
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return _example(options[0], known, deep - 1) if deep else "…"
    kind = schema.get("type")
    if kind == "array":
        return [_example(schema.get("items") or {}, known, deep - 1)] if deep else []
    if kind == "object":
        inside = schema.get("properties") or {}
        needed = schema.get("required") or list(inside)[:1]
        return {name: _example(inside[name], known, deep - 1) for name in needed} if deep else {}
    return _EXAMPLES.get(kind, "…") if isinstance(kind, str) else "…"
