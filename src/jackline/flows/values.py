"""Turn results into JSON and back, so that a first run sees exactly what a replay would see.

Laws: (1) whatever a flow sees was decoded from the bytes that are kept; (2) a value that does not
survive the way there and back is refused when it is first given, not at a replay.
Not here: keys (keys.py), asking a model for such a value (agents/).
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_type_hints

from jackline.errors import BadArgumentError, UsageError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

JsonObject = dict[str, object]


class UnfitValueError(UsageError):
    """A result is not what was promised, or cannot be kept."""


class Shape:
    """What a result looks like: a type, a JSON Schema, or nothing said (`None`)."""

    def __init__(self, given: object) -> None:
        self._schema: JsonObject | None = None
        self._adapter: TypeAdapter[Any] | None = None
        self._given = given
        if isinstance(given, Mapping):
            self._schema = _own_schema(given)
        elif inspect.isroutine(given):
            raise _no_shape(given)
        elif given is not None:
            self._adapter = _adapter(given)

    @property
    def json_schema(self) -> JsonObject | None:
        """The shape as JSON Schema; None when nothing is said."""
        if self._adapter is None:
            return self._schema
        from pydantic import PydanticUserError  # noqa: PLC0415

        try:
            return self._adapter.json_schema()
        except PydanticUserError as error:
            raise _no_shape(self._given) from error

    def encode(self, value: object) -> bytes:
        """A Python value as JSON; UnfitValueError when it does not fit or cannot be kept."""
        if self._adapter is None:
            return plain_json(value)
        from pydantic_core import PydanticSerializationError  # noqa: PLC0415

        try:
            return self._adapter.dump_json(value, warnings="error")
        except (PydanticSerializationError, ValueError) as error:
            raise UnfitValueError(
                f"The result, a {type(value).__name__}, is not what was promised.",
                next="Return what the annotation says, or change the annotation.",
            ) from error

    def faults(self, value: object) -> list[tuple[str, str]]:
        """Where plain data does not fit the type, and why, in its validators' words."""
        if self._adapter is None:
            return []
        from pydantic import ValidationError  # noqa: PLC0415

        try:
            self._adapter.validate_json(plain_json(value))
        except ValidationError as error:
            return _places(error)
        return []

    def decode(self, data: bytes) -> object:
        """The value from its JSON; UnfitValueError when it is none of this shape."""
        if self._adapter is None:
            return json.loads(data)
        from pydantic import ValidationError  # noqa: PLC0415

        try:
            return self._adapter.validate_json(data)
        except ValidationError as error:
            raise UnfitValueError(
                f"The result does not fit {error.title}: {_faults(error)}."
            ) from error


def plain_json(value: object) -> bytes:
    """Plain data as JSON; UnfitValueError for anything that would come back as something else."""
    try:
        return json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_no_data
        ).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:
        raise UnfitValueError(
            f"The result cannot be kept as JSON: {error}.",
            next="Annotate what the function returns, or return text, numbers, lists and dicts.",
        ) from error


def returned_shape(function: Callable[..., object]) -> Shape:
    """The shape that a function's return annotation promises."""
    return Shape(returned_type(function))


def returned_type(function: Callable[..., object]) -> object:
    """A function's return annotation, resolved; None when there is none, NoneType for `-> None`."""
    if "return" not in getattr(function, "__annotations__", {}):
        return None
    try:
        return get_type_hints(function, include_extras=True)["return"]
    except NameError as error:
        raise BadArgumentError(
            f"The return annotation of {function.__name__}() names something unknown: {error}.",
            next="Import the name at the top of the file, not only for type checking.",
        ) from error


def _no_data(value: object) -> object:
    raise TypeError(f"it holds a {type(value).__name__}")


def _own_schema(given: Mapping[Any, Any]) -> JsonObject:
    schema = {str(key): value for key, value in given.items()}
    try:
        json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadArgumentError(
            f"This JSON Schema is no plain JSON: {error}.", next="Give a dict of plain data."
        ) from error
    return schema


def _adapter(given: object) -> TypeAdapter[Any]:
    try:
        return _cached_adapter(given)
    except TypeError:  # a type that cannot be hashed, such as Annotated with a list inside
        return _new_adapter(given)


@lru_cache(maxsize=512)
def _cached_adapter(given: object) -> TypeAdapter[Any]:
    return _new_adapter(given)


def _new_adapter(given: Any) -> TypeAdapter[Any]:
    from pydantic import PydanticSchemaGenerationError, PydanticUserError  # noqa: PLC0415
    from pydantic import TypeAdapter as Adapter  # noqa: PLC0415

    try:
        return Adapter(given)
    except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
        raise _no_shape(given) from error


def _no_shape(given: object) -> BadArgumentError:
    return BadArgumentError(
        f"{getattr(given, '__name__', given)!r} is no shape that a result can have.",
        next="Give a pydantic model, a dataclass, a TypedDict, a list of them, or JSON Schema.",
    )


def _faults(error: Any) -> str:
    found = _places(error)
    told = [f"{place}: {words}" for place, words in found[:3]]
    return "; ".join(told) + (f" and {len(found) - 3} more" if len(found) > 3 else "")


def _places(error: Any) -> list[tuple[str, str]]:
    # Where and what, never the value itself: that may be an answer.
    found = error.errors(include_input=False, include_context=False, include_url=False)
    return [(".".join(map(str, fault["loc"])) or "it", fault["msg"]) for fault in found]
