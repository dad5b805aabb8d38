"""What the README tells people to type does what the README says."""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from jackline import event_loop
from jackline.autopsy.replica import write_replica
from jackline.flows.api import run
from jackline.flows.authoring.flow_definition import load_flow
from jackline.flows.host import FlowHost
from jackline.flows.store import open_run_store
from jackline.testing.scripted_agents import ScriptedRunner
from tests.cli.commands import jackline

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)


def words(text: str) -> str:
    return " ".join(text.split())


def test_it_is_short_and_its_command_comes_early() -> None:
    lines = README.splitlines()
    assert len(lines) <= 120
    assert any("make run" in line for line in lines[:6])


def test_its_first_command_starts_a_gateway_and_says_what_to_do_next(tmp_path: Path) -> None:
    environment = {**os.environ, "JACKLINE_PORT": "0", "JACKLINE_STATE": str(tmp_path / "state")}
    with (
        subprocess.Popen(
            ["make", "run"],
            cwd=ROOT,
            env=environment,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as running,
        ExitStack() as stack,
    ):
        assert running.stderr is not None
        # A gateway that says something else is stopped, not waited for.
        stack.callback(jackline, "down", env={"JACKLINE_STATE": str(tmp_path / "state")})
        first = running.stderr.readline().decode()
        then = running.stderr.readline().decode()
        address = re.match(r"(http://127\.0\.0\.1:\d+)  sends to https://api.anthropic.com", first)
        assert address is not None, first
        assert f"ANTHROPIC_BASE_URL={address[1]} claude" in then
        told = jackline("status", env={"JACKLINE_STATE": str(tmp_path / "state")})
        assert told.out.startswith("Nothing is under way.")
        assert jackline("down", env={"JACKLINE_STATE": str(tmp_path / "state")}).code == 0
        assert running.wait(120) == 0


def test_its_incident_is_told_as_the_replica_tells_it() -> None:
    told = words(jackline("why", "--demo").out)
    shown = next(body for _, body in BLOCKS if "37 of 98 agents" in body)
    for line in ("37 of 98 agents were stopped by one cause", "It occurred 37 times in 34.5 s"):
        assert line in told
        assert line in words(shown)
    for figure in re.findall(r"[\d,]{5,}", shown):
        assert figure in told


def test_its_why_reads_the_newest_session(tmp_path: Path) -> None:
    write_replica(tmp_path)
    answer = jackline("why", env={"HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": "", "CODEX_HOME": ""})
    assert answer.code == 0
    assert answer.out.startswith("37 of 98 agents")


def test_its_example_of_explain_is_what_explain_says() -> None:
    block = next(body for _, body in BLOCKS if body.startswith("$ jackline why --text"))
    command, _, told = block.partition("\n")
    text = re.search(r'"(.+)"', command)
    assert text is not None
    answer = jackline("why", "--now", "2026-11-15T12:00:00+02:00", "--text", text[1])
    assert words(answer.out) == words(told)


def test_its_flow_runs(tmp_path: Path) -> None:
    block = next(body for language, body in BLOCKS if language == "python")
    (tmp_path / "review.py").write_text(block)
    flow = load_flow(str(tmp_path / "review.py"))
    runner = ScriptedRunner()
    host = FlowHost(open_run_store("sqlite:///:memory:"), lambda _run: {"messages": runner})
    outcome = event_loop.run(run(flow, ["a.py", "b.py"], host=host))
    assert outcome.ok
    assert runner.begun[:2] == ["a.py", "b.py"]
    assert "2 of 2 ok" in str(outcome.value)


@pytest.mark.parametrize("name", re.findall(r"`((?:tests|bench|docs)/[\w./-]+)`", README))
def test_what_it_points_to_is_there(name: str) -> None:
    assert (ROOT / name).exists() or list(ROOT.glob(f"{name}*"))


def test_every_document_that_is_linked_exists() -> None:
    for document in ROOT.glob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text("utf-8")):
            assert (document.parent / target).exists(), (document.name, target)
