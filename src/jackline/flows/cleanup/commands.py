"""Run one shell command of a clean-up, within a time limit.

Laws: (1) it never raises for what the command did: trouble is a sentence; (2) a command that takes
too long is ended with all that it started; (3) no more than its last line of errors is told.
Not here: which command and when (acting.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping

from jackline.clock import Clock

_TOLD = 200


async def run_command(
    command: str,
    *,
    told: bytes,
    environment: Mapping[str, str],
    cwd: str,
    limit: float,
    clock: Clock,
) -> str:
    """Why the command failed; empty when it did not. `told` is its standard input."""
    try:
        process = await asyncio.create_subprocess_shell(
            command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            cwd=cwd or None,
            env={**os.environ, **environment},
            # Its own group, so that a limit ends the children too, and Ctrl-C does not end it.
            start_new_session=sys.platform != "win32",
        )
    except (OSError, ValueError) as error:
        return f"it could not be started: {error}"
    talking = asyncio.ensure_future(process.communicate(told))
    limiting = asyncio.ensure_future(clock.sleep(limit))
    try:
        await asyncio.wait({talking, limiting}, return_when=asyncio.FIRST_COMPLETED)
        if not talking.done():
            _end(process)
            await talking
            return f"it took longer than {limit:g} seconds and was ended"
        _, errors = await talking
    except asyncio.CancelledError:
        _end(process)
        await asyncio.wait({talking})
        raise
    finally:
        limiting.cancel()
    if process.returncode == 0:
        return ""
    last = errors.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it said nothing"]
    return f"exit {process.returncode}: {last[0][-_TOLD:]}"


def _end(process: asyncio.subprocess.Process) -> None:
    # It may have ended in the meantime, which is what we want.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
