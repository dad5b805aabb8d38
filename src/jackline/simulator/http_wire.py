"""As much HTTP/1.1 as model clients need: parse requests, write heads and chunks.

Rules: (1) one request at a time on a connection; (2) whatever cannot be parsed ends the
connection, never the server; (3) a reader reports at once when its client has gone.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

BODY_LIMIT = 64 * 1024 * 1024
_REASONS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    429: "Too Many Requests",
}
LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request line, its headers with lower-case names, and the body as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    raw: bytes


class ClientReader(asyncio.StreamReader):
    """A stream reader that reports when the client has closed or vanished."""

    def __init__(self) -> None:
        super().__init__(limit=BODY_LIMIT)
        self.gone = False
        self.on_gone: Callable[[], None] | None = None

    def feed_eof(self) -> None:
        """The client has closed its side."""
        super().feed_eof()
        self._report_gone()

    def set_exception(self, exc: Exception) -> None:
        """The connection broke."""
        super().set_exception(exc)
        self._report_gone()

    def _report_gone(self) -> None:
        self.gone = True
        if self.on_gone is not None:
            self.on_gone()


async def read_request(reader: ClientReader) -> HttpRequest | None:
    """The next request on a connection, or None when there is no more to read."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        # Repeated headers have their values in one list.
        headers: dict[str, str] = {}
        for name, _, value in (line.partition(":") for line in head[1:] if line):
            key, text = name.strip().lower(), value.strip()
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        if headers.get("transfer-encoding", "").lower() == "chunked":
            raw = await _read_chunks(reader)
        else:
            raw = await reader.readexactly(int(headers.get("content-length") or 0))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ValueError):
        return None
    return HttpRequest(method, target.partition("?")[0], headers, raw)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    whole = b""
    while True:
        size = int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16)
        piece = await reader.readexactly(size + 2)
        if not size:
            return whole
        whole += piece[:-2]


def head(status: int, headers: Mapping[str, str]) -> bytes:
    """The status line and headers, with the empty line that ends them."""
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Simulated')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def response(status: int, headers: Mapping[str, str], payload: bytes) -> bytes:
    """One whole response; its length is known, so the connection stays open."""
    sized = {"content-type": "application/json", **headers, "content-length": str(len(payload))}
    return head(status, sized) + payload


def chunk(payload: bytes) -> bytes:
    """A piece of a body of unknown length."""
    return b"%x\r\n%s\r\n" % (len(payload), payload) if payload else b""


def reset(writer: asyncio.StreamWriter) -> None:
    """Break the connection so that the other side sees a reset, not an end."""
    connection = writer.get_extra_info("socket")
    if connection is not None and not writer.is_closing():
        linger = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()
