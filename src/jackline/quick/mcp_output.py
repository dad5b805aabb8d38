"""Write MCP messages to the client, whole, from any thread.

Rules: (1) one message per line, never two mixed; (2) after the client has gone, nothing is written.
Not here: the messages (mcp_bridge.py, mcp_link.py).
"""

from __future__ import annotations

import json
import os
from _thread import allocate_lock

_STDOUT = 1
# The lock of `threading` itself, without loading all of it before the first word.
_one_at_a_time = allocate_lock()


def print_message(message: dict[str, object]) -> None:
    """One line of stdout, written at once."""
    left = json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
    with _one_at_a_time:
        while left:
            # Not by sys.stdout: a thread that waits in it keeps the process from ending.
            try:
                left = left[os.write(_STDOUT, left) :]
            except OSError:
                return  # the client has gone; the reader of stdin notices it, too
