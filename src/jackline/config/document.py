"""The document that `jackline.toml` is, and the sentences for what is wrong in it.

Rules: (1) its models are made from the declarations of settings; (2) unknown keys and loose types
are faults, and all faults are reported at once, each with its place, its key, what is wrong, and
which key was probably intended; (3) no sentence quotes a value that could be a secret.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from enum import Enum
from functools import partial
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

from jackline.config.declaration import ROOT, SETTINGS, Declared, declared_in
from jackline.config.field_types import (
    LONGEST,
    TEXT_CHECKS,
    check_headers,
    duration_text,
    read_duration,
    read_size,
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
    return value if one is None else one.written(value)


def _model(name: str, about: str, declared: Mapping[str, Declared]) -> type[_Table]:
    fields: dict[str, Any] = {
        name: (
            _type(one.kind, one.setting),
            # What was not written is never read from a document, so the default does not count.
            Field(
                default=None,
                description=one.setting.doc or None,
                json_schema_extra=one.add_default,
            ),
        )
        for name, one in declared.items()
    }
    return create_model(name, __base__=_Table, __doc__=about, **fields)


def _type(kind: Any, setting: Setting) -> Any:
    """The type of a value in the document, with its checks."""
    inner, form = get_args(kind), setting.form
    limits = Field(ge=setting.least, le=setting.most, gt=setting.above, lt=setting.below)
    made: Any
    if is_dataclass(kind):
        table = cast("type", kind)
        about = (inspect.getdoc(table) or "").split("\n\n")[0]
        made = _model(table.__name__, " ".join(about.split()), declared_in(table))
    elif get_origin(kind) is tuple:
        made = list[_type(inner[0], setting)]  # type: ignore[misc]
        if is_dataclass(inner[0]):
            made = Annotated[made, BeforeValidator(_listed)]
    elif form is Form.HEADERS:
        made = Annotated[dict[str, str], AfterValidator(check_headers)]
    elif get_origin(kind) is Mapping:
        made = dict[str, _type(inner[1], setting)]  # type: ignore[misc]
    elif setting.choices:
        made = Literal[setting.choices]
    elif form is Form.DURATION:
        bounds = AfterValidator(partial(_between, setting))
        made = Annotated[float, BeforeValidator(read_duration), bounds, WithJsonSchema(_DURATION)]
    elif form is Form.SIZE:
        made = Annotated[int, BeforeValidator(read_size), limits, WithJsonSchema(_SIZE)]
    elif kind is int:
        made = Annotated[int, limits]
    elif kind is float:
        made = Annotated[float, limits, Field(allow_inf_nan=False)]
    else:
        made = _text_type(kind, form)
    return made


def _text_type(kind: Any, form: Form) -> Any:
    if form in TEXT_CHECKS:
        return Annotated[str, Field(min_length=1), AfterValidator(TEXT_CHECKS[form])]
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


Document = _model(
    "Document", "The whole of `jackline.toml`, or of `[tool.jackline]` in `pyproject.toml`.", ROOT
)


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

    @property
    def line(self) -> int:
        """The line in the file; 0 if that is not known."""
        number = self.where.rpartition(":")[2]
        return int(number) if number.isdecimal() else 0

    @classmethod
    def from_pydantic(cls, error: ErrorDetails, where: Callable[[Key], str]) -> ConfigFault:
        """What pydantic found, in our words; `where` finds the line of a key."""
        place = tuple(part for part in error["loc"] if part != "[key]")
        kind, context = error["type"], error.get("ctx", {})
        if kind == "extra_forbidden":
            what = _unknown_key(place)
        elif kind == "value_error":
            what = error["msg"].removeprefix("Value error, ")
        elif kind == "literal_error":
            what = f"must be one of {context['expected']}"
        elif kind in _BOUNDS:
            name, words = _BOUNDS[kind]
            what = f"must be {words} {context[name]:g}"
        elif kind == "list_type" and place == ("upstream",):
            what = "must be a list: write [[upstream]]"
        else:
            what = _WANTED.get(kind, error["msg"])
        return cls(where(place), dotted(place), what)


def _unknown_key(place: Key) -> str:
    """Offer a key of the same table first, then one that has this name elsewhere."""
    *path, name = plain(place)
    table: Mapping[str, Declared] = ROOT
    free: type | None = None
    for part in path:
        if free is not None:  # this is a name that the user chose
            table, free = declared_in(free), None
            continue
        one = table.get(part)
        if one is None:
            break
        free = one.named_table
        table = declared_in(one.table) if one.table is not None else table
    close = difflib.get_close_matches(name, table, n=1, cutoff=0.6)
    if close:
        return f"there is no such key; did you mean {dotted([*place[:-1], close[0]])}?"
    elsewhere = sorted(dotted(key) for key in SETTINGS if key[-1] == name)
    if elsewhere:
        return f"there is no such key here; did you mean {' or '.join(elsewhere[:2])}?"
    return f"there is no such key; possible keys: {', '.join(table)}"


def config_error(faults: Sequence[ConfigFault]) -> BadConfigError:
    """The error that lists all of them."""
    many = "a fault" if len(faults) == 1 else f"{len(faults)} faults"
    lines = tuple(str(fault) for fault in faults)
    return BadConfigError(
        "\n  ".join((f"the configuration has {many}:", *(printable(line) for line in lines))),
        hint="correct what is named, then run: jackline config check",
        faults=lines,
    )
