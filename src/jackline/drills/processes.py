"""Start processes for a drill, stop or kill them, and read what they saved.

Rules: (1) only processes that the drill started, by their handles; `stop` allows a few seconds
for a clean exit, a kill is SIGKILL (or what the system has in its place); (2) the moments of
kills are counted in requests to the provider plus parts of a second, so a slow machine is hit no
earlier than a fast one; (3) no configuration of the user reaches these processes.
Not here: what the processes do (power_cut_flow.py, power_cut_plain.py, flow_process.py), the
figures (power_cut.py, lost_subagent.py).
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jackline.errors import InternalError
from jackline.flows.records import CallState
from jackline.flows.store.sqlite import SqliteRunStore
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.reply_script import Reply
from jackline.state_dir import StateDir

PATIENCE_S = 5.0


async def stop(process: asyncio.subprocess.Process) -> None:
    """Ask the process to end, and make it."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(PATIENCE_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


_AT_THE_START = 0.2
"""The share of cuts that come while the process starts."""
_LONGEST_START = 1.5
_LONGEST_DELAY = 0.15
_MOST_REQUESTS = 20
# Whoever gets nowhere for so long is stuck, and that is worse than what the drill looks for.
_STUCK = 180.0

Started = Callable[[], Coroutine[Any, Any, asyncio.subprocess.Process]]


@dataclass(slots=True)
class Counter:
    """Counts what a provider is asked, and wakes whoever waits for a count."""

    reply: Callable[[ClientRequest], Reply]
    asked: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def hear(self, asked: ClientRequest) -> Reply:
        """What the model says."""
        self.asked += 1
        self._changed.set()
        return self.reply(asked)

    async def until(self, count: int) -> None:
        """Returns when so many requests have come."""
        while self.asked < count:
            self._changed.clear()
            await self._changed.wait()


@dataclass(frozen=True, slots=True)
class EndedProcess:
    """A process that is over."""

    code: int
    printed: str
    said: str
    """Its last words on stderr."""


@dataclass(frozen=True, slots=True)
class Programs:
    """How processes of one side are started."""

    folder: Path
    environ: Mapping[str, str]

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        """A process that nobody listens to."""
        nothing = asyncio.subprocess.DEVNULL
        return await self._process(words, stdout=nothing, stderr=nothing)

    async def output(self, *words: str) -> str:
        """What a process prints that is left alone; InternalError when it fails."""
        ended = await self.ended(*words)
        if ended.code:
            raise InternalError(f"a process of the drill ended with {ended.code}: {ended.said}")
        return ended.printed

    async def ended(self, *words: str) -> EndedProcess:
        """How a process ends that is left alone."""
        pipe = asyncio.subprocess.PIPE
        process = await self._process(words, stdout=pipe, stderr=pipe)
        try:
            out, said = await asyncio.wait_for(process.communicate(), _STUCK)
        except BaseException:
            process.kill()
            await process.wait()
            raise
        last = said.decode("utf-8", "replace").strip()[-300:]
        return EndedProcess(process.returncode or 0, out.decode("utf-8").strip(), last)

    async def _process(
        self, words: Sequence[str], *, stdout: int, stderr: int
    ) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *words,
            cwd=self.folder,
            env=dict(self.environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
        )


def programs_of(folder: Path, upstream: str) -> Programs:
    """Processes with state and settings of their own, before this provider."""
    config = folder / "jackline.toml"
    config.write_text("", encoding="utf-8")
    environ = {name: value for name, value in os.environ.items() if "JACKLINE_" not in name}
    return Programs(
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


async def killed(start: Started, counter: Counter, draw: random.Random) -> None:
    """Start a process and kill it at a moment that is drawn, unless it has ended before."""
    at_the_start = draw.random() < _AT_THE_START
    requests = 0 if at_the_start else draw.randint(1, _MOST_REQUESTS)
    seconds = draw.random() * (_LONGEST_START if at_the_start else _LONGEST_DELAY)
    process = await start()

    async def moment() -> None:
        await counter.until(counter.asked + requests)
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
        raise InternalError(f"a process of the drill got nowhere for {_STUCK:g} seconds")


async def saved_run_in(folder: Path) -> tuple[str, frozenset[str]]:
    """The id of the only run, and the labels of what had finished, by the store."""
    path = StateDir(folder / "state").flows
    if not path.exists():
        return "", frozenset()
    engine = SqliteRunStore(path)
    try:
        runs = await engine.runs()
        if not runs:
            return "", frozenset()
        calls = await engine.calls(runs[0].run_id)
    finally:
        await engine.close()
    return runs[0].run_id, frozenset(c.label for c in calls if c.state is CallState.DONE)
