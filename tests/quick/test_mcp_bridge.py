"""A client that only knows stdio reaches the service's tools, also after the service was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from mcp import ClientSession, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client

from jackline.assembly import StateDir
from tests.assembly.world import run


def test_the_service_is_started_and_found_again_after_a_kill(tmp_path: Path) -> None:
    environ = {
        **os.environ,
        "JACKLINE_STATE": str(tmp_path / "state"),
        "JACKLINE_PORT": "0",
        "JACKLINE_UPSTREAM": "http://127.0.0.1:9",
    }
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "jackline", "mcp"], env=environ
    )
    state = StateDir(tmp_path / "state")

    async def ask(client: ClientSession) -> str:
        told = await client.call_tool("status", {})
        return str(told.content[0].text)  # type: ignore[union-attr]

    async def main() -> None:
        async with (
            stdio_client(server) as (read, write),
            ClientSession(read, write) as client,
        ):
            await client.initialize()
            assert (await ask(client)).startswith("Nothing is under way.")
            first = state.running()
            assert first is not None
            os.kill(first.pid, signal.SIGKILL)
            # A connection that the system took just before the death ends in an honest error.
            with suppress(MCPError):
                await ask(client)
            assert (await ask(client)).startswith("Nothing is under way.")
            second = state.running()
            assert second is not None
            assert second.pid != first.pid

    try:
        run(main())
    finally:
        subprocess.run(
            [sys.executable, "-m", "jackline", "down"],
            env=environ,
            check=False,
            capture_output=True,
        )
