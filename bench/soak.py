"""Let a fleet work for an hour through random faults and kills, and check that no promise breaks.

Rules: the provider is simulated, all else is real: gateway and runs are processes, killed with
SIGKILL; the provider's ledger and the agents' own records are the witnesses; nothing is judged by
how long it took, so a slow or busy machine raises no false alarm; whatever was started is ended,
also on Ctrl-C; the exit status is 1 when a promise broke.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from gateway_bench.children import allow_many_files
from jackline import __version__
from soak_bench.agents import Log, PlainAgent
from soak_bench.flow_runs import RunLane, RunLog
from soak_bench.gateway_process import (
    JOURNAL_BYTES,
    GatewayProcess,
    gateway_process,
)
from soak_bench.judging import Found, Promise, markdown, promises
from soak_bench.provider import GATEWAY, SoakProvider, soak_provider
from soak_bench.soak_flow import USED
from soak_bench.weather import Weather

OPEN_FILES = 8_192
# Of the agents, one in four belongs to a durable run; a run has up to ten at once.
_IN_RUNS = 0.25
_RUN_SIZE = 10
_RUN_KILL_EVERY = 30.0
# Gateways are killed in this part of the time; the last life shows whether memory stays flat.
_GATEWAY_KILLS = 0.6
_GATEWAY_KILL_EVERY = 150.0
_LONGEST_ABSENCE = 5.0
_MOST_SAMPLES = 1_200
# Nobody is given up while anything moves; a fleet in which nothing has moved for so long is stuck.
_STUCK_SECONDS = 1_500.0
_TROUBLE = ("Traceback", "InternalError", "never retrieved", "never awaited", '"level": "error"')


@dataclass(slots=True)
class Soak:
    """One soak at work."""

    minutes: float
    gateway: GatewayProcess
    provider: SoakProvider
    weather: Weather
    draw: random.Random
    agents: Log = field(default_factory=Log)
    runs: RunLog = field(default_factory=RunLog)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """How long it shall last, the last answers left aside."""
        return 60.0 * self.minutes

    @property
    def scale(self) -> float:
        """By how much shorter waits and faults are in a short soak."""
        return scale(self.minutes)

    async def work(self, count: int) -> None:
        """Let so many agents work for the time, and then come to their ends."""
        in_runs = max(1, round(count * _IN_RUNS))
        size = min(_RUN_SIZE, in_runs)
        plain = [self._agent(number) for number in range(max(1, count - in_runs))]
        lanes = [self._lane(number, size) for number in range(max(1, in_runs // size))]
        kill_every = max(8.0, _RUN_KILL_EVERY * self.scale)
        fleet = [asyncio.create_task(agent.work(self.stopping)) for agent in plain]
        fleet += [asyncio.create_task(lane.work(self.stopping, kill_every)) for lane in lanes]
        helpers = [asyncio.create_task(self._sample()), asyncio.create_task(self._progress())]
        storms = [asyncio.create_task(self.weather.blow()), asyncio.create_task(self._kills())]
        try:
            await _until_failed([*fleet, *helpers, *storms], self.seconds)
            self.stopping.set()
            for storm in storms:
                storm.cancel()
            await asyncio.gather(*storms, return_exceptions=True)
            print("calm: no more faults and kills; the fleet comes to its end", flush=True)
            await self._come_to_an_end(fleet)
        finally:
            for task in (*fleet, *helpers, *storms):
                task.cancel()
            await asyncio.gather(*fleet, *helpers, *storms, return_exceptions=True)

    def _agent(self, number: int) -> PlainAgent:
        draw = random.Random(self.draw.getrandbits(64))  # noqa: S311 -- lots, no secrets
        return PlainAgent(number, self.gateway, self.agents, self.provider.now, draw)

    def _lane(self, number: int, size: int) -> RunLane:
        draw = random.Random(self.draw.getrandbits(64))  # noqa: S311 -- lots, no secrets
        return RunLane(number, size, self.gateway, self.provider, self.runs, draw)

    async def _kills(self) -> None:
        """Kill the gateway now and then, and start it again after a while."""
        draw = random.Random(self.draw.getrandbits(64))  # noqa: S311 -- lots, no secrets
        last = self.began + self.seconds * _GATEWAY_KILLS
        mean = min(_GATEWAY_KILL_EVERY, self.seconds / 5)
        while True:
            wait = mean * (0.3 + 1.4 * draw.random())
            if time.monotonic() + wait > last:
                return
            await asyncio.sleep(wait)
            # A kill that was begun is not left halfway.
            await asyncio.shield(asyncio.create_task(self._kill_and_start(draw.random())))

    async def _kill_and_start(self, share: float) -> None:
        await self.gateway.kill()
        await asyncio.sleep(share * _LONGEST_ABSENCE)
        await self.gateway.start()

    async def _sample(self) -> None:
        every = max(1.0, self.seconds / _MOST_SAMPLES)
        while True:
            self.gateway.look()
            await asyncio.sleep(every)

    async def _progress(self) -> None:
        every = max(5.0, min(60.0, self.seconds / 30))
        while True:
            await asyncio.sleep(every)
            print(self.line(), flush=True)

    def line(self) -> str:
        """How far it is."""
        passed = time.monotonic() - self.began
        kills = [kill.whose == GATEWAY for kill in self.provider.kills]
        words = (
            f"{passed / 60:6.1f} min: {self.agents.finished:,} conversations"
            f" ({self.agents.answered:,} answers), {self.runs.finished} runs,"
            f" {sum(kills)} gateways and {len(kills) - sum(kills)} runs killed,"
            f" {self.weather.counts.total()} faults"
        )
        if self.gateway.samples and (last := self.gateway.samples[-1]).resident is not None:
            words += f"; gateway {last.resident / (1 << 20):.0f} MB, {last.files} files"
        return words

    async def _come_to_an_end(self, fleet: list[asyncio.Task[None]]) -> None:
        """Wait for all, as long as anything moves."""
        moved, at = -1, time.monotonic()
        while pending := [task for task in fleet if not task.done()]:
            await asyncio.wait(pending, timeout=1.0)
            now = self.agents.answered + self.runs.finished + len(self.provider.ledger)
            if now != moved:
                moved, at = now, time.monotonic()
            elif time.monotonic() - at > _STUCK_SECONDS:
                print(f"stuck: nothing has moved for {_STUCK_SECONDS:g} seconds", flush=True)
                waiting = [*self.agents.waiting.items(), *self.runs.waiting]
                print(f"waiting: {waiting}\n{await self.gateway.status()}", flush=True)
                return
        for task in fleet:
            task.result()


def scale(minutes: float) -> float:
    """By how much shorter waits and faults are in a soak of so many minutes."""
    return min(1.0, max(0.1, minutes / 10.0))


async def _until_failed(tasks: list[asyncio.Task[None]], seconds: float) -> None:
    """Return after the time, or raise what one of the tasks has raised."""
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()


@asynccontextmanager
async def _open(minutes: float, seed: int, folder: Path) -> AsyncIterator[Soak]:
    draw = random.Random(seed)  # noqa: S311 -- lots, no secrets
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(soak_provider(draw))
        environ = _environ(folder, provider.url)
        opened = gateway_process(folder, environ, provider)
        gateway = await stack.enter_async_context(opened)
        weather = Weather(provider.playing, random.Random(seed + 1), scale(minutes))  # noqa: S311
        yield Soak(minutes, gateway, provider, weather, draw)


def _environ(folder: Path, upstream: str) -> dict[str, str]:
    """Settings and folders of the soak's own; nothing of the user's reaches it."""
    config = folder / "jackline.toml"
    config.write_text(f"[journal]\nsize = {JOURNAL_BYTES}\n", encoding="utf-8")
    own = {name: value for name, value in os.environ.items() if "JACKLINE_" not in name}
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        # This process asks the gateway, too, and has to find the key that it proves itself with.
        own[name] = os.environ[name] = str(folder / "home" / name.lower())
    return {
        **own,
        "JACKLINE_CONFIG": str(config),
        "JACKLINE_STATE": str(folder / "state"),
        "JACKLINE_UPSTREAM": upstream,
        "ANTHROPIC_API_KEY": "sk-ant-soak",
    }


async def soak(minutes: float, agents: int, seed: int, folder: Path) -> dict[str, object]:
    """Run one soak; everything that was seen, ready for JSON."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    if task is not None:
        with suppress(NotImplementedError):  # Windows has no such signal
            loop.add_signal_handler(signal.SIGTERM, task.cancel)
    async with _open(minutes, seed, folder) as world:
        await world.work(agents)
        world.gateway.look()
        print(world.line(), flush=True)
    rows = promises(
        world.provider, world.agents, world.runs, world.gateway.samples, _found(world, folder)
    )
    print(f"\n{markdown(rows)}\n", flush=True)
    return _report(world, rows, agents, seed)


