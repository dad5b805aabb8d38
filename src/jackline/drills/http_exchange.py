"""Send one HTTP/1.1 request over a connection of its own, and read the answer as it comes.

Laws: (1) whatever breaks is a `ConnectionError`, a clean end is none; (2) the connection is closed
when the block is left, by whatever way.
Not here: reusing connections, what the answer says (answer.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

READ_AT_ONCE = 65_536


@dataclass(frozen=True, slots=True)
class Response:
    """Status and headers (lower-case names) of an answer whose body is still to be read."""

    status: int
    headers: Mapping[str, str]
    reader: asyncio.StreamReader

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, piece by piece."""
        try:
            if self.headers.get("transfer-encoding", "").lower() == "chunked":
                async for piece in self._chunks():
                    yield piece
            else:
                left = int(self.headers.get("content-length", "0"))
                while left:
                    piece = await self.reader.read(min(left, READ_AT_ONCE))
                    if not piece:
                        raise ConnectionAbortedError("the answer ended early")
                    left -= len(piece)
                    yield piece
        except asyncio.IncompleteReadError as error:
            raise ConnectionAbortedError("the answer ended early") from error

    async def _chunks(self) -> AsyncIterator[bytes]:
        while size := int((await self.reader.readuntil(b"\r\n")).partition(b";")[0], 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readuntil(b"\r\n")

    async def whole(self) -> bytes:
        """The whole body."""
        return b"".join([piece async for piece in self.pieces()])


def posted(
    url: str, path: str, headers: Mapping[str, str], body: bytes
) -> AbstractAsyncContextManager[Response]:
    """The answer to a POST, once its headers are there."""
    return exchanged(url, "POST", path, headers, body)


@asynccontextmanager
async def exchanged(
    url: str, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
) -> AsyncIterator[Response]:
    """The answer to a request, once its headers are there."""
    place = urlsplit(url)
    try:
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
    except OSError as error:
        raise ConnectionRefusedError(f"nobody answers at {place.netloc}") from error
    try:
        sent = {"host": place.netloc, **(headers or {}), "content-length": str(len(body))}
        lines = [f"{method} {place.path}{path} HTTP/1.1", *(f"{k}: {v}" for k, v in sent.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        await writer.drain()
        yield await _response(reader)
    finally:
        writer.close()
        # The other side may have broken it already; it is over either way.
        with suppress(ConnectionError):
            await writer.wait_closed()


async def _response(reader: asyncio.StreamReader) -> Response:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.IncompleteReadError as error:
        raise ConnectionResetError("the connection ended before an answer") from error
    fields = (line.partition(":") for line in head[1:] if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in fields}
    return Response(int(head[0].split(" ", 2)[1]), headers, reader)
