"""Turn a flow's arguments into JSON and back, checked against its annotations.

Laws: (1) a flow is called with what was decoded from the bytes that are kept, the first time too;
(2) every fault is named with its parameter, what kind was given, what it takes and how to write it;
(3) unknown and missing names are said all at once.
Not here: the words for that (argument_words.py), words on a command line (cli/), results
(values.py).
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from jackline.errors import BadArgumentError
from jackline.flows.argument_words import as_word, expected, kind_of, nearest, signature_words
from jackline.flows.values import Shape, UnfitValueError

RESERVED = frozenset({"settings", "host", "listener"})
"""Names that `jackline.run(…)` needs itself."""
_MOST_FAULTS = 3


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
            next=f"It takes: {signature_words(function) or 'nothing'}.",
        ) from None
    hints = _hints(function)
    written: dict[str, object] = {}
    for name, value in bound.items():
        shape = Shape(hints.get(name))
        try:
            written[name] = json.loads(shape.encode(value))
        except UnfitValueError as error:
            takes = expected(shape.json_schema)
            says = f"takes {takes}, and {type(value).__name__} was given"
            if takes == "anything":
                says = f"cannot be kept: {type(value).__name__} cannot be written as JSON"
            raise BadArgumentError(
                f"The argument {name} of {function.__name__}() {says}.",
                next="Give what the annotation says, or annotate it.",
            ) from error
    return json.dumps(written, ensure_ascii=False).encode("utf-8", "surrogatepass")


def decode_arguments(function: Callable[..., object], data: bytes) -> dict[str, Any]:
    """The keyword arguments that were kept, checked against the function as it is now."""
    given = json.loads(data)
    if not isinstance(given, dict):
        raise BadArgumentError(
            f"A flow's arguments are a JSON object, and {kind_of(given)} was given.",
            next='Write --name VALUE for each, or {"name": …} for all.',
        )
    _check_names(function, given)
    hints = _hints(function)
    return {name: _decoded(function, name, value, hints.get(name)) for name, value in given.items()}


def _check_names(function: Callable[..., object], given: Mapping[str, object]) -> None:
    parameters = inspect.signature(function).parameters
    unknown = [name for name in given if name not in parameters]
    missing = [name for name, p in parameters.items() if p.default is p.empty and name not in given]
    if not unknown and not missing:
        return
    told = []
    if unknown:
        names = [f"{name}{nearest(name, parameters)}" for name in unknown]
        told.append(f"has no parameter {', '.join(names)}")
    if missing:
        told.append(f"needs {', '.join(missing)}")
    takes = f"It takes: {signature_words(function) or 'nothing'}."
    if missing:
        hints = _hints(function)
        words = " ".join(as_word(name, Shape(hints.get(name)).json_schema) for name in missing)
        takes = f"Write {words} (it takes: {signature_words(function)})."
    raise BadArgumentError(f"{function.__name__}() {', and '.join(told)}.", next=takes)


def arguments_from_words(function: Callable[..., object], words: Mapping[str, str]) -> bytes:
    """Arguments written as words (`--key value`): JSON where it is meant, else text."""
    hints = _hints(function)
    given = {name: _read_word(word, hints.get(name)) for name, word in words.items()}
    data = json.dumps(given, ensure_ascii=False).encode("utf-8", "surrogatepass")
    decode_arguments(function, data)
    return data


def _decoded(function: Callable[..., object], name: str, value: object, hint: object) -> object:
    shape = Shape(hint)
    try:
        return shape.decode(json.dumps(value).encode())
    except UnfitValueError as error:
        schema, faults = shape.json_schema, shape.faults(value)
        places = [f"{place}: {words}" for place, words in faults if place != "it"]
        where = f" ({'; '.join(places[:_MOST_FAULTS])})" if places else ""
        raise BadArgumentError(
            f"The argument {name} of {function.__name__}() takes {expected(schema)}, and "
            f"{kind_of(value)} was given{where}.",
            next=f"Write it like this: {as_word(name, schema)}",
        ) from error


def _read_word(word: str, hint: object) -> object:
    """The word as JSON, unless only its text fits."""
    if hint is str:
        return word
    try:
        value = json.loads(word)
    except ValueError:
        return word
    shape = Shape(hint)
    return word if shape.faults(value) and not shape.faults(word) else value


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
