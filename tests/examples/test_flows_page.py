"""docs/flows.md: every program on the page runs, and every command on it exists."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from jackline.agents.outcome import Ending
from jackline.cli.main import jackline as cli
from jackline.simulator.reply_script import ReplyScript
from jackline.testing import SimulatedProvider

PAGE = (Path(__file__).parents[2] / "docs" / "flows.md").read_text("utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SHELL = [
    line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()
]
SPOKEN = re.findall(r"`(jackline [a-z][^`]*)`", PAGE)


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with SimulatedProvider(script=ReplyScript(obliging=True)) as provider:
        given = {
            **os.environ,
            "JACKLINE_STATE": str(tmp_path_factory.mktemp("state")),
            "JACKLINE_PORT": "0",
            "JACKLINE_UPSTREAM": provider.url,
            "ANTHROPIC_API_KEY": "none",
        }
        try:
            yield given
        finally:
            subprocess.run([sys.executable, "-m", "jackline", "down"], env=given, check=True)


@pytest.mark.parametrize(
    "program", PROGRAMS, ids=lambda text: re.findall(r"async def (\w+)", text)[0]
)
def test_every_program_on_the_page_runs(
    program: str, environ: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "program.py"
    path.write_text(program, "utf-8")
    is_script = "__main__" in program
    words = [str(path)] if is_script else ["-m", "jackline", "run", str(path), "--quiet"]
    done = subprocess.run(
        [sys.executable, *words],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "it has a result"
    # What a program on the page is said to print, it prints.
    for said in re.findall(r"print\(.*\)  # (.+)", program):
        assert done.stdout.strip() == said
    if "outcome.terminated_by, outcome.task_id" in program:
        assert done.stdout.startswith("completion ")
    if "ends.log" in program:
        assert (tmp_path / "ends.log").read_text() == "worker completion\n"


@pytest.mark.parametrize(
    "line", [line for line in (*SHELL, *SPOKEN) if line.startswith("jackline ")]
)
def test_every_command_on_the_page_exists_with_its_options(line: str) -> None:
    _, verb, *words = shlex.split(line.removesuffix("&"))
    assert isinstance(cli, click.Group)
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None, verb
    options = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    own = {"--topic", "--readers"} if verb == "run" else set()
    assert {word for word in words if word.startswith("-")} <= options | own


def test_every_ending_and_exit_code_is_on_the_page() -> None:
    assert [ending.value for ending in Ending if f"`{ending.value}`" not in PAGE] == []
    for words in ("0 ok", "1 failed", "2 usage", "3 finished", "75 parked", "130"):
        assert words in PAGE
