"""The real Claude Code does a task with tools on a foreign server, and notices nothing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.dialects.translation.aimock_server import AimockServer
from tests.dialects.translation.bridge import DIALECTS, Bridge, Dialect
from tests.real_clients.clients import PATIENCE, claude_binary, environment


@pytest.mark.real_client
@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_claude_code_runs_parallel_tools_to_the_end_on_an_openai_server(
    dialect: Dialect, tmp_path: Path
) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    with AimockServer() as server, Bridge(dialect, server.port) as bridge:
        done = subprocess.run(
            [
                str(claude_binary()),
                *("-p", "TASK: run both", "--max-turns", "6"),
                *("--output-format", "stream-json", "--verbose", "--allowedTools", "Bash"),
            ],
            cwd=project,
            env=environment(home, bridge.url, subscription=False),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-2000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["is_error"] is False
    assert result["result"] == "Both commands ran. ALL-FINE"
    assert bridge.refused == []
    results = [
        block
        for message in bridge.asked[-1]["messages"]
        for block in (message["content"] if isinstance(message["content"], list) else ())
        if block["type"] == "tool_result"
    ]
    assert len(results) == 2
    assert [block.get("is_error", False) for block in results] == [False, True]
    assert "alpha-done" in str(results[0]["content"])
    assert "beta-done" in str(results[1]["content"])
