"""Every setting of `jackline.toml`, collected from the settings classes of the packages.

Rules: (1) a setting is declared by its field (`jackline.settings`), nowhere else; what has no class
elsewhere is declared here; (2) everything else derives from `SETTINGS`: variables, flags, checks,
defaults, `config show`, the JSON Schema and the reference page; (3) it loads no validator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from jackline.agents.prices import Price
from jackline.config.field_types import duration_text, size_text
from jackline.config.keys import PREFIX, Key, plain
from jackline.flows.settings import Reserve, RunSettings, WakeSettings
from jackline.gateway.settings import (
    CacheSettings,
    CapSettings,
    GatewaySettings,
    HoldSettings,
    LimitSettings,
    ListenSettings,
)
from jackline.journal.store import JournalSettings
from jackline.mcp_server.permissions import AgentSettings, BatchSettings
from jackline.notifications.settings import NotifySettings
from jackline.providers.settings import PRESETS, UpstreamSettings
from jackline.settings import HIDDEN, SETTING, Form, InProject, Setting, setting
from jackline.telemetry.settings import OtlpSettings


@dataclass(frozen=True, slots=True)
class _TopLevel:
    state: str | None = setting(
        None,
        "Folder of the journal and of what a running gateway leaves.",
        Form.PATH,
        flag="state",
        needs_restart=True,
    )


@dataclass(frozen=True, slots=True)
class UpstreamEntry(UpstreamSettings):
    """A place that calls are sent to. The first of them is preferred."""

    preset: str | None = setting(
        None,
        "A known sort of upstream that fills in what is not written here.",
        choices=tuple(PRESETS),
        in_project=InProject.CONSENT,
    )
    auth: Literal["api-key", "bearer", "vendor"] | None = setting(
        None,
        "How the key that credential refers to is sent: api-key (the default for kind anthropic) or"
        " bearer (for others); with vendor, AWS's or Google's own library finds it, as clouds do by"
        " default.",
        in_project=InProject.CONSENT,
    )


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What is written to the log."""

    level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "The lowest level that is written.", flag="log_level"
    )


@dataclass(frozen=True, slots=True)
class ResumeSettings(WakeSettings):
    """The brakes on parked runs that wake by themselves."""

    sessions: bool = setting(
        False,
        "A session of Claude Code that a quota limit has ended is continued at the reset, by a"
        " process of its own; needs the plugin. Never one that is still open.",
    )


@dataclass(frozen=True, slots=True)
class RollingSettings:
    """What all runs together may use within a span of time; calls wait for a spent span."""

    per: float | None = setting(
        None, 'The span, such as "5h".', Form.DURATION, least=60, most=366 * 86400
    )
    tokens: int | None = setting(None, "Tokens of all runs within the span.", least=1)
    dollars: float | None = setting(None, "Dollars of all runs within the span.", least=0)
    strict: bool | None = setting(
        None, "As budget.strict; what other processes have in flight is not known."
    )


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """What each run may use; the next call is refused, the last one is not undone."""

    tokens: int | None = setting(None, "Tokens of one run.", least=1, in_project=InProject.LOWER)
    dollars: float | None = setting(
        None, "Dollars of one run.", least=0, in_project=InProject.LOWER
    )
    agents: int | None = setting(None, "Agents of one run.", least=1, in_project=InProject.LOWER)
    turns: int | None = setting(
        None, "Model calls of one run.", least=1, in_project=InProject.LOWER
    )
    time: float | None = setting(
        None,
        "Own work of all agents of one run together (model calls and tools); waiting in a queue, at"
        " the gateway or parked does not count.",
        Form.DURATION,
        in_project=InProject.LOWER,
    )
    strict: bool | None = setting(
        None,
        "Reserve the most that a call can use before it is sent, so that tokens and dollars are"
        " never exceeded; fewer calls run side by side.",
    )
    rolling: RollingSettings = setting(RollingSettings(), "")


