"""Write the reference pages that are made from code: verbs, settings, metrics, events, failures.

    python docs/make_reference.py            # writes what is old in docs/reference/
    python docs/make_reference.py --check    # only says whether they are up to date

Rules: (1) nothing on these pages is written by hand; (2) the same code makes the same bytes,
whatever the width of the terminal; (3) `--check` writes nothing.
Not here: pages that say more than the code knows (docs/configuration.md, docs/errors.md,
docs/metrics.md, docs/reference/http.md): they are written by hand and compared with it by tests.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click

from jackline import events
from jackline.agents.outcome import Ending
from jackline.agents.runner import ENDINGS
from jackline.cli.main import jackline
from jackline.config.declaration import (
    DEFAULTS,
    ROOT,
    Declared,
    declared_in,
    shown_value,
    variable_of,
)
from jackline.config.field_types import duration_text
from jackline.config.toml_writer import literal
from jackline.failures import Failure, Kind, Scope
from jackline.failures.sentences import name_of
from jackline.flows import run_events
from jackline.settings import Form, Setting
from jackline.telemetry.metrics import METRICS

FOLDER = Path(__file__).parent / "reference"
_MADE = "<!-- Made by docs/make_reference.py: change the code and run it again, not this file. -->"


def main(arguments: list[str]) -> int:
    """Write the pages, or compare them; 1 when one is not as it should be."""
    old = [name for name, text in pages().items() if _on_disk(name) != text]
    if "--check" in arguments:
        for name in old:
            sys.stderr.write(f"docs/reference/{name} is old; next: python docs/make_reference.py\n")
        return 1 if old else 0
    for name in old:
        (FOLDER / name).write_text(pages()[name], "utf-8", newline="\n")
        sys.stderr.write(f"written: docs/reference/{name}\n")
    return 0


def pages() -> dict[str, str]:
    """Every page that is made from code, by its file's name."""
    return {
        "cli.md": cli_page(),
        "settings.md": settings_page(),
        "metrics.md": metrics_page(),
        "events.md": events_page(),
        "failures.md": failures_page(),
    }


def _on_disk(name: str) -> str:
    path = FOLDER / name
    return path.read_text("utf-8") if path.exists() else ""


# --- verbs ----------------------------------------------------------------------------------------


def cli_page() -> str:
    """`jackline VERB`, every one with its arguments and flags."""
    lines = [
        _MADE,
        "",
        "# Verbs and flags",
        "",
        "`jackline VERB --help` says the same. Exit codes: [errors.md](../errors.md).",
        "",
    ]
    context = click.Context(jackline, info_name="jackline")
    for name, command in _verbs(jackline, context):
        lines += _verb(name, command)
    return "\n".join(lines).rstrip() + "\n"


