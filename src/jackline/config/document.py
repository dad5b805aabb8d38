"""The document that `jackline.toml` is: validate the values of a source, and give its JSON Schema.

Rules: (1) its models are made from the declarations of settings; (2) unknown keys and loose types
are faults, and all are found at once; (3) only the tables that a source has are modelled, since
most sources have few of them, and a model costs more than all else at the start of a command.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    create_model,
)

from jackline.config.declaration import ROOT, Declared, declared_in
from jackline.config.field_types import (
    LONGEST,
    TEXT_CHECKS,
    check_headers,
    duration_text,
    read_duration,
    read_size,
)
from jackline.settings import Form, Setting

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_DURATION = {"type": ["string", "number"], "examples": ["15m", "2h30m", 90]}
_SIZE = {"type": ["string", "integer"], "examples": ["64MB", "512KB", 65536]}


class _Table(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)


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


def validate(table: Mapping[str, Any]) -> tuple[dict[str, Any], list[ErrorDetails]]:
    """The values that this source sets, or all that is wrong with them."""
    try:
        document = _document(frozenset(table)).model_validate(table)
    except ValidationError as error:
        return {}, error.errors(include_url=False)
    return document.model_dump(exclude_unset=True), []


def document_schema() -> dict[str, Any]:
    """The JSON Schema of the whole document."""
    return _document(frozenset(ROOT)).model_json_schema()


@cache
def _document(names: frozenset[str]) -> type[_Table]:
    """The document with these of its settings and tables; any other key in it is unknown."""
    about = "The whole of `jackline.toml`, or of `[tool.jackline]` in `pyproject.toml`."
    return _model("Document", about, {name: one for name, one in ROOT.items() if name in names})
