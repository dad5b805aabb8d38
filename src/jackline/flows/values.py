"""Turn a flow's results and arguments into JSON and back, checked against their annotations.

Rules: (1) whatever a flow sees was decoded from the bytes that are saved, the first time too; (2) a
value that does not survive the way to JSON and back is refused at once, not at a replay; (3) every
fault names its parameter, what it takes and how to write it, and never repeats the value, which may
be a prompt: the words of validators, which may, are private; (4) unknown and missing names are
reported all at once; (5) pydantic is imported when a type is first needed.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Container, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_type_hints

from jackline.agents.structured_answer import property_names
from jackline.errors import BadArgumentError, UsageError
from jackline.user_errors import error_texts

if TYPE_CHECKING:
    from pydantic import TypeAdapter


JsonObject = dict[str, object]


class UnfitValueError(UsageError):
    """A result is not what was promised, or cannot be saved."""


class Shape:
    """What a result looks like: a type, a JSON Schema, or anything (`None`)."""

    def __init__(self, shape: object) -> None:
        self._schema: JsonObject | None = None
        self._adapter: TypeAdapter[Any] | None = None
        self._shape = shape
        if isinstance(shape, Mapping):
            self._schema = {str(key): value for key, value in shape.items()}
            try:
                json.dumps(self._schema, allow_nan=False)
            except (TypeError, ValueError) as error:
                raise BadArgumentError(
                    "This JSON Schema is no plain JSON.",
                    hint="Pass a dict of plain data.",
                    private=error_texts(error).private,
                ) from error
        elif inspect.isroutine(shape):
            raise _no_shape(shape)
        elif shape is not None:
            try:
                self._adapter = _adapter(shape)
            except TypeError:  # a type that cannot be hashed, such as Annotated with a list inside
                self._adapter = _adapter.__wrapped__(shape)

    @property
    def json_schema(self) -> JsonObject | None:
        """The shape as JSON Schema; None for anything."""
        if self._adapter is None:
            return self._schema
        from pydantic import PydanticUserError  # noqa: PLC0415

        try:
            return self._adapter.json_schema()
        except PydanticUserError as error:
            raise _no_shape(self._shape) from error

    def encode(self, value: object) -> bytes:
        """A Python value as JSON; UnfitValueError when it does not fit or cannot be saved."""
        if self._adapter is None:
            return plain_json(value)
        try:
            return self._adapter.dump_json(value, warnings="error")
        except Exception as error:
            raise UnfitValueError(
                f"The result, a {type(value).__name__}, is not what was promised.",
                hint="Return what the annotation says, or change the annotation.",
                private=error_texts(error).private,
            ) from error

    def faults(self, value: object) -> list[tuple[str, str]]:
        """Where plain data does not fit the type, and why, in its validators' words."""
        if self._adapter is None:
            return []
        from pydantic import ValidationError  # noqa: PLC0415

        try:
            self._adapter.validate_json(plain_json(value))
        except ValidationError as error:
            return [(fault.place, fault.words) for fault in _faults(error)]
        return []

    @property
    def in_words(self) -> str:
        """What it takes: "a list of text", "one of low, high", "a whole number or null"."""
        return self._expected(self.json_schema, _DEEPEST)

    def as_option(self, name: str) -> str:
        """How such a parameter is written on a command line: `--modules '["…"]'`."""
        example = self._example(self.json_schema, _DEEPEST)
        if isinstance(example, str):
            return f'--{name} "{example}"'
        text = json.dumps(example, ensure_ascii=False)
        return f"--{name} '{text}'" if isinstance(example, list | dict) else f"--{name} {text}"

    def decode(self, data: bytes) -> object:
        """The value from its JSON; UnfitValueError when it is none of this shape."""
        if self._adapter is None:
            return json.loads(data)
        from pydantic import ValidationError  # noqa: PLC0415

        try:
            return self._adapter.validate_json(data)
        except ValidationError as error:
            found = _faults(error)
            known = set(property_names(self.json_schema))
            faults = "; ".join(fault.brief(known) for fault in found[:_MOST_FAULTS])
            more = f" and {len(found) - _MOST_FAULTS} more" if len(found) > _MOST_FAULTS else ""
            raise UnfitValueError(
                f"The result does not fit {error.title}: {faults}{more}.",
                private="; ".join(f"{each.place}: {each.words}" for each in found[:_MOST_FAULTS]),
            ) from error
        except Exception as error:
            brief, private = error_texts(error)
            says = f"The result cannot be read by the code of its type: {brief}."
            raise UnfitValueError(says, private=private) from error

    def _resolved(self, schema: Any) -> Mapping[str, Any]:
        if isinstance(schema, dict) and "$ref" in schema:
            known = (self.json_schema or {}).get("$defs")
            name = str(schema["$ref"]).rpartition("/")[2]
            schema = known.get(name) if isinstance(known, dict) else None
        return schema if isinstance(schema, dict) else {}

    def _expected(self, schema: Any, deep: int) -> str:
        schema = self._resolved(schema)
        if "enum" in schema or "const" in schema:
            values = schema.get("enum") or [schema.get("const")]
            return f"one of {', '.join(map(str, values))}" if len(values) > 1 else str(values[0])
        options = schema.get("anyOf") or schema.get("oneOf")
        if options and deep:
            return " or ".join(dict.fromkeys(self._expected(each, deep - 1) for each in options))
        kind = schema.get("type")
        words = _KINDS.get(kind, "anything") if isinstance(kind, str) else "anything"
        if kind == "array" and deep and schema.get("items"):
            inner = self._expected(schema["items"], deep - 1)
            return f"{words} of {inner.removeprefix('a ').removeprefix('an ')}"
        if kind == "object" and schema.get("properties"):
            return f"{words} with {', '.join(schema['properties'])}"
        return words

    def _example(self, schema: Any, deep: int) -> Any:
        schema = self._resolved(schema)
        if "enum" in schema or "const" in schema:
            return (schema.get("enum") or [schema.get("const")])[0]
        options = schema.get("anyOf") or schema.get("oneOf")
        if options:
            return self._example(options[0], deep - 1) if deep else "…"
        kind = schema.get("type")
        if kind == "array":
            return [self._example(schema.get("items") or {}, deep - 1)] if deep else []
        if kind == "object":
            inside = schema.get("properties") or {}
            needed = schema.get("required") or list(inside)[:1]
            return {name: self._example(inside[name], deep - 1) for name in needed} if deep else {}
        return _EXAMPLES.get(kind, "…") if isinstance(kind, str) else "…"