def _verbs(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        path = f"{context.command_path} {name}"
        yield path, command
        if isinstance(command, click.Group):
            yield from _verbs(command, click.Context(command, info_name=name, parent=context))


def _verb(path: str, command: click.Command) -> list[str]:
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    words = " ".join(_argument(each) for each in arguments)
    lines = [f"## {path}", "", f"`{path}{' ' if words else ''}{words}`", ""]
    lines += _paragraphs(command.help or "")
    options = [each for each in command.params if isinstance(each, click.Option)]
    shown = [each for each in options if not each.hidden]
    if shown:
        lines += ["| flag | meaning |", "|---|---|"]
        lines += [f"| {_flag(each)} | {_meaning(each)} |" for each in shown]
        lines.append("")
    return lines


def _argument(argument: click.Argument) -> str:
    name = argument.make_metavar(click.Context(click.Command("x")))
    return name if name.startswith("[") or argument.required else f"[{name}]"


def _flag(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in sorted(option.opts, key=len))
    if option.is_flag:
        return names
    if isinstance(option.type, click.Choice):
        taken = " / ".join(f"`{each}`" for each in option.type.choices)
        return f"{names} {taken}"
    return f"{names} {option.metavar or option.type.name.upper()}"


def _meaning(option: click.Option) -> str:
    words = (option.help or "").replace("|", "\\|")
    return f"{words} Required." if option.required else words


def _paragraphs(text: str) -> Iterator[str]:
    """The help text as Markdown: what click keeps as it is becomes a block."""
    for part in inspect.cleandoc(text).split("\n\n"):
        if part.startswith("\b\n"):
            head, *rest = part.removeprefix("\b\n").split("\n")
            yield from (head, "", "```", *(line.removeprefix("  ") for line in rest), "```", "")
        else:
            yield from (" ".join(part.split()), "")


# --- settings -------------------------------------------------------------------------------------


def settings_page() -> str:
    """Every key of jackline.toml: what it may be, its default, its variable."""
    lines = [
        _MADE,
        "",
        "# Settings",
        "",
        "Every key of `jackline.toml`, from the declarations in the code. Files, variables and",
        "values are explained in [configuration.md](../configuration.md). A key under `upstream`",
        "belongs to each `[[upstream]]`; its variable sets that of the first one. The column",
        "*project* says what a",
        "[project's file](../configuration.md#what-a-projects-file-may-say) may do with it.",
        "",
    ]
    lines += _table(
        "Top level", "", {name: one for name, one in ROOT.items() if not _is_table(one)}
    )
    for name, one in ROOT.items():
        if _is_table(one):
            table = one.table or one.named_table
            assert table is not None  # noqa: S101 -- `_is_table` says so
            brackets = f"[[{name}]]" if name == "upstream" else f"[{name}]"
            about = one.setting.doc or inspect.getdoc(table) or ""
            under = (name,) if one.table else (name, "PATTERN")
            lines += _table(brackets, about, declared_in(table), under)
    return "\n".join(lines).rstrip() + "\n"


def _is_table(one: Declared) -> bool:
    return (one.table or one.named_table) is not None


def _table(
    heading: str, about: str, declared: Mapping[str, Declared], under: tuple[str, ...] = ()
) -> list[str]:
    return [
        *(f"## {heading}", ""),
        *([about, ""] if about else []),
        *("| key | what it may be | default | variable | project | meaning |", "|---" * 6 + "|"),
        *_rows(declared, under),
        "",
    ]


def _rows(declared: Mapping[str, Declared], under: tuple[str, ...]) -> Iterator[str]:
    for name, one in declared.items():
        key = (*under, name)
        if one.table is not None:
            yield from _rows(declared_in(one.table), key)
            continue
        default = "none" if one.default is None else f"`{literal(shown_value(key, one.default))}`"
        variable = f"`{variable_of(key)}`" if key in DEFAULTS else "–"
        words = one.setting.doc.replace("|", "\\|")
        cells = (_may_be(one), default, variable, one.setting.in_project.value, words)
        yield f"| `{'.'.join(key)}` | {' | '.join(cells)} |"


def _may_be(one: Declared) -> str:
    """The type of a value, with the words or the bounds that it has."""
    if one.has_free_names:
        return "table of free names"
    is_list = get_origin(one.kind) is tuple
    kind = get_args(one.kind)[0] if is_list else one.kind
    return f"list of {_one_value(kind, one.setting)}" if is_list else _one_value(kind, one.setting)


def _one_value(kind: Any, setting: Setting) -> str:
    choices = setting.choices or (get_args(kind) if get_origin(kind) is Literal else ())
    if isinstance(kind, type) and issubclass(kind, StrEnum) and setting.form is Form.PLAIN:
        choices = tuple(kind)
    if choices:
        return ", ".join(f"`{each}`" for each in choices)
    bounds = [
        f"{word} {duration_text(bound) if setting.form is Form.DURATION else f'{bound:g}'}"
        for bound, word in (
            (setting.least, "from"),
            (setting.above, "above"),
            (setting.most, "to"),
            (setting.below, "below"),
        )
        if bound is not None
    ]
    plain = {bool: "true or false", int: "whole number", float: "number"}.get(kind, "text")
    return " ".join([plain if setting.form is Form.PLAIN else setting.form.value, *bounds])


# --- metrics --------------------------------------------------------------------------------------


def metrics_page() -> str:
    """Every metric, as the catalogue has it."""
    lines = [
        _MADE,
        "",
        "# Metrics",
        "",
        "All metrics of `GET /metrics`. How to scrape it, what the labels hold, alerts and a",
        "dashboard: [metrics.md](../metrics.md).",
        "",
    ]
    for metric in METRICS:
        labels = ", ".join(f"`{each}`" for each in metric.labels) or "none"
        lines += [f"## {metric.name}", "", metric.help, ""]
        lines += [f"Type: {metric.kind.value}. Labels: {labels}.", ""]
    return "\n".join(lines).rstrip() + "\n"


# --- events ---------------------------------------------------------------------------------------


def events_page() -> str:
    """What is announced, with the fields of each."""
    lines = [
        _MADE,
        "",
        "# Events",
        "",
        "Facts in the past tense, emitted as they happen. None holds a prompt, an answer or a",
        "secret. Times are seconds since the epoch, durations are seconds.",
        "",
        "## Of the gateway",
        "",
        "From `jackline.events`; the journal and the dashboard listen.",
        "",
    ]
    for kind in get_args(events.Event):
        lines += _event(kind)
    lines += [
        "## Of a run",
        "",
        "From `jackline.flows.run_events`; `jackline run`, `logs` and the dashboard show them.",
        "",
    ]
    for kind in get_args(run_events.FlowEvent):
        lines += _event(kind)
    return "\n".join(lines).rstrip() + "\n"


def _event(kind: type) -> list[str]:
    told = [" ".join(part.split()) for part in (kind.__doc__ or "").split("\n\n")]
    lines = [f"### {kind.__name__}", ""]
    for part in told:
        lines += [part, ""]
    lines += ["| field | type |", "|---|---|"]
    hints = get_type_hints(kind)
    lines += [f"| `{name}` | {_type(hints[name])} |" for name in kind.__annotations__]
    return [*lines, ""]


def _type(hint: object) -> str:
    if isinstance(hint, type) and not get_args(hint):
        return hint.__name__
    return str(hint).replace("jackline.agents.outcome.", "").replace(" | None", ", or nothing")


# --- failures -------------------------------------------------------------------------------------


def failures_page() -> str:
    """Which kinds of failure there are, and how each ends an agent."""
    lines = [
        _MADE,
        "",
        "# Failures and endings",
        "",
        "What each kind of failure is called in sentences, and the `terminated_by` of an agent for",
        "which it was the last word. How they are told apart: [failures.md](../failures.md).",
        "",
        "| kind | in words | ends an agent as |",
        "|---|---|---|",
        *(f"| `{kind.value}` | {_words(kind)} | `{ENDINGS[kind].value}` |" for kind in Kind),
        "",
        "```mermaid",
        "flowchart LR",
    ]
    for ending in Ending:
        kinds = [kind for kind in Kind if ENDINGS[kind] is ending]
        lines += [f"    {kind.value} --> e_{ending.value}([{ending.value}])" for kind in kinds]
    lines += ["```", ""]
    others = [f"`{each.value}`" for each in Ending if each not in ENDINGS.values()]
    lines += [f"Endings that no failure of a call alone makes: {', '.join(others)}.", ""]
    return "\n".join(lines).rstrip() + "\n"


def _words(kind: Kind) -> str:
    plain = Failure(kind, None, Scope.REQUEST, retry_same=False, failover_helps=False)
    return name_of(plain)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
