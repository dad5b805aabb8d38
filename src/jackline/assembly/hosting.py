"""Make a host of flows out of a store and a gateway's address.

Laws: (1) credentials come from the environment, and go nowhere but into the calls; (2) what is
opened is closed with the stack that was given.
Not here: finding or starting a gateway (flow_host.py, service.py).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack

from jackline.agents.claude_code.environment import TOKEN_HEADER
from jackline.agents.claude_code.runner import ClaudeCodeRunner
from jackline.agents.codex.runner import CodexRunner
from jackline.agents.gateway_model import GatewayModel, credentials_from
from jackline.agents.messages.defaults import MessagesSettings
from jackline.agents.messages.runner import MessagesRunner
from jackline.agents.ports import Runner
from jackline.assembly.running_gateway import fullest_window, held_times
from jackline.assembly.state_dir import StateDir
from jackline.clock import Clock
from jackline.config import Config
from jackline.errors import JournalError
from jackline.flows.engine import Engine
from jackline.flows.host import FlowHost
from jackline.flows.local import LocalEngine
from jackline.flows.progress import Listener, nobody
from jackline.telemetry.client_variables import telemetry_variables

_FRESH = 1.0


async def host_through(
    url: str,
    config: Config,
    engine: Engine,
    clock: Clock,
    stack: AsyncExitStack,
    listener: Listener = nobody,
) -> FlowHost:
    """A host whose agents call through the gateway at `url`."""
    token = config.gateway.listen.token
    headers = credentials_from(os.environ)
    if token is not None:
        headers = (*headers, (TOKEN_HEADER, token))
    model = await stack.enter_async_context(GatewayModel(url, clock=clock, headers=headers))

    settings = MessagesSettings(prices=config.prices)
    environment = dict(os.environ)
    if config.otlp.receive:
        environment |= telemetry_variables(url, os.environ, token)

    def runners(run_id: str) -> Mapping[str, Runner]:
        # Each run marks its calls in the gateway's records.
        made: tuple[Runner, ...] = (
            MessagesRunner(model, clock=clock, tag=run_id, settings=settings),
            ClaudeCodeRunner(url, environment=environment, clock=clock, tag=run_id, token=token),
            CodexRunner(url, clock=clock, tag=run_id, token=token),
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
        held_time=HeldTimes(url, clock, token).of,
    )


class HeldTimes:
    """What the gateway says of held calls, asked once a second at most by all agents together."""

    def __init__(self, url: str, clock: Clock, token: str | None = None) -> None:
        self._url = url
        self._token = token or ""
        self._clock = clock
        self._asked_at = -_FRESH
        self._asking: asyncio.Future[dict[str, float] | None] | None = None

    async def of(self, task_id: str) -> float | None:
        """For how many seconds the calls of this task were held; None when nobody says."""
        now = self._clock.monotonic()
        if self._asking is None or now - self._asked_at >= _FRESH:
            self._asked_at = now
            self._asking = asyncio.ensure_future(
                asyncio.to_thread(held_times, self._url, self._token)
            )
        # Others wait for the same answer: who is cancelled leaves it to them.
        told = await asyncio.shield(self._asking)
        return None if told is None else told.get(task_id, 0.0)


def open_store(config: Config, *, patience: float = 0.0) -> LocalEngine:
    """Where runs are kept; who carries some has patience with another program's lock."""
    state = StateDir(config.state_dir)
    try:
        state.make()
    except OSError as error:
        raise JournalError(
            f"runs cannot be kept: {state.folder} cannot be made ({error.strerror})",
            next="name another folder with --state or JACKLINE_STATE",
        ) from error
    return LocalEngine(state.flows, patience=patience)
