"""Open the simulated provider on a loopback port.

Laws: (1) only loopback; (2) while the model refuses connections nobody listens on the port; (3)
when it stops, no task and no connection is left, and a failed driver is told.
Not here: one connection (connection.py), time (playing.py), a thread of its own (in_thread.py).
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from jackline.simulator.connection import Connection
from jackline.simulator.http_wire import ClientReader, reset
from jackline.simulator.mind import Mind
from jackline.simulator.playing import Playing
from jackline.simulator.settings import ProviderSettings

LOOPBACK = "127.0.0.1"


class SimulatorServer:
    """The provider as an HTTP/1.1 server; `async with` opens and closes it.

    `clients_hurry`: their clocks run as fast as the model's, so dates and waits are told unscaled.
    """

    def __init__(
        self,
        settings: ProviderSettings | None = None,
        mind: Mind | None = None,
        *,
        seed: int = 0,
        speed: float = 1.0,
        port: int = 0,
        clients_hurry: bool = False,
    ) -> None:
        self.port = port
        self.playing = Playing(
            settings or ProviderSettings(),
            mind or Mind(),
            seed=seed,
            speed=speed,
            clients_hurry=clients_hurry,
        )
        self.playing.drop_connections = self._drop_connections
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """The base URL to give to a client."""
        return f"http://{LOOPBACK}:{self.port}"

    async def __aenter__(self) -> Self:
        await self._listen()
        self._driving = asyncio.create_task(self.playing.drive(self._set_door))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop_listening()
        driving = self._driving
        for task in (*self._tasks, driving):
            task.cancel()
        await asyncio.gather(*self._tasks, driving, return_exceptions=True)
        self._drop_connections()
        # Aborted transports close their sockets in the next turn of the loop.
        await asyncio.sleep(0)
        if not driving.cancelled() and (failed := driving.exception()):
            raise failed

    async def _set_door(self, is_open: bool) -> None:
        if is_open and self._listener is None:
            await self._listen()
        elif not is_open:
            self._stop_listening()

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._greet, LOOPBACK, self.port)
        self.port = self._listener.sockets[0].getsockname()[1]

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _drop_connections(self) -> None:
        for writer in self._writers:
            reset(writer)

    def _greet(self) -> asyncio.StreamReaderProtocol:
        reader = ClientReader()

        async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            if task is not None:
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            self._writers.add(writer)
            try:
                await Connection(self.playing, reader, writer).serve()
            except asyncio.CancelledError:
                return  # the server is being stopped: nobody to tell
            finally:
                self._writers.discard(writer)

        return asyncio.StreamReaderProtocol(reader, serve)
