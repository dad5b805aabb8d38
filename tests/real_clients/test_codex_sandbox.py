"""In its real sandbox, a command of Codex writes nothing that another agent's program obeys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import gettempdir
from uuid import uuid4

import pytest

from jackline.agents.codex import CodexRunner
from jackline.agents.outcome import Ending
from jackline.agents.process.child import start_files
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.reply_script import Reply, Say
from tests.agents.process.doubles import FreeLeave, Pages
from tests.agents.process.world import World
from tests.assembly.world import run
from tests.real_clients.codex import codex_binary, sandbox_folder

pytestmark = [
    pytest.mark.real_client,
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox of another system"),
]
TRIES = """
for file in {files}; do
  if (echo x > "$file") 2> /dev/null; then echo "WROTE:$file:"; fi
done; echo ALL-TRIED
"""


def test_a_command_writes_to_its_folder_and_its_own_temporary_folder_alone(tmp_path: Path) -> None:
    sandbox = sandbox_folder()
    can = subprocess.run([sandbox / "bwrap", "--ro-bind", "/", "/", "true"], check=False)
    if can.returncode:
        pytest.skip("this machine allows no sandbox")
    shared = Path(gettempdir()) / f"jackline-{uuid4().hex}"
    with start_files() as another:
        theirs = another / "mcp.json"
        theirs.write_text("{}")
        own = world_of(tmp_path)
        open_ = ["made", "$TMPDIR/made"]
        closed = [theirs, shared, own.home / "made", own.project / ".git" / "made"]
        files = " ".join(f'"{each}"' for each in (*open_, *closed))

        def tries(asked: ClientRequest) -> Reply:
            if "ALL-TRIED\\n" in json.dumps(dict(asked.body)):
                return Say("Done.")
            return Say("", (("exec_command", {"cmd": TRIES.format(files=files)}),))

        own.mind = tries

        async def main() -> None:
            async with own.open():
                path = f"{sandbox}{os.pathsep}{os.environ['PATH']}"
                runner = CodexRunner(
                    own.url,
                    program=str(own.program),
                    environment={**own.environment, "PATH": path},
                )
                outcome = await runner.run(own.task(tool_names=None), Pages(), FreeLeave())
                assert (outcome.terminated_by, outcome.value) == (Ending.COMPLETION, "Done.")

        run(main())
        assert theirs.read_text() == "{}"
    said = json.dumps(dict(own.received[-1].body))
    assert said.count("WROTE:") - said.count("WROTE:$file") == len(open_)
    assert (own.project / "made").exists()
    assert not any(each.exists() for each in closed)


def world_of(folder: Path) -> World:
    """A project with a repository, in a home of its own."""
    world = World(folder, codex_binary(), lambda _asked: Say("Done."), codex=True)
    (world.project / ".git").mkdir(parents=True)
    world.home.mkdir()
    return world
