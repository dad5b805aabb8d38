"""The document that `jackline.toml` is, and the sentences for what is wrong in it.

Rules: (1) unknown keys and loose types are faults; (2) all faults are reported at once, each with
its place, its key, what is wrong, and what was probably meant; (3) no sentence quotes a value that
could be a secret.
Not here: its tables (tables.py), where files are (files.py).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic.fields import FieldInfo

from jackline.config.field_types import NOT_SET, ConfigTable, InProject, Text
from jackline.config.keys import Key, Place, dotted, plain
from jackline.config.tables import (
    AgentsTable,
    BatchTable,
    BudgetTable,
    CacheTable,
    CapsTable,
    HoldTable,
    JournalTable,
    ListenTable,
    LogTable,
    NotifyTable,
    OtlpTable,
    PriceTable,
    ReserveTable,
    ResumeTable,
    RunTable,
    TakenTable,
    UpstreamTable,
)
from jackline.errors import BadConfigError
from jackline.gateway.settings import GatewaySettings
from jackline.outside_names import printable

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


_DEFAULT = GatewaySettings()


def _listed(value: object) -> object:
    if isinstance(value, dict):
        raise ValueError("is a list: write [[upstream]] with two brackets")  # noqa: TRY004 -- pydantic turns only ValueError into a fault
    return value


class Document(ConfigTable):
    """The whole of `jackline.toml`, or of `[tool.jackline]` in `pyproject.toml`."""

    state: Text = Field(
        default=NOT_SET, description="Folder of the journal and of what a running gateway leaves."
    )
    stream: Annotated[Literal["auto", "live", "block"], InProject.FREE] = Field(
        default=_DEFAULT.stream.value,
        description="How answers are passed on: as they come (live), in whole content blocks that"
        " can be repaired (block), or block for sub-agents and headless clients (auto).",
    )
    never_degrade: Annotated[list[Text], InProject.MORE] = Field(
        default=list(_DEFAULT.never_degrade),
        description="Patterns of models, tags (tag:night), agents (agent:review-*) and classes"
        " (class:careful) that are never answered by another model than their own.",
    )
    listen: ListenTable = Field(default_factory=ListenTable)
    upstream: Annotated[list[UpstreamTable], BeforeValidator(_listed)] = Field(default_factory=list)
    hold: HoldTable = Field(default_factory=HoldTable)
    caps: CapsTable = Field(default_factory=CapsTable)
    cache: CacheTable = Field(default_factory=CacheTable)
    limits: TakenTable = Field(default_factory=TakenTable)
    journal: JournalTable = Field(default_factory=JournalTable)
    log: LogTable = Field(default_factory=LogTable)
    run: RunTable = Field(default_factory=RunTable)
    reserve: ReserveTable = Field(default_factory=ReserveTable)
    resume: ResumeTable = Field(default_factory=ResumeTable)
    budget: BudgetTable = Field(default_factory=BudgetTable)
    prices: dict[str, PriceTable] = Field(
        default_factory=dict,
        description="Prices by a pattern of models, the first that fits; listed ones need none.",
    )
    notify: NotifyTable = Field(default_factory=NotifyTable)
    otlp: OtlpTable = Field(default_factory=OtlpTable)
    agents: AgentsTable = Field(default_factory=AgentsTable)
    batch: BatchTable = Field(default_factory=BatchTable)


def written(table: ConfigTable, under: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Every key that was really written, with its value as the settings take it."""
    for name in table.model_fields_set:
        yield from _leaves((*under, name), getattr(table, name))


def defaults() -> dict[tuple[str, ...], Any]:
    """Every key outside tables of free names, with its default; upstreams' without a place."""
    return dict(_defaults(Document, ()))


def field_of(key: Key) -> FieldInfo | None:
    """What the document says of this key; None when it stands in a table of free names."""
    table: type[ConfigTable] = Document
    *tables, name = plain(key)
    for part in tables:
        found = table_class(table, part)
        if found is None:
            return None
        table = found
    return table.model_fields.get(name)


def table_class(table: type[ConfigTable], name: str) -> type[ConfigTable] | None:
    """The class of the table that stands under this name, if it is a table."""
    if table is Document and name == "upstream":
        return UpstreamTable
    info = table.model_fields.get(name)
    kind = None if info is None else info.annotation
    return kind if isinstance(kind, type) and issubclass(kind, ConfigTable) else None


