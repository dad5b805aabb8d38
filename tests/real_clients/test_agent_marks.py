"""A server that the real Codex starts by the user's settings knows for which agent it works."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from jackline.agents.codex import CodexRunner
from jackline.agents.outcome import Ending
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.reply_script import Reply, Say
from tests.agents.process.doubles import FreeLeave, Pages
from tests.agents.process.world import World
from tests.assembly.world import run
from tests.real_clients.codex import codex_binary

pytestmark = [
    pytest.mark.real_client,
    pytest.mark.skipif(os.name == "nt", reason="the server is a command of a POSIX shell"),
]
# As much of a server as tells what it was given, and what our bridge would find.
SERVER = """
import os, sys
from jackline.quick.mcp_link import parent_task
own = os.environ.get("JACKLINE_TASK", ""), os.environ.get("MINE", "")
os.environ.pop("JACKLINE_TASK", None)
open(sys.argv[1], "w").write(" ".join((*own, parent_task())))
"""


def answer(_asked: ClientRequest) -> Reply:
    return Say("Done.")


def test_codex_tells_a_server_of_the_users_for_which_agent_it_works(tmp_path: Path) -> None:
    world = World(tmp_path, codex_binary(), answer, codex=True)
    config = world.home / ".codex" / "config.toml"
    config.parent.mkdir(parents=True)
    received = tmp_path / "heard"
    args = json.dumps(["-c", SERVER, str(received)])
    config.write_text(
        f"[mcp_servers.mine]\ncommand = {json.dumps(sys.executable)}\n"
        f'args = {args}\nenv_vars = ["MINE"]\n'
    )

    async def main() -> None:
        async with world.open():
            runner = CodexRunner(
                world.url,
                program=str(world.program),
                environment={**world.environment, "MINE": "mine"},
            )
            outcome = await runner.run(world.task(tool_names=None), Pages(), FreeLeave())
            assert outcome.terminated_by is Ending.COMPLETION

    run(main())
    found_above = "task-1" if sys.platform == "linux" else ""
    assert received.read_text() == f"task-1 mine {found_above}"
