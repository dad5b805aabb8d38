"""A world for flows: memory, virtual time, and agents that play a script."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from jackline.agents.outcome import Outcome
from jackline.agents.task_meter import TaskReading
from jackline.clock import VirtualClock
from jackline.event_loop import run as run_on_loop
from jackline.flows.authoring.flow_definition import Flow
from jackline.flows.flow_run import FlowRun
from jackline.flows.host import FlowHost
from jackline.flows.lifecycle import begin_resume, begin_run
from jackline.flows.run_events import FlowEvent
from jackline.flows.settings import RunSettings
from jackline.flows.store import open_run_store
from jackline.flows.store.run_store import RunStore
from jackline.testing.scripted_agents import Script, ScriptedRunner

T = TypeVar("T")
PATIENCE = 120.0  # real seconds; only a test that fails ever waits so long
EPOCH = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


class StoreWrapper:
    """A store that passes every call on to another; a test overrides what is to fail."""

    def __init__(self, store: RunStore) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


@dataclass
class World:
    """Everything a run needs, and what was heard of it."""

    clock: VirtualClock
    engine: RunStore
    runner: ScriptedRunner
    settings: RunSettings = field(default_factory=lambda: RunSettings(poll=5.0))
    received: list[FlowEvent] = field(default_factory=list)
    held: dict[str, float] = field(default_factory=dict)
    """By task id: for how long the gateway has held its calls."""
    gateway_answers: bool = True

    async def read_task(self, task_id: str, *, fresh: bool = False) -> TaskReading | None:  # noqa: ARG002
        return TaskReading(self.held.get(task_id, 0.0)) if self.gateway_answers else None

    @property
    def host(self) -> FlowHost:
        return FlowHost(
            self.engine,
            lambda _run_id: {self.runner.name: self.runner},
            clock=self.clock,
            draw=lambda: 0.5,
            settings=self.settings,
            listener=self.received.append,
            read_task=self.read_task,
        )

    async def run(self, flow: Flow[..., T], arguments: bytes = b"{}") -> Outcome[T]:
        return await self.through((await self.begin(flow, arguments)).run())

    async def begin(self, flow: Flow[..., T], arguments: bytes = b"{}") -> FlowRun[T]:
        return await begin_run(self.host, flow, arguments, run_id="r1")

    async def resume(self, flow: Flow[..., T], run_id: str = "r1") -> Outcome[T]:
        begun = await begin_resume(self.host, run_id, flow=flow)
        return begun if isinstance(begun, Outcome) else await self.through(begun.run())

    async def through(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives, with time moving whenever everybody waits for it."""
        task = asyncio.create_task(work)
        async with asyncio.timeout(PATIENCE):
            while not task.done():
                await self.to_next_hour()
            return await task

    async def to_next_hour(self) -> None:
        """Let everybody run, then move time to the next sleeper's hour."""
        await self.clock.advance(0)
        sleepers = self.clock._sleepers
        if sleepers:
            await self.clock.advance(max(0.0, sleepers[0][0] - self.clock.monotonic()))
        else:
            await asyncio.sleep(0.001)  # a thread or a process works; it will not be long

    async def until(self, holds: Callable[[], bool], task: asyncio.Task[Any]) -> None:
        """Let time pass until something holds."""
        async with asyncio.timeout(PATIENCE):
            while not holds():
                assert not task.done(), task
                await self.to_next_hour()

    def of(self, kind: type[T]) -> list[T]:
        """The events of one kind that were heard."""
        return [event for event in self.received if isinstance(event, kind)]


def world(script: Script | None = None, *, settings: RunSettings | None = None) -> World:
    clock = VirtualClock(EPOCH)
    runner = ScriptedRunner(clock=clock) if script is None else ScriptedRunner(script, clock=clock)
    made = World(clock, open_run_store("sqlite:///:memory:", wall=clock.wall), runner)
    if settings is not None:
        made.settings = settings
    return made


def played(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a test's coroutine."""
    return run_on_loop(work())
