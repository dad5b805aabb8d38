"""Open what flows need on this machine: the store, the runners, and a gateway to call through.

Rules: (1) every call goes through a gateway, so that all processes share one window: the running
one, else one in the background (commands), else one of our own that ends with us (Python code);
(2) a shared gateway that was killed is started again at its address; one that was stopped is not;
(3) what was opened is closed in reverse order; (4) credentials come from the environment, and go
nowhere but into the calls.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from jackline.assembly.agent_host import host_through
from jackline.assembly.gateway_process import find_lasting, start_in_background, was_killed
from jackline.assembly.saved_runs import open_state_store
from jackline.assembly.service import Service
from jackline.clock import Clock, SystemClock
from jackline.config import Config, load
from jackline.errors import JacklineError
from jackline.flows.host import FlowHost
from jackline.flows.run_events import Listener, ignore_event
from jackline.flows.store.run_store import RUN_PATIENCE, RunStore
from jackline.gateway.settings import ListenSettings
from jackline.state_dir import StateDir

_log = logging.getLogger("jackline")
_LOOK_EVERY = 3.0


@asynccontextmanager
async def open_flow_host(
    config: Config | None = None,
    *,
    listener: Listener = ignore_event,
    clock: Clock | None = None,
    in_background: bool = False,
    first: Callable[[RunStore], Awaitable[None]] | None = None,
    started: Callable[[str], object] = lambda _url: None,
) -> AsyncIterator[FlowHost]:
    """The host of this machine's flows; `in_background` starts a gateway that outlives us.

    `first` is done with the store before a gateway is looked for or started; `started` gets the
    address of one that was started in the background.
    """
    config = config or load(environ=os.environ, cwd=Path.cwd())
    clock = clock or SystemClock()
    async with AsyncExitStack() as stack:
        engine = open_state_store(config, patience=RUN_PATIENCE)
        stack.push_async_callback(engine.close)
        if first is not None:
            await first(engine)
        state, listen = StateDir(config.state_dir), config.gateway.listen
        in_folder = ("--state", str(state.folder.absolute()))
        running = await asyncio.to_thread(find_lasting, state, listen)
        if running is None and in_background:
            running = await asyncio.to_thread(start_in_background, state, listen, in_folder)
            started(running.url)
        if running is not None:
            url = running.url
            watching = asyncio.create_task(_keep_alive(state, listen, url, in_folder))
            stack.push_async_callback(_end, watching)
        else:
            # A folder of its own: a gateway that is started meanwhile must find its own as it left
            # it.
            folder = stack.enter_context(TemporaryDirectory(prefix="jackline-"))
            gateway = replace(config.gateway, listen=replace(listen, host="127.0.0.1", port=0))
            config = replace(config, gateway=gateway, state_dir=Path(folder))
            service = await stack.enter_async_context(Service(config, beside_flows=True))
            url = service.url
        yield await host_through(url, config, engine, clock, stack, listener)


async def _keep_alive(
    state: StateDir, listen: ListenSettings, url: str, in_folder: Sequence[str]
) -> None:
    """Start the gateway again where it was, whenever it was killed: our agents wait there."""
    again = (*in_folder, "--port", str(urlsplit(url).port))
    said = ""
    while True:
        await asyncio.sleep(_LOOK_EVERY)
        try:
            if await asyncio.to_thread(was_killed, state, url):
                await asyncio.to_thread(start_in_background, state, listen, again)
        except JacklineError as error:
            # Somebody else may have its port for long.
            if error.message != said:
                said = error.message
                _log.warning("the gateway was killed, and cannot be started again: %s", said)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})
