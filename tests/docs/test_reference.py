"""The reference says what the code has, and nothing that it has not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import get_args

import click
import pytest

from jackline import events
from jackline.agents.outcome import Ending
from jackline.cli.main import jackline
from jackline.config.declaration import DEFAULTS, variable_of
from jackline.config.keys import dotted
from jackline.errors import JacklineError
from jackline.failures import Kind
from jackline.flows import run_events
from jackline.flows.execution.gate import GateState
from jackline.states import STATES as ALL_STATES
from jackline.states import (
    AgentState,
    CallState,
    DerivedState,
    LaneState,
    ResourceState,
    RunState,
    State,
    looks,
)
from jackline.telemetry.metrics import METRICS
from tests.docs.pages import ROOT, SOURCES, text_of

CODE = "\n".join(path.read_text("utf-8") for path in sorted(SOURCES.rglob("*.py")))


def verbs(group: click.Group, path: str = "jackline") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from verbs(command, f"{path} {name}")


def section(page: str, heading: str) -> str:
    found = re.search(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE
    )
    assert found is not None, f"the page has no section {heading}"
    return found[1]


def test_pages_that_are_made_from_code_are_up_to_date() -> None:
    made = [sys.executable, "docs/make_reference.py", "--check"]
    done = subprocess.run(made, cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_every_verb_has_a_section_and_every_section_is_a_verb() -> None:
    headings = re.findall(r"^## (.+)$", text_of("reference/cli.md"), re.MULTILINE)
    assert headings == [path for path, command in verbs(jackline) if not command.hidden]


@pytest.mark.parametrize(
    ("path", "command"),
    list(verbs(jackline)),
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_every_flag_of_a_verb_is_told_and_no_other(path: str, command: click.Command) -> None:
    told = section(text_of("reference/cli.md"), path)
    rows = re.findall(r"^\| (`.+?) \|", told, re.MULTILINE)
    flags = {flag for row in rows for flag in re.findall(r"`(-[\w-]+)`", row)}
    options = [each for each in command.params if isinstance(each, click.Option)]
    assert flags == {name for each in options if not each.hidden for name in each.opts}


def test_every_setting_is_in_the_table_with_its_variable_and_no_other() -> None:
    rows = re.findall(
        r"^\| `([a-z_.]+)` \| .+? \| .+? \| (`\w+`|–) \|",
        text_of("reference/settings.md"),
        re.MULTILINE,
    )
    told = {key: variable.strip("`") for key, variable in rows if variable != "–"}
    assert len(told) == sum(variable != "–" for _, variable in rows)
    assert told == {dotted(key): variable_of(key) for key in DEFAULTS}


def test_every_metric_has_a_section_and_every_section_is_a_metric() -> None:
    headings = re.findall(r"^## (.+)$", text_of("reference/metrics.md"), re.MULTILINE)
    assert headings == [metric.name for metric in METRICS]


def test_every_event_is_told_and_no_other() -> None:
    kinds = [*get_args(events.Event), *get_args(run_events.FlowEvent)]
    headings = re.findall(r"^### (.+)$", text_of("reference/events.md"), re.MULTILINE)
    assert headings == [kind.__name__ for kind in kinds]


def test_every_path_about_jackline_itself_is_told_and_no_other() -> None:
    page = section(text_of("reference/http.md"), "Paths about Jackline itself")
    told = set(re.findall(r"^\| `(?:GET|POST) (/\S*)`", page, re.MULTILINE))
    known = set(re.findall(r'"(/_jackline/[a-z0-9/]*[a-z])"', CODE))
    assert told == known | {"/", "/healthz", "/readyz", "/metrics", "/mcp"}


def test_every_header_of_ours_is_told_and_no_other() -> None:
    told = set(re.findall(r"`(x-jackline-[a-z-]+)`", text_of("reference/http.md")))
    known = set(re.findall(r"x-jackline-[a-z]+(?:-[a-z]+)*", CODE))
    assert told == known


def test_every_exit_code_is_told_and_no_other() -> None:
    page = section(text_of("errors.md"), "Exit codes of the command line")
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    of_errors = {kind.exit_code for kind in _errors()}
    helps = " ".join(command.help or "" for _, command in verbs(jackline))
    sentences = re.findall(r"Exit codes: (.*?)\.(?:\s|$)", " ".join(helps.split()))
    of_verbs = {int(code) for each in sentences for code in re.findall(r"(?:^|[,;] )(\d+) ", each)}
    assert told == {0, 130} | of_errors | of_verbs


def _errors(kind: type[JacklineError] = JacklineError) -> Iterator[type[JacklineError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _errors(each)


def test_every_error_on_the_page_is_an_error_of_the_code() -> None:
    named = set(re.findall(r"^`(\w+Error)`", text_of("errors.md"), re.MULTILINE))
    assert named == {kind.__name__ for kind in _errors() if kind.__module__ == "jackline.errors"}


STATES: list[tuple[str, type[State]]] = [
    ("Lane states", LaneState),
    ("Agent states", AgentState),
    ("Run states", RunState),
    ("States of agents and steps of a run", CallState),
    ("Derived states", DerivedState),
    ("Resource states", ResourceState),
]
WORDS: list[tuple[str, type[StrEnum]]] = [
    *STATES,
    ("How an agent ended", Ending),
    ("What went wrong", Kind),
]


@pytest.mark.parametrize(("heading", "words"), WORDS, ids=[heading for heading, _ in WORDS])
def test_every_state_is_explained_and_no_other(heading: str, words: type[StrEnum]) -> None:
    listed = re.findall(r"^\| `([^`]+)` \|", section(text_of("glossary.md"), heading), re.MULTILINE)
    assert listed == [each.value for each in words]


@pytest.mark.parametrize(("heading", "states"), STATES, ids=[heading for heading, _ in STATES])
def test_the_glossary_has_the_meanings_of_the_code(heading: str, states: type[State]) -> None:
    rows = re.findall(
        r"^\| `[^`]+` \| (.*) \|$", section(text_of("glossary.md"), heading), re.MULTILINE
    )
    assert rows == [each.meaning for each in states]


def test_states_of_one_name_look_alike() -> None:
    for state in (each for table in ALL_STATES for each in table):
        assert looks()[state.value] == (state.glyph, state.tone)


def test_every_ending_of_a_call_is_explained_and_no_other() -> None:
    page = section(text_of("glossary.md"), "How a call ended")
    told = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    sentence = " ".join((events.CallEnded.__doc__ or "").split())
    assert all(word in sentence for word in told)
    listed = re.search(r"`outcome` is (.*?)\. ", sentence)
    assert listed is not None
    plain = re.sub(r" \([^)]*\)", "", listed[1]).replace(" or ", ", ")
    assert told == plain.split(", ")


def test_the_positions_of_a_runs_gate_are_those_of_its_diagram() -> None:
    drawn = re.findall(r"^    (\S+) --> (\w+)", text_of("walls.md"), re.MULTILINE)
    assert {word for pair in drawn for word in pair} - {"[*]"} == {each.value for each in GateState}


def test_the_tools_for_models_are_told_and_no_other() -> None:
    told = re.findall(
        r"^\| `(\w+)` \|", section(text_of("claude-code.md"), "The tools"), re.MULTILINE
    )
    tools = "\n".join(p.read_text("utf-8") for p in (SOURCES / "mcp_server").glob("*_tools.py"))
    assert set(told) == set(re.findall(r'ModelTool\(\s*"(\w+)"', tools))


def test_the_hooks_of_the_plugin_are_told_and_no_other() -> None:
    hooks = json.loads((ROOT / "plugin" / "hooks" / "hooks.json").read_text("utf-8"))["hooks"]
    told = re.findall(r"\(`(\w+)`", section(text_of("claude-code.md"), "The hooks"))
    assert set(told) == set(hooks)


def test_the_slash_commands_of_the_plugin_are_told_and_no_other() -> None:
    commands = {path.stem for path in (ROOT / "plugin" / "commands").glob("*.md")}
    page = section(text_of("claude-code.md"), "Slash commands")
    assert set(re.findall(r"`/jackline:(\w+)", page)) == commands
