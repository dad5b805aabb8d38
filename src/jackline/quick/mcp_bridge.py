"""`jackline mcp`: a client's stdio on one side, the service's tools over HTTP on the other.

Rules: (1) the client gets its `initialize` answer at once, before the service is found or started;
(2) messages pass verbatim, one JSON document per line, in order; answers come as they are ready;
(3) stdout carries the protocol alone.
Not here: the connection to the service (mcp_link.py), the tools (mcp_server/).
"""

from __future__ import annotations

import json
import sys

from jackline import __version__
from jackline.mcp_server.handshake import initialize_result
from jackline.quick.mcp_output import print_message

_NO_JSON = -32700
_NO_REQUEST = -32600
_NO_SUCH_METHOD = -32601
_BAD_PARAMS = -32602


def bridge(arguments: list[str]) -> int:
    """Pass messages on until the client closes its side."""
    link = None
    for line in sys.stdin.buffer:
        message = _parsed(line) if line.strip() else None
        if message is None:
            continue
        if message.get("method") == "initialize" and "id" in message:
            told = initialize_result(message.get("params"), __version__)
            if told is None:
                words = "initialize needs protocolVersion, capabilities and clientInfo"
                _refuse(message["id"], _BAD_PARAMS, words)
                continue
            print_message({"jsonrpc": "2.0", "id": message["id"], "result": told})
            # Loaded now: the client has its welcome, and reads it meanwhile.
            from jackline.quick.mcp_link import McpLink  # noqa: PLC0415

            link = link or McpLink(arguments)
            link.open(line)
        elif link is not None:
            link.pass_on(line, message)
        elif "id" in message and "method" in message:
            # By the first of these, newer clients know that they have to open a session, and do.
            if message["method"] == "server/discover":
                _refuse(message["id"], _NO_SUCH_METHOD, "Method not found")
            else:
                _refuse(message["id"], _NO_REQUEST, "Jackline: send `initialize` first.")
    if link is not None:
        link.close()
    return 0


def _refuse(request: object, code: int, words: str) -> None:
    print_message({"jsonrpc": "2.0", "id": request, "error": {"code": code, "message": words}})


def _parsed(line: bytes) -> dict[str, object] | None:
    """The message; None when it is none, which the client has then been told."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        _refuse(None, _NO_JSON, "Jackline: this line is no JSON document.")
        return None
    if not isinstance(message, dict):
        _refuse(None, _NO_REQUEST, "Jackline: give one message a line, as an object.")
        return None
    return message
