"""Parse a scenario, a small TOML document, into a provider's settings and a reply script.

Rules: (1) an unknown or impossible key is an error that names it; (2) times are seconds from the
start; (3) packaged scenarios are found by name; (4) neither a file nor the answers that a
document requests take more than a bounded share of memory.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from importlib import resources
from types import UnionType
from typing import Any, Self, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from jackline.errors import BadArgumentError, UnreadableError
from jackline.foreign_files import read_foreign
from jackline.simulator.faults import Fault
from jackline.simulator.limits import (
    BucketSettings,
    ConcurrencyCap,
    HiddenCapacitySettings,
    QuotaWindowSettings,
)
from jackline.simulator.provider import MODELS, ProviderSettings
from jackline.simulator.reply_script import UNDERSTOOD, ReplyScript, Rule, Say, long_answer
from jackline.simulator.time_model import ServiceSettings

T = TypeVar("T")

SCENARIO_BYTES = 4 << 20
"""The largest scenario file that is read."""
MOST_TOKENS = 10_000_000
"""The most tokens of filler in all answers of a scenario together: 40 MB of text."""

_PACKAGED = resources.files("jackline.simulator") / "scenarios"
_SHARES = {"share", "kills_in_flight", "at_share", "first", "low", "high", "overloaded_share"}
_ABOVE_ZERO = {"per_minute", "burst_seconds", "every", "tokens_per_second", "slowness"}
_ABOVE_ZERO |= {"doubles_every", "median", "seconds", "herd_window", "mean_service", "streams"}
_ABOVE_ZERO |= {"tokens"}
_CONDITIONS = ("prompt", "latest", "results", "offers", "model", "sub_agent", "turn", "call")


@dataclass(frozen=True, slots=True)
class RuleTable:
    """`[[rule]]`: conditions, and the reply; calls are `{ name = "…", input = { … } }`.

    With `tokens`, the text is so many tokens of filler.
    """

    text: str = ""
    calls: tuple[CallTable, ...] = ()
    tokens: int = 0
    tokens_per_second: float | None = None
    delay: float = 0.0
    fault: Fault | None = None
    prompt: str = ""
    latest: str = ""
    results: str = ""
    offers: str = ""
    model: str = ""
    sub_agent: bool | None = None
    turn: int | None = None
    call: int | None = None


@dataclass(frozen=True, slots=True)
class CallTable:
    """One tool call of a rule."""

    name: str
    input: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScenarioTable:
    """The whole document.

    `answer_tokens`: how long the answers are when no rule fits; 0 answers "Understood.".
    """

    description: str = ""
    answer_tokens: int = 0
    models: tuple[str, ...] = MODELS
    demands_credential: bool = False
    admin_key: str = ""
    service: ServiceSettings = field(default_factory=ServiceSettings)
    bucket: tuple[BucketSettings, ...] = ()
    concurrency: ConcurrencyCap | None = None
    hidden: HiddenCapacitySettings | None = None
    window: tuple[QuotaWindowSettings, ...] = ()
    fault: tuple[Fault, ...] = ()
    rule: tuple[RuleTable, ...] = ()


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a server is started with."""

    name: str
    description: str
    settings: ProviderSettings
    script: ReplyScript

    @staticmethod
    def packaged_names() -> list[str]:
        """The scenarios that come with Jackline."""
        return sorted(file.name[:-5] for file in _PACKAGED.iterdir() if file.name.endswith(".toml"))

    @classmethod
    def packaged(cls, name: str) -> Self:
        """The packaged scenario of this name."""
        names = cls.packaged_names()
        if name not in names:
            raise UnreadableError(
                "there is no packaged scenario of this name", hint=f"name one of {', '.join(names)}"
            )
        return cls.parse(name, (_PACKAGED / f"{name}.toml").read_text(encoding="utf-8"))

    @classmethod
    def load(cls, named: str) -> Self:
        """The scenario in this file, or the packaged one of this name."""
        names = cls.packaged_names()
        if named in names:
            return cls.packaged(named)
        try:
            return cls.parse(named, read_foreign(named, SCENARIO_BYTES).decode())
        except OSError as error:
            raise UnreadableError(
                f"the scenario {named} cannot be read: {error.strerror}",
                hint=f"name a TOML file, or one of {', '.join(names)}",
            ) from error
        except UnicodeDecodeError as error:
            raise BadArgumentError(f"the scenario {named} is not UTF-8 text") from error

    @classmethod
    def parse(cls, name: str, text: str) -> Self:
        """The scenario that a TOML text describes."""
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise BadArgumentError(f"the scenario {name} is not TOML: {error}") from error
        return cls.from_document(name, document)

    @classmethod
    def from_document(cls, name: str, document: Mapping[str, Any]) -> Self:
        """The scenario that a parsed document describes."""
        table = read_table(ScenarioTable, document, "")
        filler = table.answer_tokens + sum(rule.tokens for rule in table.rule)
        if filler > MOST_TOKENS:
            raise BadArgumentError(
                f"answer_tokens and the tokens of all rules are {filler:,} together",
                hint=f"request {MOST_TOKENS:,} at most",
            )
        settings = ProviderSettings(
            buckets=table.bucket,
            concurrency=table.concurrency,
            hidden=table.hidden,
            windows=table.window,
            faults=table.fault,
            service=table.service,
            models=table.models,
            demands_credential=table.demands_credential,
            admin_key=table.admin_key,
        )
        fallback = long_answer(table.answer_tokens) if table.answer_tokens else UNDERSTOOD
        rules = []
        for rule in table.rule:
            text = long_answer(rule.tokens).text if rule.tokens else rule.text
            calls = tuple((call.name, call.input) for call in rule.calls)
            say = Say(text, calls, rule.delay, rule.tokens_per_second)
            conditions = {name: getattr(rule, name) for name in _CONDITIONS}
            rules.append(Rule(rule.fault or say, **conditions))
        script = ReplyScript(tuple(rules), fallback, obliging=True)
        return cls(name, table.description, settings, script)


