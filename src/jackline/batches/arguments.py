"""Check what a model sent against what a tool takes, and say clearly what does not fit.

Laws: (1) an error names the field and what was expected, never what was sent; (2) a schema holds
only what a model needs to read.
Not here: what the arguments do (shell.py, files.py, functions.py).
"""

from __future__ import annotations

from typing import TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from jackline.batches.tool import JsonObject, ToolFailedError


class Arguments(BaseModel):
    """What a ready-made tool takes; unknown names are errors, since a typo would be ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


A = TypeVar("A", bound=BaseModel)


def checked(kind: type[A], arguments: JsonObject) -> A:
    """The arguments as a value; ToolFailedError with every fault when they do not fit."""
    try:
        return kind.model_validate(arguments)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        told = "; ".join(_fault([*fault["loc"]], fault["type"], fault["msg"]) for fault in faults)
        fields = kind.model_fields.items()
        takes = ", ".join(f"`{field.alias or name}`" for name, field in fields)
        says = f"the arguments do not fit: {told}. It takes {takes or 'no arguments'}."
        raise ToolFailedError(says, ended_by="bad arguments") from None


def _fault(place: list[int | str], kind: str, message: str) -> str:
    name = ".".join(str(part) for part in place)
    if kind == "missing":
        return f"`{name}` is missing"
    if kind == "extra_forbidden":
        return f"`{name}` is not known"
    words = message.removeprefix("Value error, ")
    return f"`{name}`: {words}" if name else words


def schema_of(kind: type[BaseModel]) -> JsonObject:
    """The JSON Schema of the arguments, without the titles and words that are not for a model."""
    schema = cast(JsonObject, _without_titles(kind.model_json_schema(by_alias=True)))
    schema.pop("description", None)
    return schema


def _without_titles(node: object) -> object:
    if isinstance(node, list):
        return [_without_titles(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _by_name(value) if key in ("properties", "$defs") else _without_titles(value)
        for key, value in node.items()
        if not (key == "title" and isinstance(value, str))
    }


def _by_name(named: object) -> object:
    # Below `properties` the keys are the user's own names, and one of them may be "title".
    if not isinstance(named, dict):
        return named
    return {name: _without_titles(value) for name, value in named.items()}