@dataclass(frozen=True, slots=True)
class Declared:
    """One setting, or one table of them: its declaration, its type without None, its default."""

    setting: Setting
    kind: Any
    # As it is written in a file; None: not set.
    default: Any = None

    @property
    def table(self) -> type | None:
        """The class of this table, or of each in this list of tables."""
        inner = get_args(self.kind)[0] if get_origin(self.kind) is tuple else self.kind
        return cast("type", inner) if is_dataclass(inner) else None

    @property
    def has_free_names(self) -> bool:
        """Whether users choose the names of its entries."""
        return get_origin(self.kind) is Mapping

    @property
    def named_table(self) -> type | None:
        """The class of each table in this table of free names."""
        inner = get_args(self.kind)[1] if self.has_free_names else None
        return cast("type", inner) if is_dataclass(inner) else None

    def written(self, value: Any) -> object:
        """This value as one would write it in a file."""
        if value is None or self.setting.form not in (Form.DURATION, Form.SIZE):
            return value
        return duration_text(value) if self.setting.form is Form.DURATION else size_text(value)

    def add_default(self, schema: dict[str, Any]) -> None:
        """Put the default into this setting's part of the JSON Schema."""
        schema.pop("default", None)
        if self.default is not None and self.table is None:
            schema["default"] = self.written(self.default)

    def from_variable(self, text: str) -> object:
        """What a variable's text says where something else than text is wanted; else the text."""
        text = text.strip()
        if get_origin(self.kind) is tuple:
            return [part.strip() for part in text.split(",") if part.strip()]
        if self.kind is bool and text.lower() in _BOOLEANS:
            return _BOOLEANS[text.lower()]
        if self.kind is int or self.kind is float:
            try:
                return int(text) if self.kind is int else float(text)
            except ValueError:
                return text  # the document says what is wrong with it
        return text


_BOOLEANS = {"1": True, "true": True, "yes": True, "on": True} | {
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


@cache
def declared_in(table: type) -> dict[str, Declared]:
    """The settings that this class declares, by name."""
    hints = get_type_hints(table)
    declared = {}
    for each in fields(table):
        if SETTING not in each.metadata:
            continue
        kind = hints[each.name]
        if get_origin(kind) in (Union, UnionType):
            (kind,) = (one for one in get_args(kind) if one is not type(None))
        default = None if each.default is MISSING else each.default
        if isinstance(default, tuple):
            default = [one.value if isinstance(one, Enum) else one for one in default]
        elif isinstance(default, Enum):
            default = default.value
        declared[each.name] = Declared(each.metadata[SETTING], kind, default)
    return declared


_SECTIONS: Mapping[str, Any] = {
    "listen": ListenSettings,
    "upstream": tuple[UpstreamEntry, ...],
    "hold": HoldSettings,
    "caps": CapSettings,
    "cache": CacheSettings,
    "limits": LimitSettings,
    "journal": JournalSettings,
    "log": LogSettings,
    "run": RunSettings,
    "reserve": Reserve,
    "resume": ResumeSettings,
    "budget": BudgetSettings,
    "prices": Mapping[str, Price],
    "notify": NotifySettings,
    "otlp": OtlpSettings,
    "agents": AgentSettings,
    "batch": BatchSettings,
}
_PRICES = "Prices by a pattern of models; the first that fits counts. Listed models need none."
ROOT: Mapping[str, Declared] = {
    **declared_in(_TopLevel),
    **declared_in(GatewaySettings),
    **{
        name: Declared(Setting(_PRICES if name == "prices" else ""), kind)
        for name, kind in _SECTIONS.items()
    },
}


def _flat(table: Mapping[str, Declared], under: Key = ()) -> Iterator[tuple[Key, Declared]]:
    for name, one in table.items():
        if one.table is None:
            yield (*under, name), one
        else:
            yield from _flat(declared_in(one.table), (*under, name))


SETTINGS: Mapping[tuple[str, ...], Declared] = {plain(key): one for key, one in _flat(ROOT)}
"""Every setting by its key, in the order of the document; upstreams' keys are without a place."""
DEFAULTS: Mapping[tuple[str, ...], Any] = {
    key: one.default for key, one in SETTINGS.items() if not one.has_free_names
}
"""Every setting outside tables of free names, with its default."""
FLAGS = {one.setting.flag: key for key, one in SETTINGS.items() if one.setting.flag}
"""The settings that have a short flag, by its name."""


def variable_of(key: tuple[str, ...]) -> str:
    """The environment variable that sets this key."""
    return PREFIX + "_".join(key).upper()


VARIABLES = {variable_of(key): key for key in DEFAULTS} | {
    one.setting.variable: key for key, one in SETTINGS.items() if one.setting.variable
}
"""Every environment variable that sets something; those of upstreams set the first one's."""


def setting_at(key: Key) -> tuple[tuple[str, ...], Declared] | None:
    """The setting that this key belongs to: of an entry with a free name, the table's."""
    names = plain(key)
    for length in range(1, len(names) + 1):
        found = SETTINGS.get(names[:length])
        if found is not None:
            return names[:length], found
    return None


def shown_value(key: Key, value: Any) -> object:
    """The value of this key as one would write it in a file."""
    one = SETTINGS.get(plain(key))
    return value if one is None else one.written(value)


_REFERENCES = (*HIDDEN, Form.UNRESOLVED, Form.CREDENTIAL)


def may_be_reference(key: Key) -> bool:
    """Whether a reference to a secret may be written under this key."""
    found = setting_at(key)
    return found is not None and found[1].setting.form in _REFERENCES
