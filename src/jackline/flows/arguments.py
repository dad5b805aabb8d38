"""Turn a flow's arguments into JSON and back, checked against its annotations.

Laws: (1) a flow is called with what was decoded from the bytes that are kept, the first time too;
(2) every fault is named with its parameter; (3) unknown and missing names are said all at once.
Not here: words on a command line (cli/), results (values.py).
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from jackline.errors import BadArgumentError
from jackline.flows.values import Shape, UnfitValueError

RESERVED = frozenset({"settings", "host", "listener"})
"""Names that `jackline.run(…)` needs itself."""


def check_signature(function: Callable[..., object]) -> None:
    """UsageError when a flow's parameters cannot be kept by name."""
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise BadArgumentError(
                f"The flow {function.__name__} takes *{name}, which cannot be kept by name.",
                next="Take a list or a dict as one parameter.",
            )
        if parameter.kind is parameter.POSITIONAL_ONLY or name in RESERVED:
            raise BadArgumentError(
                f"The flow {function.__name__} cannot have a parameter {name} like this.",
                next="Name it otherwise, and let it be given by name.",
            )


def encode_arguments(
    function: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> bytes:
    """The arguments of a Python call as a JSON object."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs).arguments
    except TypeError as error:
        raise BadArgumentError(
            f"{function.__name__}() cannot be called like this: {error}.",
            next=f"Its parameters are {inspect.signature(function)}.",
        ) from None
    hints = _hints(function)
    written: dict[str, object] = {}
    for name, value in bound.items():
        try:
            written[name] = json.loads(Shape(hints.get(name)).encode(value))
        except UnfitValueError as error:
            raise BadArgumentError(
                f"The argument {name} of {function.__name__}() cannot be kept: {error.message}",
                next="Give what the annotation says, or annotate it.",
            ) from error
    return json.dumps(written, ensure_ascii=False).encode("utf-8", "surrogatepass")


def decode_arguments(function: Callable[..., object], data: bytes) -> dict[str, Any]:
    """The keyword arguments that were kept, checked against the function as it is now."""
    given = json.loads(data)
    if not isinstance(given, dict):
        raise BadArgumentError("A flow's arguments are a JSON object.", next='Write {"name": …}.')
    parameters = inspect.signature(function).parameters
    unknown = [name for name in given if name not in parameters]
    missing = [name for name, p in parameters.items() if p.default is p.empty and name not in given]
    if unknown or missing:
        told = [f"unknown: {', '.join(unknown)}"] * bool(unknown)
        told += [f"missing: {', '.join(missing)}"] * bool(missing)
        raise BadArgumentError(
            f"These arguments do not fit {function.__name__}(): {'; '.join(told)}.",
            next=f"Its parameters are {inspect.signature(function)}.",
        )
    hints = _hints(function)
    return {name: _decoded(function, name, value, hints.get(name)) for name, value in given.items()}


def arguments_from_words(function: Callable[..., object], words: Mapping[str, str]) -> bytes:
    """Arguments written as words (`--key value`): JSON where it is meant, else text."""
    hints, given = _hints(function), {}
    for name, word in words.items():
        given[name] = word if hints.get(name) is str else _read_word(word)
    data = json.dumps(given, ensure_ascii=False).encode("utf-8", "surrogatepass")
    decode_arguments(function, data)
    return data


def _decoded(function: Callable[..., object], name: str, value: object, hint: object) -> object:
    try:
        return Shape(hint).decode(json.dumps(value).encode())
    except UnfitValueError as error:
        raise BadArgumentError(
            f"The argument {name} of {function.__name__}() does not fit: {error.message}",
            next=f"It is annotated {getattr(hint, '__name__', hint)}.",
        ) from error


def _read_word(word: str) -> object:
    try:
        return json.loads(word)
    except ValueError:
        return word


def _hints(function: Callable[..., object]) -> dict[str, object]:
    try:
        hints: dict[str, object] = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise BadArgumentError(
            f"An annotation of {function.__name__}() names something unknown: {error}.",
            next="Import the name at the top of the file, not only for type checking.",
        ) from error
    # `None` as a hint means nothing was said; the type of None says it.
    return {name: type(None) if hint is None else hint for name, hint in hints.items()}
