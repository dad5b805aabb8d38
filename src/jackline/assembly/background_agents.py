"""Host the agents that models start, in the service's own process.

Laws: (1) nothing is opened before the first agent, or the first start of a service that finds runs;
(2) their calls go through this very gateway, by its address, as everybody's do; (3) what a dead
service left at work is taken up again, what a stopping one leaves is kept.
Not here: carrying them (mcp_server/agent_desk.py), flows of users, which run in processes of their
own (waking.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from jackline.assembly.hosting import host_through, open_store
from jackline.clock import Clock
from jackline.config import Config
from jackline.errors import JacklineError
from jackline.flows.host import FlowHost
from jackline.flows.local.opening import RUN_PATIENCE
from jackline.flows.records import RunRecord
from jackline.mcp_server.agent_desk import AgentDesk

_LOOK_EVERY = 15.0

_log = logging.getLogger("jackline")


class BackgroundAgents:
    """The agents of one service; `serve` must run for as long as it does."""

    def __init__(
        self, config: Callable[[], Config], url: Callable[[], str], store: Path, clock: Clock
    ) -> None:
        self._config = config
        self._url = url
        self._store = store
        self._clock = clock
        self._stack = AsyncExitStack()
        self._opening: asyncio.Future[FlowHost] | None = None
        self.desk = AgentDesk(self.host, clock)

    async def host(self) -> FlowHost:
        """The host of their runs; opened once."""
        if self._opening is None or (self._opening.done() and self._opening.exception()):
            self._opening = asyncio.ensure_future(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> FlowHost:
        config = self._config()
        engine = open_store(config, patience=RUN_PATIENCE)
        self._stack.push_async_callback(engine.close)
        return await host_through(self._url(), config, engine, self._clock, self._stack)

    async def serve(self) -> None:
        """Take up what was left, again and again: also what another process leaves later."""
        while True:
            try:
                if await asyncio.to_thread(self._store.exists):
                    await self.desk.look_after()
            except JacklineError as error:
                _log.warning("agents cannot be looked after: %s", error.message)
            await self._clock.sleep(_LOOK_EVERY)

    def wakes(self, record: RunRecord) -> bool:
        """Wake a parked run here, if it is one of ours."""
        return self.desk.wakes(record)

    async def close(self) -> None:
        """Stop the agents, keep everything, and close the store."""
        if self._opening is not None and self._opening.done() and not self._opening.exception():
            self._opening.result().engine.hurry()
        await self.desk.close()
        await self._stack.aclose()
