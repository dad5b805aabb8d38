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
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click

from jackline import events
from jackline.agents.outcome import Ending
from jackline.agents.runner import ENDINGS
from jackline.cli.main import jackline
from jackline.config import keys
from jackline.config.document import Document, defaults
from jackline.config.toml_writer import json_schema
from jackline.failures import Failure, Kind, Scope
from jackline.failures.sentences import name_of
from jackline.flows import run_events
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
        "Every key of `jackline.toml`, from the schema that `jackline config schema` prints. What",
        "they are for, by task: [configuration.md](../configuration.md). A key under `upstream`",
        "stands in each `[[upstream]]`; its variable speaks of the first one.",
        "",
    ]
    schema = json_schema()
    lines += _table("At the top", schema, schema, ())
    for name in Document.model_fields:
        described = _behind(schema, schema["properties"][name])
        if "properties" in described:
            brackets = f"[[{name}]]" if name == "upstream" else f"[{name}]"
            lines += _table(brackets, described, schema, (name,))
    return "\n".join(lines).rstrip() + "\n"


def _table(
    heading: str, described: dict[str, Any], schema: dict[str, Any], under: tuple[str, ...]
) -> list[str]:
    rows = list(_rows(described, schema, under))
    about = [] if not under else [str(described["description"]), ""]
    return [
        *(f"## {heading}", "", *about),
        *("| key | what it may be | default | variable | meaning |", "|---|---|---|---|---|"),
        *rows,
        "",
    ]


def _rows(
    described: dict[str, Any], schema: dict[str, Any], under: tuple[str, ...]
) -> Iterator[str]:
    for name, part in described["properties"].items():
        key, inner = (*under, name), _behind(schema, part)
        if "properties" in inner:
            # A table of its own under the top, or one within this one.
            if under:
                yield from _rows(inner, schema, key)
            continue
        default = f"`{json.dumps(part['default'])}`" if "default" in part else "none"
        variable = f"`{keys.variable_of(key)}`" if key in defaults() else "–"
        words = str(part.get("description") or inner.get("description") or "").replace("|", "\\|")
        yield f"| `{'.'.join(key)}` | {_may_be(schema, part)} | {default} | {variable} | {words} |"


def _behind(schema: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """What a part of the schema says, or the part that it refers to; of a list, of its items."""
    if part.get("type") == "array" and "$ref" in part.get("items", {}):
        part = part["items"]
    name = str(part.get("$ref", "")).rpartition("/")[2]
    found: dict[str, Any] = schema["$defs"][name] if name else part
    return found


def _may_be(schema: dict[str, Any], part: dict[str, Any]) -> str:
    """The type of a value, with the words or the bounds that it has."""
    behind = _behind(schema, part)
    if "enum" in behind:
        return ", ".join(f"`{each}`" for each in behind["enum"])
    if "anyOf" in behind:
        return " or ".join(dict.fromkeys(_may_be(schema, each) for each in behind["anyOf"]))
    if behind.get("type") == "array":
        return f"list of {_may_be(schema, behind.get('items', {}))}"
    if behind.get("type") == "object":
        return "table of free names"
    bounds = [
        f"{word} {behind[name]:g}"
        for name, word in (
            ("minimum", "from"),
            ("exclusiveMinimum", "above"),
            ("maximum", "to"),
            ("exclusiveMaximum", "below"),
        )
        if name in behind
    ]
    kind = behind.get("type", "any")
    # A duration or a size: people write it with its unit.
    return " ".join(["15m, 512MB, or a number" if isinstance(kind, list) else str(kind), *bounds])


# --- metrics --------------------------------------------------------------------------------------


def metrics_page() -> str:
    """Every metric, as the catalogue has it."""
    lines = [
        _MADE,
        "",
        "# Metrics",
        "",
        "What `GET /metrics` tells. How to scrape it, what the labels hold, alerts and a",
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
        "Facts in the past tense, announced as they happen. None holds a prompt, an answer or a",
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