def plain_json(value: object) -> bytes:
    """Plain data as JSON; UnfitValueError for anything that would come back as something else."""
    try:
        return json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_refuse
        ).encode("utf-8", "surrogatepass")
    except Exception as error:
        holds = f"a {error}" if isinstance(error, _NoJsonError) else "what JSON cannot hold"
        raise UnfitValueError(
            f"The result cannot be saved as JSON: it holds {holds}.",
            hint="Annotate what the function returns, or return text, numbers, lists and dicts.",
            private=error_texts(error).private,
        ) from error


class _NoJsonError(TypeError):
    """Its text is the name of a type that JSON does not have."""


def _refuse(value: object) -> object:
    raise _NoJsonError(type(value).__name__)


def returned_type(function: Callable[..., object]) -> object:
    """A function's return annotation, resolved; None when there is none, NoneType for `-> None`."""
    has_one = "return" in getattr(function, "__annotations__", {})
    return _hints(function)["return"] if has_one else None


@lru_cache(maxsize=512)
def _adapter(shape: Any) -> TypeAdapter[Any]:
    from pydantic import PydanticSchemaGenerationError, PydanticUserError  # noqa: PLC0415
    from pydantic import TypeAdapter as Adapter  # noqa: PLC0415

    try:
        return Adapter(shape)
    except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
        raise _no_shape(shape) from error


def _no_shape(shape: object) -> BadArgumentError:
    return BadArgumentError(
        f"{getattr(shape, '__name__', shape)!r} is no shape that a result can have.",
        hint="Pass a pydantic model, a dataclass, a TypedDict, a list of them, or JSON Schema.",
    )


class _Fault(NamedTuple):
    """One fault that a validator has found; `words` are the validator's and may quote the value."""

    steps: tuple[int | str, ...]
    words: str
    kind: str
    quotes: bool

    @property
    def place(self) -> str:
        """Where it is; keys of a mapping are part of the value."""
        return ".".join(map(str, self.steps)) or "it"

    def brief(self, known: Container[str]) -> str:
        """Where it is, by names that the type knows, and what is wrong, without the value."""
        steps = [str(s) if isinstance(s, int) or s in known else "…" for s in self.steps]
        words = f"it breaks a rule ({self.kind})" if self.quotes else self.words
        return f"{'.'.join(steps) or 'it'}: {words}"


# What pydantic's own words repeat of a value, or of what code of users said.
_QUOTING = ("error", "tag")


def _faults(error: Any) -> list[_Fault]:
    from pydantic_core import core_schema  # noqa: PLC0415

    built_in = get_args(core_schema.ErrorType)
    found = []
    for fault in error.errors(include_input=False, include_url=False):
        kind, context = fault["type"], fault.get("ctx", {})
        is_own = kind not in built_in
        quotes = is_own or any(name in context for name in _QUOTING)
        shown = "a rule of its type" if is_own else kind
        found.append(_Fault(fault["loc"], fault["msg"], shown, quotes))
    return found


