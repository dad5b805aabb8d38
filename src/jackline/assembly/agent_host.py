"""Make a host of flows from a store and a gateway's address, also inside the service itself.

Rules: (1) credentials come from the environment, and go nowhere but into the calls; (2) what is
opened is closed with the caller's exit stack; (3) for agents that models start, nothing is opened
before the first agent, or before a service finds runs; their calls go through this gateway, by its
address; what the user changes in the settings counts from the next agent on; (4) nothing is sent to
a gateway that has not proved to be the user's: programs, which cannot ask for that, get the address
of a relay.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

from jackline.agents.claude_code.environment import TOKEN_HEADER
from jackline.agents.claude_code.runner import ClaudeCodeRunner
from jackline.agents.codex import CodexRunner
from jackline.agents.gateway_model import GatewayModel, credentials_from
from jackline.agents.messages.conversation import MessagesSettings
from jackline.agents.messages.runner import MessagesRunner
from jackline.agents.runner import Runner
from jackline.agents.task_meter import TaskReadings
from jackline.assembly.gateway_process import fullest_window, task_readings, waits
from jackline.assembly.saved_runs import open_state_store
from jackline.clock import Clock
from jackline.config import Config
from jackline.flows.host import FlowHost, ProcessSlots
from jackline.flows.records import RunRecord
from jackline.flows.run_events import Listener, ignore_event
from jackline.flows.store import run_store_exists
from jackline.flows.store.run_store import RUN_PATIENCE, RunStore
from jackline.gateway.relay import Relay
from jackline.mcp_server.agent_manager import AgentManager
from jackline.state_dir import StateDir
from jackline.telemetry.client_telemetry import telemetry_variables
from jackline.upstream.origin import own_gateway


async def host_through(
    url: str,
    config: Config,
    engine: RunStore,
    clock: Clock,
    stack: AsyncExitStack,
    listener: Listener = ignore_event,
    current: Callable[[], Config] | None = None,
) -> FlowHost:
    """A host whose agents call through the gateway at `url`, whose state folder `config` names.

    `current` gives the configuration in force, where it changes.
    """
    now = current or (lambda: config)
    token = config.gateway.listen.token
    headers = credentials_from(os.environ)
    if token is not None:
        headers = (*headers, (TOKEN_HEADER, token))
    model = await stack.enter_async_context(
        GatewayModel(own_gateway(url), clock=clock, headers=headers)
    )
    relay = stack.enter_context(Relay(url))

    environment = dict(os.environ)
    if config.otlp.receive:
        environment |= telemetry_variables(relay.url, os.environ, token)

    def runners(run_id: str) -> Mapping[str, Runner]:
        # Each run marks its calls in the gateway's records.
        settings = MessagesSettings(prices=now().prices)
        made: tuple[Runner, ...] = (
            MessagesRunner(model, clock=clock, tag=run_id, settings=settings),
            ClaudeCodeRunner(
                relay.url,
                environment=environment,
                clock=clock,
                tag=run_id,
                token=token,
                guard=relay.guard,
            ),
            CodexRunner(relay.url, clock=clock, tag=run_id, token=token, guard=relay.guard),
        )
        return {runner.name: runner for runner in made}

    async def window_used() -> tuple[float, float] | None:
        return await asyncio.to_thread(fullest_window, url)

    return FlowHost(
        engine,
        runners,
        clock,
        settings=config.runs,
        prices=config.prices,
        listener=listener,
        window_used=window_used,
        read_task=TaskReadings(partial(task_readings, StateDir(config.state_dir), url), clock).of,
        read_waits=partial(asyncio.to_thread, waits, StateDir(config.state_dir), url),
        processes=ProcessSlots(config.runs.processes_at_once),
        allow=lambda: now().tools.batch.allow,
    )


class BackgroundAgents:
    """The agents of one service; `serve` must run for as long as it does."""

    def __init__(
        self, config: Callable[[], Config], url: Callable[[], str], store_url: str, clock: Clock
    ) -> None:
        self._config = config
        self._url = url
        self._store_url = store_url
        self._clock = clock
        self._stack = AsyncExitStack()
        self._opening: asyncio.Future[FlowHost] | None = None
        self.desk = AgentManager(self.host, clock)

    async def host(self) -> FlowHost:
        """The host of their runs, opened once, with the settings and prices in force."""
        if self._opening is None or (self._opening.done() and self._opening.exception()):
            self._opening = asyncio.ensure_future(self._open())
        host, config = await asyncio.shield(self._opening), self._config()
        return replace(host, settings=config.runs, prices=config.prices)

    async def _open(self) -> FlowHost:
        config = self._config()
        engine = open_state_store(config, patience=RUN_PATIENCE)
        self._stack.push_async_callback(engine.close)
        return await host_through(
            self._url(),
            config,
            engine,
            self._clock,
            self._stack,
            current=self._config,
        )

    async def serve(self) -> None:
        """Resume the agents that a service has left, as long as this one runs."""
        await self.desk.watch(partial(run_store_exists, self._store_url))

    def wakes(self, record: RunRecord) -> bool:
        """Wake a parked run here, if it is one of ours."""
        return self.desk.wakes(record)

    async def close(self) -> None:
        """Stop the agents, save everything, and close the store."""
        if self._opening is not None and self._opening.done() and not self._opening.exception():
            self._opening.result().engine.hurry()
        await self.desk.close()
        await self._stack.aclose()
