"""A listener on a loopback port, and clients that speak raw bytes to it.

Rules: (1) real sockets only; (2) both loops: uvloop where it is installed, and asyncio's own.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from jackline.event_loop import loop_factory
from jackline.gateway.connection import ClientConnection, Exchange
from jackline.gateway.listener import Listener
from jackline.gateway.settings import GatewaySettings, LimitSettings, ListenSettings

T = TypeVar("T")

HOST = b"Host: 127.0.0.1\r\n"
PATIENCE = 60.0  # only reached by a test that fails
LOOPS = {"fast": loop_factory(), "asyncio": asyncio.new_event_loop}


def run(main: Coroutine[object, object, T], loop: str = "fast") -> T:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(asyncio.wait_for(main, PATIENCE * 2))


@asynccontextmanager
async def listening(
    handle: Callable[[Exchange], None], limits: LimitSettings | None = None
) -> AsyncIterator[Listener]:
    settings = replace(
        GatewaySettings(),
        listen=ListenSettings(port=0),
        limits=limits or LimitSettings(),
    )
    listener = Listener(settings, handle)
    await listener.open()
    try:
        yield listener
    finally:
        await listener.close(0.0)


def receive(connection: ClientConnection, data: bytes) -> None:
    """Give a connection bytes as a transport does: into its buffers, until all are taken."""
    while data:
        room = connection.get_buffer(-1)
        size = min(len(room), len(data))
        room[:size] = data[:size]
        connection.buffer_updated(size)
        data = data[size:]


class Client:
    """A raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def answer(self, *, to_head: bool = False) -> Answer:
        return await asyncio.wait_for(read_answer(self.reader, to_head=to_head), PATIENCE)

    async def rest(self) -> bytes:
        """All bytes until the end; a reset raises ConnectionResetError."""
        return await asyncio.wait_for(self.reader.read(), PATIENCE)

    async def closed(self) -> bool:
        """Whether the server has ended the connection with nothing more to say."""
        return await self.rest() == b""

    def reset(self) -> None:
        wire = self.writer.get_extra_info("socket")
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@asynccontextmanager
async def client_of(listener: Listener) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> tuple[str, str]:
        """Type and message of an error in Anthropic's shape."""
        document = json.loads(self.body)
        assert document["type"] == "error"
        return document["error"]["type"], document["error"]["message"]


async def read_answer(reader: asyncio.StreamReader, *, to_head: bool = False) -> Answer:
    """One answer, read by the letter of its framing; IncompleteReadError where it breaks off."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
    status = int(lines[0].split(" ")[1])
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, _, value = line.partition(": ")
        assert name.lower() not in headers, f"{name} stands twice"
        headers[name.lower()] = value
    if to_head or status in (100, 204, 304):
        return Answer(status, headers, b"")
    if "content-length" in headers:
        assert "transfer-encoding" not in headers
        return Answer(status, headers, await reader.readexactly(int(headers["content-length"])))
    if headers.get("transfer-encoding") == "chunked":
        return Answer(status, headers, await read_chunks(reader))
    return Answer(status, headers, await reader.read())


async def read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readuntil(b"\r\n"))[:-2], 16):
        body += await reader.readexactly(size)
        assert await reader.readexactly(2) == b"\r\n"
    assert await reader.readexactly(2) == b"\r\n"
    return body


def post(body: bytes = b"", path: bytes = b"/v1/messages", extra: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\n%b%bContent-Length: %d\r\n\r\n%b" % (
        path,
        HOST,
        extra,
        len(body),
        body,
    )


def get(path: bytes = b"/", extra: bytes = b"") -> bytes:
    return b"GET %b HTTP/1.1\r\n%b%b\r\n" % (path, HOST, extra)


def echo(exchange: Exchange) -> None:
    """Answers with what was asked, so that a test can compare."""
    shown = exchange.method + b" " + exchange.target + b" " + exchange.body
    exchange.respond(200, [(b"Content-Type", b"text/plain")], shown)


async def until(condition: Callable[[], bool]) -> None:
    """Returns when the condition holds; the test's patience ends it otherwise."""
    while not condition():  # noqa: ASYNC110 -- what is awaited is a state of the code under test
        await asyncio.sleep(0.002)
