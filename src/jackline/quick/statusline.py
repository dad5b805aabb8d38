"""`jackline statusline`: one line for Claude Code's status line.

Rules: (1) it prints something short or nothing, and always succeeds; (2) a service that does not
answer within a moment is shown as down, with the way back to the bare client.
Not here: the words (control/status.py).
"""

from __future__ import annotations

import sys

from jackline.quick.service import ask, find_service

_SECONDS = 0.25
DOWN = "jackline is down: jackline up, or back to the bare client: jackline disconnect claude-code"


def statusline(arguments: list[str]) -> int:
    """Print the line; the client's own words on stdin say which session it is for."""
    session = b"" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read()
    word = find_service(arguments)
    told = None
    if word is not None:
        told = ask(word, "/_jackline/statusline", session or b"{}", seconds=_SECONDS)
    line = DOWN if told is None else told.decode("utf-8", "replace")
    sys.stdout.buffer.write(line.strip().encode() + b"\n")
    return 0
