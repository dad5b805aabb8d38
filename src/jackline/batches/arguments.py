"""Check a model's arguments against what a tool accepts, and its paths against the working folder.

Rules: (1) an error names the field and the expected value, never the value that was sent; (2) a
schema holds only what a model needs; (3) symbolic links are followed before a path is judged, so
that none leads out; a refusal says where one may go and nothing about what is outside; (4) a path
is followed in a thread, and one that is too long for the system is not followed at all; (5) many
faults are counted and not described.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from jackline.batches.tool import JsonObject, ToolFailedError
from jackline.outside_names import LONGEST_PATH, is_long_path

_MOST_DESCRIBED = 20


class Arguments(BaseModel):
    """What a tool takes; unknown names are errors, since a typo would be ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def checked(cls, arguments: JsonObject) -> Self:
        """The arguments as a value; ToolFailedError with every fault when they do not fit."""
        try:
            return cls.model_validate(arguments)
        except ValidationError as error:
            faults = []
            many = error.error_count()
            if many > _MOST_DESCRIBED:
                # The library describes all of them or none.
                faults.append(f"{many:,} of them")
            for fault in (
                error.errors(include_url=False, include_context=False, include_input=False)
                if many <= _MOST_DESCRIBED
                else ()
            ):
                name = ".".join(str(part) for part in fault["loc"])
                words = fault["msg"].removeprefix("Value error, ")
                match fault["type"]:
                    case "missing":
                        faults.append(f"`{name}` is missing")
                    case "extra_forbidden":
                        faults.append(f"`{name}` is not known")
                    case _:
                        faults.append(f"`{name}`: {words}" if name else words)
            fields = cls.model_fields.items()
            known = ", ".join(f"`{field.alias or name}`" for name, field in fields)
            raise ToolFailedError(
                f"the arguments do not fit: {'; '.join(faults)}."
                f" It takes {known or 'no arguments'}.",
                ended_by="bad arguments",
            ) from None

    @classmethod
    def json_schema(cls) -> JsonObject:
        """The JSON Schema, without the titles and words that are not for a model."""
        schema = cast(JsonObject, _without_titles(cls.model_json_schema(by_alias=True)))
        schema.pop("description", None)
        return schema


def _without_titles(node: object, *, named: bool = False) -> object:
    """The same without titles; `named`: the keys are the user's own names, perhaps "title"."""
    if isinstance(node, list):
        return [_without_titles(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _without_titles(value, named=not named and key in ("properties", "$defs"))
        for key, value in node.items()
        if named or not (key == "title" and isinstance(value, str))
    }


def inside(folder: Path, given: str) -> Path:
    """The path that was meant, resolved; ToolFailedError when it lies outside `folder`.

    It looks at the disk: to be called in a thread.
    """
    if is_long_path(given):
        raise ToolFailedError(f"a path has at most {LONGEST_PATH:,} bytes", ended_by="bad path")
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
