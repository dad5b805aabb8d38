"""The document that `jackline.toml` is, and the sentences for what is wrong in it.

Rules: (1) its models are made from the declarations of settings; (2) unknown keys and loose types
are faults, and all faults are reported at once, each with its place, its key, what is wrong, and
which key was probably intended; (3) no sentence quotes a value that could be a secret.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from enum import Enum
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    create_model,
)

from jackline.config.declaration import ROOT, SETTINGS, Declared, declared_in, names_beside
from jackline.config.field_types import (
    LONGEST,
    TEXT_CHECKS,
    check_headers,
    duration_text,
    read_duration,
    read_size,
    size_text,
)
from jackline.config.keys import Key, dotted, plain
from jackline.errors import BadConfigError
from jackline.outside_names import printable
from jackline.settings import Form, Setting

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_DURATION = {"type": ["string", "number"], "examples": ["15m", "2h30m", 90]}
_SIZE = {"type": ["string", "integer"], "examples": ["64MB", "512KB", 65536]}


class _Table(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)


def shown_value(key: Key, value: Any) -> object:
    """The value of this key as one would write it in a file."""
    one = SETTINGS.get(plain(key))
    return value if one is None else _shown(one.setting, value)


def _shown(setting: Setting, value: Any) -> object:
    if value is None or setting.form not in (Form.DURATION, Form.SIZE):
        return value
    return duration_text(value) if setting.form is Form.DURATION else size_text(value)


@cache
def _model(table: type) -> type[_Table]:
    about = inspect.getdoc(table) or ""
    return _made(table.__name__, " ".join(about.split("\n\n")[0].split()), declared_in(table))


def _made(name: str, about: str, declared: Mapping[str, Declared]) -> type[_Table]:
    fields: dict[str, Any] = {name: _field(one) for name, one in declared.items()}
    return create_model(name, __base__=_Table, __doc__=about, **fields)


def _field(one: Declared) -> tuple[Any, Any]:
    def finish(part: dict[str, Any]) -> None:
        part.pop("default", None)
        if one.default is not None and one.table is None:
            part["default"] = _shown(one.setting, one.default)

    # What was not written is never read from a document, so the default there does not count.
    info = Field(default=None, description=one.setting.doc or None, json_schema_extra=finish)
    return _type(one.kind, one.setting), info


def _type(kind: Any, setting: Setting) -> Any:
    """The type of a value in the document, with its checks."""
    inner = get_args(kind)
    if is_dataclass(kind):
        return _model(cast("type", kind))
    if get_origin(kind) is tuple:
        entries: Any = list[_type(inner[0], setting)]  # type: ignore[misc]
        return Annotated[entries, BeforeValidator(_listed)] if is_dataclass(inner[0]) else entries
    if setting.form is Form.HEADERS:
        return Annotated[dict[str, str], AfterValidator(check_headers)]
    if get_origin(kind) is Mapping:
        return dict[str, _type(inner[1], setting)]  # type: ignore[misc]
    if setting.choices:
        return Literal[setting.choices]
    return _number(kind, setting) if kind in (int, float) else _text(kind, setting)


def _number(kind: type, setting: Setting) -> Any:
    if setting.form is Form.DURATION:
        bounds = AfterValidator(partial(_between, setting))
        return Annotated[float, BeforeValidator(read_duration), bounds, WithJsonSchema(_DURATION)]
    limits = Field(ge=setting.least, le=setting.most, gt=setting.above, lt=setting.below)
    if setting.form is Form.SIZE:
        return Annotated[int, BeforeValidator(read_size), limits, WithJsonSchema(_SIZE)]
    return (
        Annotated[kind, limits, Field(allow_inf_nan=False)]
        if kind is float
        else Annotated[kind, limits]
    )


def _text(kind: Any, setting: Setting) -> Any:
    if setting.form in TEXT_CHECKS:
        return Annotated[str, Field(min_length=1), AfterValidator(TEXT_CHECKS[setting.form])]
    if kind is str:
        return Annotated[str, Field(min_length=1)]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return Literal[tuple(each.value for each in kind)]
    return kind  # bool, or a Literal


def _between(setting: Setting, seconds: float) -> float:
    low, high = setting.least or 0, LONGEST if setting.most is None else setting.most
    if not low <= seconds <= high:
        raise ValueError(f"must be from {duration_text(low)} to {duration_text(high)}")
    return seconds


def _listed(value: object) -> object:
    if isinstance(value, dict):
        raise ValueError("is a list: write [[upstream]] with two brackets")  # noqa: TRY004 -- pydantic turns only ValueError into a fault
    return value


Document = _made(
    "Document", "The whole of `jackline.toml`, or of `[tool.jackline]` in `pyproject.toml`.", ROOT
)


def leaves(value: Any, key: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Every key in these tables, with its value."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from leaves(one, (*key, name))
    elif key == ("upstream",):
        for place, one in enumerate(value):
            yield from leaves(one, (*key, place))
    else:
        yield key, value


_WANTED = {
    "string_type": "must be a text in quotes",
    "string_too_short": "must not be empty",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "list_type": "must be a list",
}
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "less_than_equal": ("le", "at most"),
    "greater_than": ("gt", "more than"),
    "less_than": ("lt", "less than"),
}


@dataclass(frozen=True, slots=True)
class ConfigFault:
    """One thing that is wrong. `where` is a file with its line, a variable or a flag."""

    where: str
    key: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.key + ': ' if self.key else ''}{self.what}"


def config_error(faults: Sequence[ConfigFault]) -> BadConfigError:
    """The error that lists all of them."""
    many = "a fault" if len(faults) == 1 else f"{len(faults)} faults"
    lines = tuple(str(fault) for fault in faults)
    return BadConfigError(
        "\n  ".join((f"the configuration has {many}:", *(printable(line) for line in lines))),
        hint="correct what is named, then run: jackline config check",
        faults=lines,
    )


def from_validation(
    errors: Iterable[ErrorDetails], where: Callable[[Key], str]
) -> tuple[ConfigFault, ...]:
    """What pydantic found, in our words; `where` finds the line of a key."""
    return tuple(
        ConfigFault(where(place), dotted(place), _what(error, place))
        for error in errors
        for place in (tuple(part for part in error["loc"] if part != "[key]"),)
    )


def unknown(name: str, known: Iterable[str]) -> str:
    """The sentence for a name that does not exist, with the one that was probably intended."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"there is no such key{f'; did you mean {close[0]}?' if close else ''}"


def _what(error: ErrorDetails, place: Key) -> str:
    kind = error["type"]
    context: dict[str, Any] = error.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(place)
    if kind == "value_error":
        return error["msg"].removeprefix("Value error, ")
    if kind == "literal_error":
        return f"must be one of {context['expected']}"
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return f"must be {words} {context[name]:g}"
    if kind == "list_type" and place == ("upstream",):
        return "must be a list: write [[upstream]]"
    return _WANTED.get(kind, error["msg"])


def _unknown_key(place: Key) -> str:
    """Offer a key of the same table first, then one that has this name elsewhere."""
    name, siblings = plain(place)[-1], names_beside(place)
    close = difflib.get_close_matches(name, siblings, n=1, cutoff=0.6)
    if close:
        return f"there is no such key; did you mean {dotted([*place[:-1], close[0]])}?"
    elsewhere = sorted(dotted(key) for key in SETTINGS if key[-1] == name)
    if elsewhere:
        return f"there is no such key here; did you mean {' or '.join(elsewhere[:2])}?"
    return f"there is no such key; possible keys: {', '.join(siblings)}"
