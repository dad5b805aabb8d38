"""The document that `jackline.toml` is: every key with its type, bounds and meaning.

Laws: (1) unknown keys and loose types are faults; (2) every key has a description, from which the
JSON Schema is made; (3) defaults are those of the settings' own classes, written nowhere twice.
Not here: its tables (gateway_tables.py, work_tables.py), sentences for faults (faults.py), where
files are (places.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic.fields import FieldInfo

from jackline.config.gateway_tables import (
    CacheTable,
    CapsTable,
    HoldTable,
    JournalTable,
    ListenTable,
    LogTable,
    TakenTable,
    UpstreamTable,
)
from jackline.config.keys import Key, plain
from jackline.config.table import NOT_SET, InProject, Table, Text
from jackline.config.work_tables import (
    AgentsTable,
    BatchTable,
    BudgetTable,
    NotifyTable,
    OtlpTable,
    PriceTable,
    ReserveTable,
    ResumeTable,
    RunTable,
)
from jackline.gateway.settings import GatewaySettings

_DEFAULT = GatewaySettings()


def _listed(value: object) -> object:
    if isinstance(value, dict):
        raise ValueError("is a list: write [[upstream]] with two brackets")  # noqa: TRY004 -- pydantic turns only ValueError into a fault
    return value


class Document(Table):
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


def written(table: Table, under: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Every key that was really written, with its value as the settings take it."""
    for name in table.model_fields_set:
        yield from _leaves((*under, name), getattr(table, name))


def defaults() -> dict[tuple[str, ...], Any]:
    """Every key outside tables of free names, with its default; upstreams' without a place."""
    return dict(_defaults(Document, ()))


def field_of(key: Key) -> FieldInfo | None:
    """What the document says of this key; None when it stands in a table of free names."""
    table: type[Table] = Document
    *tables, name = plain(key)
    for part in tables:
        found = table_class(table, part)
        if found is None:
            return None
        table = found
    return table.model_fields.get(name)


def table_class(table: type[Table], name: str) -> type[Table] | None:
    """The class of the table that stands under this name, if it is a table."""
    if table is Document and name == "upstream":
        return UpstreamTable
    info = table.model_fields.get(name)
    kind = None if info is None else info.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Table) else None


def _defaults(table: type[Table], under: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, info in table.model_fields.items():
        inner = table_class(table, name)
        if inner is not None:
            yield from _defaults(inner, (*under, name))
        elif info.default_factory is None:
            yield (*under, name), info.default


def _leaves(key: Key, value: Any) -> Iterator[tuple[Key, Any]]:
    if isinstance(value, Table):
        yield from written(value, key)
    elif key == ("upstream",):
        for place, table in enumerate(value):
            yield from written(table, (*key, place))
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from _leaves((*key, name), one)
    else:
        yield key, value
