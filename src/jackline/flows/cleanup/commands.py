"""Run one command of a clean-up, within a time limit: a line by the shell, or words without one.

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
from collections.abc import Mapping, Sequence
from functools import partial
from tempfile import TemporaryFile

from jackline.clock import Clock

_TOLD = 200


async def run_command(
    command: str | Sequence[str],
    *,
    told: bytes,
    environment: Mapping[str, str],
    cwd: str,
    limit: float,
    clock: Clock,
) -> str:
    """Why the command failed; empty when it did not.

    `told` is its standard input, `environment` all of its variables.
    """
    # Files, not pipes: a command need not read what it is told, and a child that it leaves behind
    # cannot keep us waiting for the end of its output.
    with TemporaryFile() as told_file, TemporaryFile() as errors:
        told_file.write(told)
        told_file.seek(0)
        try:
            starting = (
                partial(asyncio.create_subprocess_shell, command)
                if isinstance(command, str)
                else partial(asyncio.create_subprocess_exec, *command)
            )
            process = await starting(
                stdin=told_file,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=errors,
                cwd=cwd or None,
                env=dict(environment),
                # Its own group: a limit ends its children too, and Ctrl-C does not end it.
                start_new_session=sys.platform != "win32",
            )
        except (OSError, ValueError) as error:
            return f"it could not be started: {error}"
        if not await _ended(process, clock, limit):
            return f"it took longer than {limit:g} seconds and was ended"
        if process.returncode == 0:
            return ""
        errors.seek(0)
        said = errors.read().decode("utf-8", "replace").strip().splitlines()
        last = said[-1][-_TOLD:] if said else "it said nothing"
        return f"exit {process.returncode}: {last}"


async def _ended(process: asyncio.subprocess.Process, clock: Clock, limit: float) -> bool:
    """Whether it ended by itself within the limit; it has ended in any case."""
    waiting = asyncio.ensure_future(process.wait())
    limiting = asyncio.ensure_future(clock.sleep(limit))
    try:
        await asyncio.wait({waiting, limiting}, return_when=asyncio.FIRST_COMPLETED)
        in_time = waiting.done()
    finally:
        limiting.cancel()
        if not waiting.done():
            _end(process)
            await asyncio.wait({waiting})
    return in_time


def _end(process: asyncio.subprocess.Process) -> None:
    # It may have ended in the meantime, which is what we want.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