def _found(world: Soak, folder: Path) -> Found:
    used = folder / USED
    lines = used.read_text("utf-8").splitlines() if used.exists() else []
    trouble = []
    for log in (world.gateway.log, world.gateway.state.log):
        if log.exists():
            text = log.read_text("utf-8", "replace").splitlines()
            trouble += [line for line in text if any(word in line for word in _TROUBLE)]
    return Found(lines, trouble, len(world.gateway.left_behind))


def _report(world: Soak, rows: list[Promise], agents: int, seed: int) -> dict[str, object]:
    kills = [kill.whose == GATEWAY for kill in world.provider.kills]
    return {
        "schema": "jackline.soak/1",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "version": __version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "minutes": world.minutes,
        "agents": agents,
        "seed": seed,
        "conversations": world.agents.finished,
        "answers": world.agents.answered,
        "runs": world.runs.finished,
        "requests": len(world.provider.ledger),
        "gateway_kills": sum(kills),
        "revived_by_runs": world.gateway.revived_by_runs,
        "run_kills": len(kills) - sum(kills),
        "faults": dict(sorted(world.weather.counts.items())),
        "excused": dict(world.agents.excused),
        "provider": world.provider.ledger.summary()["reasons"],
        "promises": [asdict(row) for row in rows],
        "kept": all(row.kept is not False for row in rows),
        "samples": [asdict(sample) for sample in world.gateway.samples],
    }


def main() -> int:
    """Run the soak that the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (default: 60)")
    parser.add_argument("--agents", type=int, default=200, help="how many (default: 200)")
    parser.add_argument("--seed", type=int, help="draw the same faults and kills again")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything seen there")
    parser.add_argument("--keep", action="store_true", help="leave state and logs where they are")
    given = parser.parse_args()
    seed = random.SystemRandom().getrandbits(32) if given.seed is None else given.seed
    allow_many_files(OPEN_FILES)
    print(f"soak: {given.minutes:g} minutes, {given.agents} agents, seed {seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="jackline-soak-"))
    try:
        report = asyncio.run(soak(given.minutes, given.agents, seed, folder))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("stopped; all processes of the soak are ended", flush=True)
        return 130
    finally:
        if given.keep:
            print(f"state and logs: {folder}", flush=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if given.json is not None:
        given.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    told = {key: report[key] for key in ("gateway_kills", "run_kills", "faults", "excused")}
    print(json.dumps(told))
    print("every promise was kept" if report["kept"] else "A PROMISE BROKE", flush=True)
    return 0 if report["kept"] else 1


if __name__ == "__main__":
    sys.exit(main())
