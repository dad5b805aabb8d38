"""`jackline hook` and `jackline statusline`: ask the service, and print what it answers.

Rules: (1) exit code 0 always: a hook of ours never blocks the client; (2) a service that is down is
reported once to hooks, then there is silence until it has been up again; (3) one that hangs is
waited for once, then hardly at all until it answers again; (4) nothing of the input is saved.
"""

from __future__ import annotations

import os
import sys

from jackline.private_files import make_private_folder, open_private
from jackline.quick.service import find_service, state_folder

# A service that looks again at a transcript answers within two; the plugin waits for five.
_SECONDS = 3.5
_SECONDS_AFTER_SILENCE = 0.3
NOTICE = "hooks-down-reported"
"""A file in the state folder: it was reported that the service is down. An answer removes it."""
_DOWN = (
    b'{"systemMessage": "Jackline is not running, or cannot prove that it is yours (jackline status'
    b" says which), so sub-agents that die of an API error are not"
    b" reported as such. Start it with: jackline up -d; or go back to the bare client with:"
    b' jackline disconnect"}\n'
)


def hook(arguments: list[str]) -> int:
    """Answer one hook."""
    hook_input = sys.stdin.buffer.read()
    notice = os.path.join(state_folder(arguments), NOTICE)  # noqa: PTH118
    was_silent = os.path.exists(notice)  # noqa: PTH110
    seconds = _SECONDS_AFTER_SILENCE if was_silent else _SECONDS
    service = find_service(arguments)
    answer = None
    if service is not None:
        # The processes above this one: the client, and the shell by which it may have called us.
        above = [os.getppid()]
        try:
            with open(f"/proc/{above[0]}/stat", "rb") as file:  # noqa: PTH123
                above.append(int(file.read().rpartition(b")")[2].split()[1]))
        except (OSError, ValueError, IndexError):
            pass  # a system without this file: then only the nearest is known
        processes = ",".join(str(pid) for pid in above if pid > 1)
        answer = service.ask("/_jackline/hook", hook_input, seconds=seconds, processes=processes)
    if answer is None:
        answer = b""
        if not was_silent:
            try:
                make_private_folder(os.path.dirname(notice))  # noqa: PTH120
                os.close(open_private(notice, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                answer = _DOWN
            except OSError:
                pass  # reported before, or nothing can be saved: better silent than at every call
    elif was_silent:
        try:  # noqa: SIM105 -- loading contextlib takes longer than all of this
            os.unlink(notice)  # noqa: PTH108
        except OSError:
            pass  # another hook was first, or the folder is not ours: then waiting stays short
    sys.stdout.buffer.write(answer)
    return 0


_LINE_SECONDS = 0.25
DOWN = "jackline is down: start it with jackline up -d, or do without it: jackline disconnect"


def statusline(arguments: list[str]) -> int:
    """Print one line for Claude Code's status line; the JSON on stdin names the session."""
    session = b"" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read()
    service = find_service(arguments)
    answer = None
    if service is not None:
        answer = service.ask("/_jackline/statusline", session or b"{}", seconds=_LINE_SECONDS)
    line = DOWN if answer is None else answer.decode("utf-8", "replace")
    sys.stdout.buffer.write(line.strip().encode() + b"\n")
    return 0
