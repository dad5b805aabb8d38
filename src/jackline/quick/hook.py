"""`jackline hook`: pass what a client tells its hooks on to the service, and its answer back.

Laws: (1) exit code 0 always: a hook of ours never blocks the client; (2) a service that is down is
told of once, then there is silence until it has been up again; (3) nothing is kept of the input.
Not here: what is answered (claude_code/hooks).
"""

from __future__ import annotations

import os
import sys

from jackline.quick.asking import ask
from jackline.quick.finding import state_folder, word_of_service

# A service that looks again at a transcript answers within two; the plugin waits for five.
_SECONDS = 3.5
NOTICE = "hooks-told-down"
"""A file in the state folder: that the service is down was told. A starting service removes it."""
_DOWN = (
    b'{"systemMessage": "Jackline is not running, so sub-agents that die of an API error are not'
    b' reported as such. Start it with: jackline up"}\n'
)


def hook(arguments: list[str]) -> int:
    """Answer one hook."""
    asked = sys.stdin.buffer.read()
    word = word_of_service(arguments)
    told = None
    if word is not None:
        told = ask(word, "/_jackline/hook", asked, seconds=_SECONDS, processes=_above())
    if told is None:
        told = _down_notice(state_folder(arguments))
    sys.stdout.buffer.write(told)
    return 0


def _above() -> str:
    """The processes above this one: the client, and the shell by which it may have called us."""
    above = [os.getppid()]
    try:
        with open(f"/proc/{above[0]}/stat", "rb") as file:  # noqa: PTH123
            above.append(int(file.read().rpartition(b")")[2].split()[1]))
    except (OSError, ValueError, IndexError):
        pass  # a system that does not tell: then only the nearest is known
    return ",".join(str(pid) for pid in above if pid > 1)


def _down_notice(folder: str) -> bytes:
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        path = os.path.join(folder, NOTICE)  # noqa: PTH118
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError:  # told before, or nothing can be kept: better silent than at every call
        return b""
    return _DOWN
