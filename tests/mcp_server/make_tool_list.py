"""Write the list of tools that the bridge gives while no service runs: `tools.json`.

    python -m tests.mcp_server.make_tool_list

Rules: (1) it is what a running service lists, and a test compares the two.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from jackline import mcp_server
from tests.assembly.world import gateway, run
from tests.mcp_server.test_protocol import NOBODY, session

LIST = Path(mcp_server.__file__).with_name("tools.json")


async def listed(folder: Path) -> dict[str, Any]:
    """What a service lists."""
    async with gateway(folder, NOBODY) as service, session(service) as client:
        told = await client.list_tools()
    tools = [tool.model_dump(by_alias=True, exclude_none=True) for tool in told.tools]
    return {"tools": tools}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        tools = run(listed(Path(folder)))
    LIST.write_text(json.dumps(tools, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
