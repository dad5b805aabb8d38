"""Start a program, give it its prompt, and hear what it prints as it comes.

Laws: (1) the prompt goes through its input, never through its arguments; (2) what it prints is
given out in the pieces in which it came; (3) what its own children keep open after its end holds
nobody up; (4) it never outlives the block in which it was started, nor us, however we end.
Not here: what the pieces say (claude_code/, codex/), knowing it again later (marks.py).
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast
from uuid import uuid4

from jackline.agents.process.ending import end
from jackline.agents.process.marks import Mark, mark_of
from jackline.batches.orphan_guard import guard
from jackline.batches.strays import MARK
from jackline.clock import Clock

_KEPT_OF_ERRORS = 8_192
# What was printed before the end is in the pipe already: this is only for a busy machine.
_DRAIN_S = 2.0


class _Pipes(asyncio.SubprocessProtocol):
    """What came so far, and who waits for more."""

    def __init__(self) -> None:
        self.pieces: deque[bytes] = deque()
        self.errors = b""
        self.exited = asyncio.Event()
        self.gone = asyncio.Event()
        self.closed = False
        self.news = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self.pieces.append(data)
            self.news.set()
        else:
            self.errors = (self.errors + data)[-_KEPT_OF_ERRORS:]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        if fd == 1:
            self.closed = True
            self.news.set()

    def process_exited(self) -> None:
        self.exited.set()
        self.news.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.exited.set()
        self.gone.set()
        self.news.set()


class Child:
    """A program under way."""

    def __init__(self, transport: asyncio.SubprocessTransport, pipes: _Pipes, mark: Mark) -> None:
        self._transport = transport
        self._pipes = pipes
        self.mark = mark

    def give(self, prompt: str) -> None:
        """Give it its prompt, and no more; before that it does nothing."""
        entrance = self._transport.get_pipe_transport(0)
        if entrance is not None:
            writing = cast("asyncio.WriteTransport", entrance)
            writing.write(prompt.encode("utf-8", "replace"))
            writing.write_eof()

    async def pieces(self) -> AsyncIterator[bytes]:
        """What it prints, until it has ended."""
        pipes = self._pipes
        while True:
            while pipes.pieces:
                yield pipes.pieces.popleft()
            if pipes.closed:
                break
            pipes.news.clear()
            if not pipes.exited.is_set():
                await pipes.news.wait()
                continue
            try:
                async with asyncio.timeout(_DRAIN_S):
                    await pipes.news.wait()
            except TimeoutError:
                break
        await pipes.exited.wait()

    @property
    def exit_code(self) -> int | None:
        """What it ended with; below zero the signal that ended it; None while it runs."""
        return self._transport.get_returncode()

    @property
    def last_errors(self) -> str:
        """The last that it wrote to its error output."""
        return self._pipes.errors.decode("utf-8", "replace")


@asynccontextmanager
async def started(
    command: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    clock: Clock,
) -> AsyncIterator[Child]:
    """The program for as long as the block runs; OSError when it cannot be started."""
    family = uuid4().hex
    starting = asyncio.ensure_future(
        asyncio.get_running_loop().subprocess_exec(
            _Pipes,
            *command,
            cwd=cwd,
            env={**environment, MARK: family},
            # A group of its own: Ctrl-C in our terminal is ours to answer, and it ends as a whole.
            start_new_session=os.name != "nt",
        )
    )
    try:
        transport, pipes = await asyncio.shield(starting)
    except asyncio.CancelledError:
        with suppress(OSError):
            (await starting)[0].close()
        raise
    pid = transport.get_pid()
    guard.watch(pid)
    child = Child(transport, pipes, mark_of(pid, family))
    try:
        yield child
    finally:
        try:
            # Whoever cancels once more while it ends in good order does not get to leave it behind.
            if child.exit_code is None or child.exit_code < 0:
                await asyncio.shield(asyncio.ensure_future(end(child.mark, clock)))
        finally:
            guard.forget(pid)
            transport.close()
            # The loop may be closed next, and would miss its end.
            with suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_S):
                    await pipes.gone.wait()
