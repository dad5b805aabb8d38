"""`jackline mcp`: a client's stdio on one side, the service's tools over HTTP on the other.

Rules: (1) the client gets its `initialize` answer at once, before the service is found or started;
(2) messages pass verbatim, one JSON document per line, in order; answers come as they are ready;
(3) stdout carries the protocol alone: one whole message per line, from any thread.
"""

from __future__ import annotations

import json
import os
import sys
from _thread import allocate_lock

from jackline import __version__
from jackline.mcp_server.handshake import initialize_result

_NO_JSON = -32700
_NO_REQUEST = -32600
_NO_SUCH_METHOD = -32601
_BAD_PARAMS = -32602
_STDOUT = 1
# The lock of `threading` itself, without loading all of it before the first answer.
_one_at_a_time = allocate_lock()


def bridge(arguments: list[str]) -> int:
    """Pass messages on until the client closes its side."""
    link = None
    for line in sys.stdin.buffer:
        message = _parsed(line) if line.strip() else None
        if message is None:
            continue
        if message.get("method") == "initialize" and "id" in message:
            result = initialize_result(message.get("params"), __version__)
            if result is None:
                text = "initialize needs protocolVersion, capabilities and clientInfo"
                _refuse(message["id"], _BAD_PARAMS, text)
                continue
            _print_message({"jsonrpc": "2.0", "id": message["id"], "result": result})
            # Loaded now: the client has its answer, and reads it meanwhile.
            from jackline.quick.mcp_link import McpLink  # noqa: PLC0415

            link = link or McpLink(arguments, _print_message)
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


def _refuse(request: object, code: int, text: str) -> None:
    _print_message({"jsonrpc": "2.0", "id": request, "error": {"code": code, "message": text}})


def _print_message(message: dict[str, object]) -> None:
    left = json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
    with _one_at_a_time:
        while left:
            # Not by sys.stdout: a thread that waits in it keeps the process from ending.
            try:
                left = left[os.write(_STDOUT, left) :]
            except OSError:
                return  # the client has gone; the reader of stdin notices it, too


def _parsed(line: bytes) -> dict[str, object] | None:
    """The message; None when it is none, which is then answered with an error."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        _refuse(None, _NO_JSON, "Jackline: this line is no JSON document.")
        return None
    if not isinstance(message, dict):
        _refuse(None, _NO_REQUEST, "Jackline: give one message a line, as an object.")
        return None
    return message