def _defaults(
    table: type[ConfigTable], under: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, info in table.model_fields.items():
        inner = table_class(table, name)
        if inner is not None:
            yield from _defaults(inner, (*under, name))
        elif info.default_factory is None:
            yield (*under, name), info.default


def _leaves(key: Key, value: Any) -> Iterator[tuple[Key, Any]]:
    if isinstance(value, ConfigTable):
        yield from written(value, key)
    elif key == ("upstream",):
        for place, table in enumerate(value):
            yield from written(table, (*key, place))
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from _leaves((*key, name), one)
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


@dataclass(frozen=True, slots=True)
class ConfigFault:
    """One thing that is wrong. `where` is a file with its line, a variable or a flag."""

    where: str
    key: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.key + ': ' if self.key else ''}{self.what}"


def config_error(faults: Sequence[ConfigFault]) -> BadConfigError:
    """The error that tells all of them."""
    many = "a fault" if len(faults) == 1 else f"{len(faults)} faults"
    lines = tuple(str(fault) for fault in faults)
    return BadConfigError(
        "\n  ".join((f"the configuration has {many}:", *(printable(line) for line in lines))),
        hint="correct what is named, then run: jackline config check",
        faults=lines,
    )


def from_validation(
    errors: Iterable[ErrorDetails], where: Callable[[Place], str]
) -> tuple[ConfigFault, ...]:
    """What pydantic found, in our words; `where` finds the line of a key."""
    return tuple(
        ConfigFault(where(place), dotted(place), _what(error, place))
        for error in errors
        for place in (tuple(part for part in error["loc"] if part != "[key]"),)
    )


def unknown(name: str, known: Iterable[str]) -> str:
    """The sentence for a name that does not exist, with the one that was probably meant."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"there is no such key{f'; did you mean {close[0]}?' if close else ''}"


def _what(error: ErrorDetails, place: Place) -> str:
    kind = error["type"]
    context: dict[str, Any] = error.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(place)
    if kind == "value_error":
        return error["msg"].removeprefix("Value error, ")
    if kind == "literal_error":
        return f"must be one of {context['expected']}"
    if kind in ("greater_than_equal", "less_than_equal"):
        side = ("ge", "at least") if kind == "greater_than_equal" else ("le", "at most")
        return f"must be {side[1]} {context[side[0]]:g}"
    if kind == "greater_than":
        return f"must be more than {context['gt']:g}"
    if kind == "list_type" and place == ("upstream",):
        return "must be a list: write [[upstream]]"
    return _WANTED.get(kind, error["msg"])


def _unknown_key(place: Place) -> str:
    """Offer a key of the same table first, then one that has this name elsewhere."""
    names = [part for part in place if isinstance(part, str)]
    siblings = _keys_beside(names)
    close = difflib.get_close_matches(names[-1], siblings, n=1, cutoff=0.6)
    if close:
        return f"there is no such key; did you mean {dotted([*place[:-1], close[0]])}?"
    elsewhere = sorted(dotted(key) for key in _all_keys() if key[-1] == names[-1])
    if elsewhere:
        return f"there is no such key here; did you mean {' or '.join(elsewhere[:2])}?"
    return f"there is no such key; here can stand: {', '.join(siblings)}"


def _keys_beside(names: Sequence[str]) -> list[str]:
    table: type[ConfigTable] = Document
    for depth, name in enumerate(names[:-1]):
        # In a table of free names, the names are skipped and its tables are all alike.
        inner = table_class(table, name) or _free_table(table, names[depth - 1])
        if inner is not None:
            table = inner
    return list(table.model_fields)


def _free_table(table: type[ConfigTable], name: str) -> type[ConfigTable] | None:
    info = table.model_fields.get(name)
    arguments: tuple[object, ...] = getattr(info and info.annotation, "__args__", ())
    kinds = [kind for kind in arguments if isinstance(kind, type) and issubclass(kind, ConfigTable)]
    return kinds[0] if kinds else None


def _all_keys(
    table: type[ConfigTable] = Document, under: tuple[str, ...] = ()
) -> list[tuple[str, ...]]:
    keys: list[tuple[str, ...]] = []
    for name in table.model_fields:
        keys.append((*under, name))
        inner = table_class(table, name)
        if inner is not None:
            keys += _all_keys(inner, (*under, name))
    return keys
