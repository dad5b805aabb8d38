"""A small MCP server for the tests: over stdio, or over HTTP on the port that is given."""

from __future__ import annotations

import os
import sys

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

server = MCPServer("adder")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def fail(why: str) -> str:
    """Fails, and tells for which agent it works."""
    raise ToolError(f"{why} {os.environ.get('JACKLINE_TASK', '')}")


@server.tool()
def die() -> str:
    """Ends the whole server, as a crash would."""
    os._exit(7)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