_MOST_FAULTS = 3
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


def _kind_of(value: object) -> str:
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


def _parameters(function: Callable[..., object]) -> str:
    """The parameters as they are in the file: `topic: str = 'knots', readers: int`."""
    words = []
    for name, parameter in inspect.signature(function).parameters.items():
        hint, default = parameter.annotation, parameter.default
        text = hint if isinstance(hint, str) else inspect.formatannotation(hint)
        words.append(name if hint is parameter.empty else f"{name}: {text}")
        if default is not parameter.empty:
            words[-1] += f" = {default!r}"
    return ", ".join(words) or "nothing"


def encode_arguments(
    function: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> bytes:
    """The arguments of a Python call as a JSON object."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs).arguments
    except TypeError as error:
        raise BadArgumentError(
            f"{function.__name__}() cannot be called like this: {error}.",
            hint=f"It takes: {_parameters(function)}.",
        ) from None
    hints = _hints(function)
    written: dict[str, object] = {}
    for name, value in bound.items():
        shape = Shape(hints.get(name))
        try:
            written[name] = json.loads(shape.encode(value))
        except UnfitValueError as error:
            takes = shape.in_words
            says = f"takes {takes}, and {type(value).__name__} was given"
            if takes == "anything":
                says = f"cannot be saved: {type(value).__name__} cannot be written as JSON"
            raise BadArgumentError(
                f"The argument {name} of {function.__name__}() {says}.",
                hint="Pass what the annotation says, or annotate it.",
            ) from error
    return json.dumps(written, ensure_ascii=False).encode("utf-8", "surrogatepass")


def decode_arguments(function: Callable[..., object], data: bytes) -> dict[str, Any]:
    """The keyword arguments that were saved, checked against the function as it is now."""
    arguments = json.loads(data)
    if not isinstance(arguments, dict):
        raise BadArgumentError(
            f"A flow's arguments are a JSON object, and {_kind_of(arguments)} was given.",
            hint='Write --name VALUE for each, or {"name": …} for all.',
        )
    hints = _hints(function)
    _check_names(function, arguments, hints)
    decoded = {}
    for name, value in arguments.items():
        shape = Shape(hints.get(name))
        try:
            decoded[name] = shape.decode(json.dumps(value).encode())
        except UnfitValueError as error:
            # Where it is wrong inside; the whole is named by the sentence itself.
            inside = error.message.partition(": ")[2]
            where = f" ({inside[:-1]})" if inside and not inside.startswith("it: ") else ""
            raise BadArgumentError(
                f"The argument {name} of {function.__name__}() takes {shape.in_words}, and "
                f"{_kind_of(value)} was given{where}.",
                hint=f"Write it like this: {shape.as_option(name)}",
                private=error.private,
            ) from error
    return decoded


def _check_names(
    function: Callable[..., object], arguments: Mapping[str, object], hints: Mapping[str, object]
) -> None:
    known = inspect.signature(function).parameters
    unknown = [name for name in arguments if name not in known]
    missing = [name for name, p in known.items() if p.default is p.empty and name not in arguments]
    if not unknown and not missing:
        return
    faults = []
    if unknown:
        close = [(name, get_close_matches(name, known, n=1)) for name in unknown]
        names = [f"{name} (did you mean {near[0]}?)" if near else name for name, near in close]
        faults.append(f"has no parameter {', '.join(names)}")
    takes = f"It takes: {_parameters(function)}."
    if missing:
        faults.append(f"needs {', '.join(missing)}")
        words = " ".join(Shape(hints.get(name)).as_option(name) for name in missing)
        takes = f"Write {words} (it takes: {_parameters(function)})."
    raise BadArgumentError(f"{function.__name__}() {', and '.join(faults)}.", hint=takes)


def parse_arguments(function: Callable[..., object], words: Mapping[str, str]) -> bytes:
    """Arguments written as words (`--key value`): JSON where that fits, else text."""
    hints = _hints(function)
    arguments: dict[str, object] = {}
    for name, word in words.items():
        arguments[name] = word
        hint = hints.get(name)
        if hint is str:
            continue
        try:
            value = json.loads(word)
        except ValueError:
            continue
        shape = Shape(hint)
        # Unless only its text fits.
        if not shape.faults(value) or shape.faults(word):
            arguments[name] = value
    data = json.dumps(arguments, ensure_ascii=False).encode("utf-8", "surrogatepass")
    decode_arguments(function, data)
    return data


def _hints(function: Callable[..., object]) -> dict[str, object]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise BadArgumentError(
            f"An annotation of {function.__name__}() names something unknown: {error.name}.",
            hint="Import the name at the top of the file, not only for type checking.",
        ) from error
