"""Start processes for a drill, stop or kill them, and read what they saved.

Rules: (1) only processes that the drill started, by their handles; `stop` allows a few seconds
for a clean exit, a kill is SIGKILL (or what the system has in its place); (2) the moments of
kills are counted in requests to the provider plus parts of a second, so a slow machine is hit no
earlier than a fast one; (3) no configuration of the user reaches these processes.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from jackline.agents.outcome import Outcome
from jackline.errors import InternalError
from jackline.flows.records import decode_outcome

_STOP_WAIT_S = 5.0
# The share of kills that come while the process starts.
_KILLED_AT_START = 0.2
_LONGEST_START = 1.5
_LONGEST_DELAY = 0.15
_MOST_REQUESTS = 20
# A process without progress for so long is stuck, which is worse than what the drill looks for.
_STUCK = 180.0


async def stop(process: asyncio.subprocess.Process) -> None:
    """Terminate the process; kill it if it does not exit in time."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_STOP_WAIT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


@dataclass(slots=True)
class RequestCounter:
    """Counts requests, and wakes whoever waits for a count."""

    count: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self) -> None:
        """Count one request."""
        self.count += 1
        self._changed.set()

    async def until(self, count: int) -> None:
        """Returns when so many requests have come."""
        while self.count < count:
            self._changed.clear()
            await self._changed.wait()


@dataclass(frozen=True, slots=True)
class EndedProcess:
    """The exit code, stdout, and the end of stderr."""

    code: int
    printed: str
    errors: str

    def outcome(self) -> Outcome[Any]:
        """The outcome of a run that it has printed; InternalError when it printed nothing."""
        if not self.printed:
            raise InternalError(f"a process of the drill ended with {self.code}: {self.errors}")
        return decode_outcome(self.printed.encode())


@dataclass(frozen=True, slots=True)
class Programs:
    """How the Python processes of one side are started."""

    folder: Path
    environ: Mapping[str, str]

    @classmethod
    def before(cls, folder: Path, upstream: str) -> Self:
        """With their own state and settings in this folder, and this provider as upstream."""
        config = folder / "jackline.toml"
        config.write_text("", encoding="utf-8")
        environ = {name: value for name, value in os.environ.items() if "JACKLINE_" not in name}
        return cls(
            folder,
            {
                **environ,
                "JACKLINE_CONFIG": str(config),
                "JACKLINE_STATE": str(folder / "state"),
                "JACKLINE_PORT": "0",
                "JACKLINE_UPSTREAM": upstream,
                "ANTHROPIC_API_KEY": "simulated",
            },
        )

    async def output(self, *arguments: str) -> str:
        """What a process prints; InternalError when it fails."""
        ended = await self.ended(*arguments)
        if ended.code:
            raise InternalError(f"a process of the drill ended with {ended.code}: {ended.errors}")
        return ended.printed

    async def ended(self, *arguments: str) -> EndedProcess:
        """Run a process to its end."""
        process = await self._start(arguments, asyncio.subprocess.PIPE)
        try:
            out, errors = await asyncio.wait_for(process.communicate(), _STUCK)
        except BaseException:
            process.kill()
            await process.wait()
            raise
        last = errors.decode("utf-8", "replace").strip()[-300:]
        return EndedProcess(process.returncode or 0, out.decode("utf-8").strip(), last)

    async def killed(
        self, arguments: Sequence[str], counter: RequestCounter, draw: random.Random
    ) -> None:
        """Start a process and kill it at a random moment, unless it has ended before."""
        at_start = draw.random() < _KILLED_AT_START
        requests = 0 if at_start else draw.randint(1, _MOST_REQUESTS)
        seconds = draw.random() * (_LONGEST_START if at_start else _LONGEST_DELAY)
        process = await self._start(arguments, asyncio.subprocess.DEVNULL)

        async def moment() -> None:
            await counter.until(counter.count + requests)
            await asyncio.sleep(seconds)

        waits = [asyncio.create_task(process.wait()), asyncio.create_task(moment())]
        try:
            done, _ = await asyncio.wait(waits, timeout=_STUCK, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waits[1].cancel()
            if process.returncode is None:
                process.kill()
            await waits[0]
        if not done:
            raise InternalError(f"a process of the drill made no progress for {_STUCK:g} seconds")

    async def _start(self, arguments: Sequence[str], output: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            cwd=self.folder,
            env=dict(self.environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
