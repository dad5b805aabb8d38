"""Durable runs of a soak: `jackline run` in a process, killed at random moments, then resumed.

Rules: what the store calls finished at a kill must never be asked for again; a run ends with the
value of an undisturbed one; a run that ends otherwise is kept with its last words, and resumed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from jackline.flows.records import CallState
from jackline.flows.store import open_run_store, run_store_exists, run_store_url
from soak_bench import soak_flow
from soak_bench.gateway_process import GatewayProcess
from soak_bench.provider import Kill, SoakProvider, last_words

_SETTLE = 0.3
_AT_THE_START = 0.2
_LONGEST_START = 1.5
_MOST_RESUMES = 20
_WORDS_KEPT = 300


@dataclass(slots=True)
class RunLog:
    """What became of all runs."""

    begun: int = 0
    finished: int = 0
    agents: int = 0
    """Agents of finished runs."""
    kills: int = 0
    waiting: set[str] = field(default_factory=set)
    """The names of runs that have not ended."""
    wrong: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    """Ends of processes that were not killed and did not finish their run."""
    kept: list[tuple[float, frozenset[str]]] = field(default_factory=list)
    """What the store called finished, and when."""


class RunLane:
    """One run after another, each killed now and then."""

    def __init__(
        self,
        number: int,
        agents: int,
        gateway: GatewayProcess,
        provider: SoakProvider,
        log: RunLog,
        draw: random.Random,
    ) -> None:
        self._number = number
        self._agents = agents
        self._gateway = gateway
        self._provider = provider
        self._log = log
        self._draw = draw

    async def work(self, stopping: asyncio.Event, kill_every: float) -> None:
        """Carry runs to their ends; no more kills and no more runs once `stopping` is set."""
        number = 0
        while not stopping.is_set():
            number += 1
            self._log.begun += 1
            name = f"run-{self._number}-{number}"
            self._log.waiting.add(name)
            await self._carry(name, stopping, kill_every)
            self._log.waiting.discard(name)

    async def _carry(self, name: str, stopping: asyncio.Event, kill_every: float) -> None:
        given = json.dumps({"name": name, "agents": self._agents})
        words: Sequence[str] = ("run", soak_flow.__file__, given)
        failures = 0
        while failures < _MOST_RESUMES:
            ended = await self._process(name, words, stopping, kill_every)
            if ended is not None:
                code, printed, said = ended
                if code == 0:
                    self._check(name, printed)
                    return
                failures += 1
                self._log.unexpected.append(f"{name} ended with {code}: {said}")
            run_id = await self._look_into_store(name)
            words = ("resume", run_id) if run_id else words

    async def _process(
        self, name: str, words: Sequence[str], stopping: asyncio.Event, kill_every: float
    ) -> tuple[int, str, str] | None:
        """How the process ended; None when it was killed."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "jackline", *words, "--quiet", "--json"),
            cwd=self._gateway.state.folder.parent,
            env=self._gateway.environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=os.name != "nt",
        )
        reading = asyncio.create_task(process.communicate())
        moment = asyncio.create_task(self._moment(stopping, kill_every))
        try:
            await asyncio.wait({reading, moment}, return_when=asyncio.FIRST_COMPLETED)
            if process.returncode is None and not reading.done() and not stopping.is_set():
                begun = self._provider.now()
                process.kill()
                await reading
                await asyncio.sleep(_SETTLE)
                self._log.kills += 1
                self._provider.kills.append(Kill(begun, self._provider.now(), name))
                return None
            out, said = await reading
        finally:
            moment.cancel()
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        last = said.decode("utf-8", "replace").strip()[-_WORDS_KEPT:]
        return process.returncode or 0, out.decode("utf-8", "replace"), last

    async def _moment(self, stopping: asyncio.Event, kill_every: float) -> None:
        """Return when the process is to be killed; never once the soak comes to its end."""
        at_the_start = self._draw.random() < _AT_THE_START
        mean = 1.0 / kill_every
        wait = self._draw.random() * _LONGEST_START
        await asyncio.sleep(wait if at_the_start else self._draw.expovariate(mean))
        if stopping.is_set():
            await asyncio.Event().wait()

    async def _look_into_store(self, name: str) -> str:
        """The run's id, if it has been kept; what it has finished is noted."""
        url = run_store_url(self._gateway.state.folder)
        if not await asyncio.to_thread(run_store_exists, url):
            return ""
        engine = open_run_store(url)
        try:
            for run in await engine.runs():
                if json.loads(run.arguments).get("name") == name:
                    calls = await engine.calls(run.run_id)
                    done = frozenset(c.label for c in calls if c.state is CallState.DONE)
                    self._log.kept.append((self._provider.now(), done))
                    return run.run_id
        finally:
            await engine.close()
        return ""

    def _check(self, name: str, printed: str) -> None:
        labels = [f"{name}.{number}" for number in range(1, self._agents + 1)]
        should_be = [last_words(label, soak_flow.TURNS) for label in labels]
        should_be.append(last_words(f"{name}.0", 1))
        value: Any = None
        with suppress(ValueError):
            value = json.loads(printed).get("value")
        if value != should_be:
            self._log.wrong.append(f"{name} gave {str(value)[:_WORDS_KEPT]}")
        self._log.finished += 1
        self._log.agents += len(should_be)
