"""The gateway of a soak as a real process: started as users start it, killed with SIGKILL, watched.

Rules: it keeps its port through all its lives; it may also be started again by a run that found it
killed, which is a feature, so the process is always the one that the state folder names; only
processes of this soak are killed, each by its id.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gateway_bench.children import free_port
from gateway_bench.proc import runs
from jackline.assembly.gateway_process import hello
from jackline.drills.processes import stop
from jackline.state_dir import StateDir
from soak_bench.provider import GATEWAY, Kill, SoakProvider

# Journals are cut at this size, so that the bound shows within a soak.
JOURNAL_BYTES = 16 << 20
_LOOK_EVERY = 0.1
# What the killed process had written may still be on its way to the provider.
_SETTLE = 0.3
# A machine that is busy takes its time; nothing is judged by it.
_START_SECONDS = 180.0
# Ending in good order lets calls finish; a call that hangs is cut off after the usual grace.
_END_SECONDS = 90.0
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Sample:
    """What one look at the gateway's process and its folder has shown; None is not measured."""

    at: float
    pid: int
    calls: int
    resident: int | None
    files: int | None
    threads: int | None
    journal: int
    flows: int
    other: int


class GatewayProcess:
    """The gateway: `url` stays the same; `down` tells whether it was away in a span of time."""

    def __init__(self, folder: Path, environ: Mapping[str, str], provider: SoakProvider) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.state = StateDir(folder / "state")
        self.log = folder / "gateway-foreground.log"
        self.environ = {**environ, "JACKLINE_PORT": str(self.port)}
        self.samples: list[Sample] = []
        self.revived_by_runs = 0
        self.left_behind: list[int] = []
        self._folder = folder
        self._provider = provider
        self._child: asyncio.subprocess.Process | None = None
        self._away: list[tuple[float, float]] = []
        self._away_since: float | None = 0.0

    def was_away(self, since: float) -> bool:
        """Whether the gateway was killed or down at any moment from `since` until now."""
        if self._away_since is not None:
            return True
        return bool(self._away) and self._away[-1][1] >= since

    async def start(self) -> None:
        """Start the gateway, unless a run was quicker, and wait until it answers."""
        with self.log.open("ab") as log:
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "jackline", "up", "--port", str(self.port)),
                *("--state", str(self.state.folder)),
                cwd=self._folder,
                env=dict(self.environ),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=os.name != "nt",
            )
        self._child = child
        async with asyncio.timeout(_START_SECONDS):
            while True:
                if await self._answers(child):
                    break
                await asyncio.sleep(_LOOK_EVERY)
        now = self._provider.now()
        self._away.append((self._away_since or 0.0, now))
        self._away_since = None

    async def _answers(self, child: asyncio.subprocess.Process) -> bool:
        if child.returncode not in (None, 0):
            raise RuntimeError(f"the gateway did not start; see {self.log}")
        running = self.state.running()
        if running is None or not runs(running.pid):
            return False
        if await asyncio.to_thread(hello, self.url) is None:
            return False
        if child.returncode == 0:
            self.revived_by_runs += 1
            self._child = None
        return True

    async def kill(self) -> None:
        """Kill the gateway's process, whoever has started it."""
        running = self.state.running()
        if running is None:
            return
        begun = self._provider.now()
        self._away_since = begun
        with suppress(ProcessLookupError):
            os.kill(running.pid, _KILL)
        if self._child is not None and self._child.pid == running.pid:
            await self._child.wait()
            self._child = None
        while True:
            if not runs(running.pid):
                break
            await asyncio.sleep(_LOOK_EVERY)
        await asyncio.sleep(_SETTLE)
        self._provider.kills.append(Kill(begun, self._provider.now(), GATEWAY))

    def look(self) -> Sample | None:
        """Measure the process and its folder; None while it is away."""
        running = self.state.running()
        if self._away_since is not None or running is None or not runs(running.pid):
            return None
        sizes = _sizes(self.state)
        sample = Sample(
            self._provider.now(),
            running.pid,
            len(self._provider.ledger),
            _resident(running.pid),
            _count(running.pid, "fd"),
            _count(running.pid, "task"),
            *sizes,
        )
        self.samples.append(sample)
        return sample

    async def end(self) -> None:
        """End the gateway in good order, note what is left of it then, and end that too."""
        running = self.state.running()
        if running is not None:
            with suppress(ProcessLookupError):
                os.kill(running.pid, signal.SIGTERM)
        if self._child is not None:
            await stop(self._child)
        await self._gone(_END_SECONDS)
        self.left_behind = processes_of(self.state.folder)
        for pid in self.left_behind:
            with suppress(ProcessLookupError):
                os.kill(pid, _KILL)
        await self._gone(_END_SECONDS)

    async def _gone(self, seconds: float) -> None:
        """Return when no process of this soak is left, or after so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    if not processes_of(self.state.folder):
                        return
                    await asyncio.sleep(_LOOK_EVERY)

    async def status(self) -> str:
        """What `jackline status` says."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "jackline", "status"),
            env=self.environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        return out.decode("utf-8", "replace")


@asynccontextmanager
async def gateway_process(
    folder: Path, environ: Mapping[str, str], provider: SoakProvider
) -> AsyncIterator[GatewayProcess]:
    """A running gateway, which is ended with the block, as is one that a run has started."""
    gateway = GatewayProcess(folder, environ, provider)
    try:
        await gateway.start()
        yield gateway
    finally:
        await gateway.end()


def processes_of(state: Path) -> list[int]:
    """The processes that were started for this state folder and still run."""
    found = []
    with suppress(OSError):
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if os.fsencode(state) in words and runs(int(entry.name)):
                    found.append(int(entry.name))
    return found


def _sizes(state: StateDir) -> tuple[int, int, int]:
    """Bytes of the journal, of the store of runs, and of all else in the folder."""
    sizes = {state.journal.name: 0, "flows.db": 0, "": 0}
    for path in state.folder.rglob("*"):
        with suppress(OSError):  # gone meanwhile
            if path.is_file():
                base = path.name.removesuffix("-wal").removesuffix("-shm")
                sizes[base if base in sizes else ""] += path.stat().st_size
    return sizes[state.journal.name], sizes["flows.db"], sizes[""]


def _resident(pid: int) -> int | None:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def _count(pid: int, what: str) -> int | None:
    try:
        return len(os.listdir(f"/proc/{pid}/{what}"))  # noqa: PTH208 -- counting, nothing else
    except OSError:
        return None
