"""Open the simulated provider on a loopback port, in this event loop or in its own thread.

Rules: (1) only loopback; (2) while the model refuses connections nobody listens on the port; (3)
when it stops, no task and no connection is left, and a failed driver is raised; (4) with a
thread, `with` waits until it listens and until it has stopped; commands run in its loop, one
after another, so the caller needs no lock.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Self, TypeVar

from jackline import event_loop
from jackline.simulator.connection import ClientReader, SimConnection, reset
from jackline.simulator.live_provider import LiveProvider, RecordedRequest
from jackline.simulator.provider import ProviderSettings
from jackline.simulator.reply_script import ReplyScript

LOOPBACK = "127.0.0.1"


class SimulatorServer:
    """The provider as an HTTP/1.1 server; `async with` opens and closes it.

    `clients_hurry`: their clocks run as fast as the model's, so dates and waits are not scaled.
    """

    def __init__(
        self,
        settings: ProviderSettings | None = None,
        script: ReplyScript | None = None,
        *,
        seed: int = 0,
        speed: float = 1.0,
        port: int = 0,
        clients_hurry: bool = False,
    ) -> None:
        self.port = port
        self.playing = LiveProvider(
            settings or ProviderSettings(),
            script or ReplyScript(),
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
        """The base URL for a client."""
        return f"http://{LOOPBACK}:{self.port}"

    async def __aenter__(self) -> Self:
        await self._listen()
        self._driving = asyncio.create_task(self.playing.drive(self._set_listening))
        return self

    async def __aexit__(self, *raised: object) -> None:
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

    async def _set_listening(self, is_on: bool) -> None:
        if is_on and self._listener is None:
            await self._listen()
        elif not is_on:
            self._stop_listening()

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._protocol, LOOPBACK, self.port)
        self.port = self._listener.sockets[0].getsockname()[1]

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _drop_connections(self) -> None:
        for writer in self._writers:
            reset(writer)

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        reader = ClientReader()

        async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            if task is not None:
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            self._writers.add(writer)
            try:
                await SimConnection(self.playing, reader, writer).serve()
            except asyncio.CancelledError:
                return  # the server is being stopped
            finally:
                self._writers.discard(writer)

        return asyncio.StreamReaderProtocol(reader, serve)


T = TypeVar("T")


class ServerThread:
    """A simulated provider in its own thread."""

    def __init__(
        self,
        settings: ProviderSettings | None = None,
        script: ReplyScript | None = None,
        *,
        seed: int = 0,
        speed: float = 1.0,
        port: int = 0,
    ) -> None:
        self._make = partial(SimulatorServer, settings, script, seed=seed, speed=speed, port=port)
        self._listening: Future[SimulatorServer] = Future()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="jackline-simulator", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._listening.result()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    @property
    def url(self) -> str:
        """The base URL for a client."""
        return self._listening.result().url

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._listening.result().port

    @property
    def recorded(self) -> list[RecordedRequest]:
        """The requests that the script answered so far."""
        return self.order(lambda playing: list(playing.recorded))

    def order(self, command: Callable[[LiveProvider], T]) -> T:
        """Run a command in the server's loop and return its result."""
        server = self._listening.result()

        async def run() -> T:
            result = command(server.playing)
            await server.playing.settled()
            return result

        if self._loop is None:
            raise RuntimeError("the simulated provider is not running")
        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def _run(self) -> None:
        try:
            event_loop.run(self._serve())
        except OSError as error:
            # The port is in use: the caller that waits for the server gets the error.
            self._listening.set_exception(error)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self._make() as server:
            self._listening.set_result(server)
            await self._stop.wait()