def read_table(kind: type[T], table: object, where: str) -> T:
    """The value of this class that a table describes; errors name the key at fault."""
    _check_keys(kind, table, where)
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        # `Expected … - at `$.fault[0].share`` becomes `fault[0].share: expected …`.
        what, _, path = str(error).partition(" - at ")
        place = _join(where, path.strip("`").removeprefix("$").removeprefix(".")) or "scenario"
        raise BadArgumentError(f"{place}: {what[:1].lower()}{what[1:]}") from error


def _check_keys(kind: type[Any], table: object, where: str) -> None:
    if not isinstance(table, Mapping):
        return
    hints = get_type_hints(kind)
    for key, value in table.items():
        place = _join(where, str(key))
        if key not in {one.name for one in fields(kind)}:
            raise BadArgumentError(
                f"{place}: there is no such key", hint=f"use one of {', '.join(sorted(hints))}"
            )
        if isinstance(value, int | float) and not isinstance(value, bool):
            if key in _SHARES and not 0 <= value <= 1:
                raise BadArgumentError(f"{place}: {value} is not a share between 0 and 1")
            if key in _ABOVE_ZERO and not value > 0:
                raise BadArgumentError(f"{place}: {value} is not above zero")
            if not value >= 0:
                raise BadArgumentError(f"{place}: {value} is below zero")
        inner = _table_class(hints[key])
        if inner is not None:
            many = value if isinstance(value, list) else [value]
            for number, one in enumerate(many):
                _check_keys(inner, one, f"{place}[{number}]" if value is many else place)


def _table_class(hint: object) -> type[Any] | None:
    """The dataclass inside `X`, `X | None` or `tuple[X, ...]`."""
    if isinstance(hint, type) and is_dataclass(hint):
        return hint
    if get_origin(hint) in (Union, UnionType, tuple):
        return next((found for one in get_args(hint) if (found := _table_class(one))), None)
    return None


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where and key else where or key
