"""A sub-agent that died of an API error is reported to its parent as what it is, by the plugin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jackline.clients.plugin_files import marketplace_files
from jackline.simulator.conversation import Asked
from jackline.simulator.mind import Fail, Mind, Reply, Rule, Say, fan_out
from jackline.testing import SimulatedProvider
from tests.real_clients.clients import PATIENCE, _environment, claude_binary
from tests.real_clients.old_client import old_claude_binary

pytestmark = [pytest.mark.real_client, pytest.mark.xdist_group("real_client")]
BINARIES = {"2.1.325": claude_binary, "2.1.197": old_claude_binary}


def written_plugin(folder: Path) -> Path:
    for path, text in marketplace_files([sys.executable, "-m", "jackline"]).items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder / "plugin"


class Listener:
    """Keeps what the main thread is told, and answers it."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def __call__(self, asked: Asked) -> Reply:
        self.heard.append(json.dumps(asked.body.get("messages"), ensure_ascii=False))
        return Say("All parts are back.")


@pytest.mark.parametrize("binary", BINARIES.values(), ids=BINARIES)
def test_a_parent_is_told_that_its_sub_agent_died_and_how_to_go_on(
    binary: Callable[[], Path], tmp_path: Path
) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    listener = Listener()
    look = ("Bash", {"command": "echo looked", "description": "look"})
    faulty = "messages: text content blocks must be non-empty"
    mind = Mind(
        (
            Rule(fan_out(["PART-0", "PART-1"], background=False), sub_agent=False, turn=0),
            Rule(Say("Looking.", (look,)), sub_agent=True, prompt="PART-0", turn=0),
            Rule(Fail(400, "invalid_request_error", faulty), sub_agent=True, prompt="PART-0"),
            Rule(Say("Part one is fine."), sub_agent=True),
            Rule(listener),
        )
    )
    with SimulatedProvider(mind=mind) as provider:
        service = {
            **os.environ,
            "JACKLINE_STATE": str(tmp_path / "state"),
            "JACKLINE_PORT": "0",
            "JACKLINE_UPSTREAM": provider.url,
        }
        own = [sys.executable, "-m", "jackline"]
        subprocess.run([*own, "up", "-d"], env=service, check=True, capture_output=True)
        try:
            url = json.loads((tmp_path / "state" / "gateway.json").read_text())["url"]
            done = subprocess.run(
                [
                    *(str(binary()), "-p", "TASK: look at all parts"),
                    *("--output-format", "stream-json", "--verbose"),
                    *("--allowedTools", "Bash,Agent"),
                    *("--plugin-dir", str(written_plugin(tmp_path / "market"))),
                ],
                cwd=project,
                env={
                    **_environment(home, url, subscription=False),
                    "JACKLINE_STATE": str(tmp_path / "state"),
                },
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PATIENCE,
                check=False,
            )
        finally:
            subprocess.run([*own, "down"], env=service, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
    told = listener.heard[-1]
    assert "did not finish: terminated_by refused" in told
    assert "had finished 1 turns with 1 tool calls" in told
    assert "continue_from_task_id=" in told
    assert told.count("did not finish") == 1 or binary is old_claude_binary
    assert "Part one is fine." in "".join(listener.heard)


@pytest.mark.parametrize("binary", BINARIES.values(), ids=BINARIES)
def test_the_plugin_is_valid(binary: Callable[[], Path], tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    plugin = written_plugin(tmp_path / "market")
    for folder in (plugin, plugin.parent):
        done = subprocess.run(
            [str(binary()), "plugin", "validate", str(folder)],
            env=_environment(home, "http://127.0.0.1:1", subscription=False),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
