"""A raw server on loopback whose every byte a test decides, and an ear that writes all down.

Rules: (1) leaving the `async with` leaves no socket and no task; (2) what a handler raises fails
the test.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TypeAlias

from jackline.lane_id import LaneId
from jackline.upstream import Headers, HttpUpstream, Origin, UpstreamRequest

PATIENCE = 30.0  # only a test that hangs ever waits so long


@dataclass(slots=True)
class Wire:
    """The server's end of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int

    async def request(self) -> bytes:
        """The next request, head and body; nothing at the end of the connection."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return b""
        length = 0
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return head + await self.reader.readexactly(length)

    async def say(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        self.writer.transport.abort()


Handler: TypeAlias = Callable[[Wire], Awaitable[None]]


class Server:
    """Serves each connection with a handler; `async with` opens and closes it."""

    def __init__(self, handler: Handler, context: ssl.SSLContext | None = None) -> None:
        self._handler = handler
        self._context = context
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.connections = 0

    @property
    def url(self) -> str:
        scheme = "http" if self._context is None else "https"
        return f"{scheme}://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", 0, ssl=self._context, limit=1 << 26
        )
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for writer in self._writers:
            writer.transport.abort()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.01)  # aborted transports close their sockets in the next turns
        for result in results:
            # A handler that is cut off by the other side has simply nothing left to do.
            if isinstance(result, Exception) and not isinstance(result, OSError | EOFError):
                raise result

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self.connections += 1
        task = asyncio.ensure_future(self._handler(Wire(reader, writer, self.connections)))
        self._tasks.add(task)


def answering(answer: bytes) -> Handler:
    """Answer every request on every connection with the same bytes."""

    async def handler(wire: Wire) -> None:
        while await wire.request():
            await wire.say(answer)

    return handler


@dataclass(slots=True)
class Recorder:
    """Writes down what it hears; `over` is set by the last word."""

    status: int = 0
    headers: Headers = ()
    pieces: list[bytes] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    error: OSError | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    held: int = 0

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    def began(self, status: int, headers: Headers) -> None:
        self.words.append("began")
        self.status, self.headers = status, headers
        self.begun.set()

    def received(self, data: bytes) -> None:
        if self.words[-1:] != ["heard"]:
            self.words.append("heard")
        self.pieces.append(data)

    def ended(self) -> None:
        self.words.append("ended")
        self.over.set()

    def broke(self, error: OSError) -> None:
        self.words.append("broke")
        self.error = error
        self.over.set()

    async def last_word(self) -> str:
        await asyncio.wait_for(self.over.wait(), PATIENCE)
        return self.words[-1]


def post(body: bytes | bytearray = b"{}", *headers: tuple[bytes, bytes]) -> UpstreamRequest:
    return UpstreamRequest(b"POST", b"/v1/messages", headers, body)


def get(method: bytes = b"GET") -> UpstreamRequest:
    return UpstreamRequest(method, b"/v1/models", ())


async def ask(upstream: HttpUpstream, message: UpstreamRequest | None = None) -> Recorder:
    """Send the message on lane `a/model` and wait for the last word."""
    ear = Recorder()
    upstream.start(message or post(), LaneId("a", "model"), ear)
    await ear.last_word()
    return ear


class Asking(HttpUpstream):
    """An upstream with the one origin `a`, closed when the `async with` is left."""

    def __init__(self, origin: Origin | str) -> None:
        super().__init__({"a": Origin(origin) if isinstance(origin, str) else origin})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
        assert open_connections(self) == 0
        assert idle_connections(self) == 0


def open_connections(upstream: HttpUpstream) -> int:
    """How many connections there are, busy or idle."""
    return sum(len(pool.all) for pool in upstream._all())


def idle_connections(upstream: HttpUpstream) -> int:
    """How many of them wait for a request."""
    return sum(len(pool.idle) for pool in upstream._all())


async def until(condition: Callable[[], bool]) -> None:
    """Return as soon as the condition holds."""
    async with asyncio.timeout(PATIENCE):
        # What is waited for happens in the sockets of two sides: there is no event to wait on.
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
