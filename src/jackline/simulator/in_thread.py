"""Run the simulated provider in a thread of its own, beside tests that are not async.

Laws: (1) `with` waits until it listens, and until it has stopped; (2) orders are carried out in its
loop, one after another, so the caller needs no lock.
Not here: the one-line faults for tests (testing/).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from jackline import event_loop
from jackline.simulator.mind import Mind
from jackline.simulator.playing import Heard, Playing
from jackline.simulator.server import SimulatorServer
from jackline.simulator.settings import ProviderSettings

T = TypeVar("T")


class ServerThread:
    """A simulated provider with a thread of its own."""

    def __init__(
        self,
        settings: ProviderSettings | None = None,
        mind: Mind | None = None,
        *,
        seed: int = 0,
        speed: float = 1.0,
        port: int = 0,
    ) -> None:
        self._make = partial(SimulatorServer, settings, mind, seed=seed, speed=speed, port=port)
        self._listening: Future[SimulatorServer] = Future()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="jackline-simulator", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._listening.result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    @property
    def url(self) -> str:
        """The base URL to give to a client."""
        return self._listening.result().url

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._listening.result().port

    @property
    def heard(self) -> list[Heard]:
        """What the mind was asked so far."""
        return self.order(lambda playing: list(playing.heard))

    def order(self, carry_out: Callable[[Playing], T]) -> T:
        """Carry out an order in the server's loop and give its result."""
        server = self._listening.result()

        async def run() -> T:
            result = carry_out(server.playing)
            await server.playing.settled()
            return result

        if self._loop is None:
            raise RuntimeError("the simulated provider is not running")
        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def _run(self) -> None:
        try:
            event_loop.run(self._serve())
        except OSError as error:
            # The port is taken: whoever waits for the server has to hear it.
            self._listening.set_exception(error)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self._make() as server:
            self._listening.set_result(server)
            await self._stop.wait()
