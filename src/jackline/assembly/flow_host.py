"""Open what flows need on this machine: the store, the runners, and a gateway to call through.

Laws: (1) every call goes through a gateway, so that all processes share one window: the one that
runs, else one in the background (commands), else one of our own that ends with us (Python code);
(2) what was opened is closed in reverse order; (3) credentials come from the environment, and go
nowhere but into the calls.
Not here: what flows do (flows/), the gateway itself (service.py).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from jackline.agents.claude_code.environment import TOKEN_HEADER
from jackline.agents.claude_code.runner import ClaudeCodeRunner
from jackline.agents.codex.runner import CodexRunner
from jackline.agents.gateway_model import GatewayModel, credentials_from
from jackline.agents.messages.runner import MessagesRunner
from jackline.agents.ports import Runner
from jackline.assembly.running_gateway import find_lasting, start_in_background
from jackline.assembly.service import Service
from jackline.assembly.state_dir import StateDir
from jackline.clock import Clock, SystemClock
from jackline.config import Config, load
from jackline.errors import JournalError
from jackline.flows.host import FlowHost
from jackline.flows.local import LocalEngine
from jackline.flows.progress import Listener, nobody


@asynccontextmanager
async def open_flow_host(
    config: Config | None = None,
    *,
    listener: Listener = nobody,
    clock: Clock | None = None,
    in_background: bool = False,
) -> AsyncIterator[FlowHost]:
    """The host of this machine's flows; `in_background` starts a gateway that outlives us."""
    config = config or load(environ=os.environ, cwd=Path.cwd())
    clock = clock or SystemClock()
    async with AsyncExitStack() as stack:
        engine = open_store(config)
        stack.push_async_callback(engine.close)
        url = await _gateway(config, stack, in_background=in_background)
        token = config.gateway.listen.token
        headers = credentials_from(os.environ)
        if token is not None:
            headers = (*headers, (TOKEN_HEADER, token))
        model = await stack.enter_async_context(GatewayModel(url, clock=clock, headers=headers))

        def runners(run_id: str) -> Mapping[str, Runner]:
            # Each run marks its calls in the gateway's records.
            made: tuple[Runner, ...] = (
                MessagesRunner(model, clock=clock, tag=run_id),
                ClaudeCodeRunner(url, clock=clock, tag=run_id, token=token),
                CodexRunner(url, clock=clock, tag=run_id, token=token),
            )
            return {runner.name: runner for runner in made}

        yield FlowHost(engine, runners, clock, settings=config.runs, listener=listener)


@asynccontextmanager
async def open_quiet_host(config: Config) -> AsyncIterator[FlowHost]:
    """A host for orders that start no agent (cancel, clean up): it needs no gateway."""
    engine = open_store(config)
    try:
        yield FlowHost(engine, lambda _run_id: {}, settings=config.runs)
    finally:
        await engine.close()


def open_store(config: Config) -> LocalEngine:
    """Where runs are kept."""
    state = StateDir(config.state_dir)
    try:
        state.make()
    except OSError as error:
        raise JournalError(
            f"runs cannot be kept: {state.folder} cannot be made ({error.strerror})",
            next="name another folder with --state or JACKLINE_STATE",
        ) from error
    return LocalEngine(state.flows)


async def _gateway(config: Config, stack: AsyncExitStack, *, in_background: bool) -> str:
    state = StateDir(config.state_dir)
    running = await asyncio.to_thread(find_lasting, state, config.gateway.listen)
    if running is None and in_background:
        running = await asyncio.to_thread(start_in_background, state, ())
    if running is not None:
        return running.url
    # A folder of its own: a gateway that is started meanwhile must find its own as it left it.
    folder = stack.enter_context(TemporaryDirectory(prefix="jackline-"))
    listen = replace(config.gateway.listen, host="127.0.0.1", port=0)
    gateway = replace(config.gateway, listen=listen)
    own = replace(config, gateway=gateway, state_dir=Path(folder))
    service = await stack.enter_async_context(Service(own))
    return service.url
