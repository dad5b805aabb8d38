"""Run one command in its own process group, and leave nothing of it behind.

Laws: (1) when the call is over, by its end, its time or a cancellation, the whole group is ended:
first asked, then made to; (2) output is read to its end, whatever its size, and memory stays
bounded; (3) whatever the bytes are, the text is valid; (4) no command reads from our terminal.
Not here: which command may run (shell.py, policy.py), who ends it when we are killed
(orphan_guard.py), children that left the group (strays.py), starting (started.py).
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from jackline.batches.listening import Listener
from jackline.batches.orphan_guard import guard
from jackline.batches.started import Command, Started, start
from jackline.batches.strays import MARK, end_strays
from jackline.programs import system_program

__all__ = ["Command", "Finished", "run_process", "told_exit"]

ASKED_S = 2.0
"""How long a process group may take to end by itself once asked to."""
_LINGERS_S = 0.5
"""After a command ended, children in the background may print until they are silent so long."""
_MADE_S = 5.0
"""How long the system may take to end what was killed; longer only for a stuck disk."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended; a negative `exit_code` is the signal that ended it."""

    exit_code: int
    output: str
    timed_out: bool = False
    left_behind: bool = False
    """Something that it had left in the background, still printing, was ended."""


async def run_process(command: Command, heard: Callable[[str], None]) -> Finished:
    """How the command ended; OSError when it cannot be started.

    Being cancelled ends the whole process group before the cancellation goes on.
    """
    stop = asyncio.Event()
    # A task of its own, told by an event: so no cancellation falls between start and ending.
    life = asyncio.ensure_future(_live(command, Listener(command.limit, heard), stop))
    cancelled = False
    while not life.done():
        try:
            await asyncio.wait([life])
        except asyncio.CancelledError:
            cancelled = True
            stop.set()
    if cancelled:
        life.exception()
        raise asyncio.CancelledError
    return life.result()


async def _live(command: Command, listener: Listener, stop: asyncio.Event) -> Finished:
    mark = guard.mark()
    marked = replace(command, environ={**command.environ, MARK: mark})
    started = await start(marked, listener)
    guard.watch(started.pid)
    in_time = left_behind = False
    try:
        in_time = await _first_of(started.exited, stop, command.seconds)
        if in_time:
            left_behind = not await _fell_silent(started, stop)
        else:
            _signal_group(started.pid, forced=False)
            await asyncio.wait([started.exited], timeout=ASKED_S)
    finally:
        # Also after a good end: what it left in the background would outlive the call.
        _signal_group(started.pid, forced=True)
        if not in_time:
            end_strays(mark)
        guard.forget(started.pid)
    await asyncio.wait([started.exited], timeout=_MADE_S)
    code = await started.finish()
    listener.close()
    return Finished(
        exit_code=-int(signal.SIGTERM) if code is None else code,
        output=listener.text,
        timed_out=not in_time,
        left_behind=left_behind,
    )


async def _first_of(
    exited: asyncio.Future[None], stop: asyncio.Event, seconds: float | None
) -> bool:
    """Whether the process ended by itself before it was stopped and before its time was up."""
    stopped = asyncio.ensure_future(stop.wait())
    awaited: list[asyncio.Future[None] | asyncio.Future[Literal[True]]] = [exited, stopped]
    try:
        await asyncio.wait(awaited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
    return exited.done()


async def _fell_silent(started: Started, stop: asyncio.Event) -> bool:
    """Whether its output came to an end; False when somebody in the background still holds it."""
    before = -1
    while not stop.is_set() and before != started.listener.size:
        before = started.listener.size
        if await _first_of(started.silent, stop, _LINGERS_S):
            return True
    return False


def _signal_group(group: int, *, forced: bool) -> None:
    if os.name == "nt":
        _end_tree_on_windows(group)
        return
    with suppress(ProcessLookupError, PermissionError):  # nothing is left, or only zombies (macOS)
        os.killpg(group, signal.SIGKILL if forced else signal.SIGTERM)


def _end_tree_on_windows(root: int) -> None:
    # Windows has no groups that end together; its own tool walks the tree. A tree that is gone
    # already is what we want, so its complaint is not read.
    subprocess.run(  # noqa: S603 -- a fixed program and a number
        [system_program("taskkill"), "/F", "/T", "/PID", str(root)],
        capture_output=True,
        check=False,
    )


def told_exit(code: int) -> str:
    """An exit code in words: a signal by its name."""
    if code >= 0:
        return f"exit {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by signal {-code}"
