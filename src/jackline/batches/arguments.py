"""Check a model's arguments against what a tool accepts, and its paths against the working folder.

Rules: (1) an error names the field and the expected value, never the value that was sent; (2) a
schema holds only what a model needs; (3) symbolic links are followed before a path is judged, so
that none leads out; a refusal says where one may go and nothing about what is outside.
Not here: what the arguments do (shell.py, files.py, function_tool.py).
"""

from __future__ import annotations

from pathlib import Path
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
        found = "; ".join(_fault([*fault["loc"]], fault["type"], fault["msg"]) for fault in faults)
        fields = kind.model_fields.items()
        takes = ", ".join(f"`{field.alias or name}`" for name, field in fields)
        says = f"the arguments do not fit: {found}. It takes {takes or 'no arguments'}."
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


def inside(folder: Path, given: str) -> Path:
    """The path that was meant, resolved; ToolFailedError when it lies outside `folder`."""
    if "\0" in given:
        raise ToolFailedError("a path cannot hold a NUL character", ended_by="bad path")
    root = folder.resolve()
    try:
        meant = (root / given).resolve()
    except (OSError, RuntimeError):  # a circle of links, or a name that the system does not take
        raise ToolFailedError(
            f"{given!r} cannot be followed; check the path", ended_by="bad path"
        ) from None
    # A shell would have gone home; a folder named `~` is never what was meant.
    if given.startswith("~") or not meant.is_relative_to(root):
        raise ToolFailedError(
            f"{given!r} is outside the working folder; give a path inside it, such as '.'",
            ended_by="outside the folder",
        )
    return meant


def shown(folder: Path, path: Path) -> str:
    """A path inside the folder as a person or model names it."""
    return path.relative_to(folder.resolve()).as_posix()
