"""The server's end of one connection: read requests, render whole responses, break connections.

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

from jackline.http1.headers import response_head
from jackline.http1.requests import Packet, RequestParser, RequestRefusal, RequestStage

HEAD_LIMIT = 256 * 1024
BODY_LIMIT = 64 * 1024 * 1024
_READ_AT_ONCE = 256 * 1024


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A method, a path, headers with lower-case names, and the body as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    raw: bytes


class ClientReader(asyncio.StreamReader):
    """Reads the requests of one client, and reports when it has closed or vanished."""

    def __init__(self) -> None:
        super().__init__(limit=_READ_AT_ONCE)
        self._parser = RequestParser(HEAD_LIMIT, BODY_LIMIT)
        # What came behind the last request.
        self._ahead: Packet = b""
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

    async def next_request(self) -> HttpRequest | None:
        """The next request, or None when there is no more to read."""
        parser = self._parser
        try:
            while parser.stage is not RequestStage.COMPLETE:
                data = self._ahead or await self.read(_READ_AT_ONCE)
                if not data:
                    return None
                self._ahead = parser.feed(data)
        except (ConnectionError, RequestRefusal):
            return None
        head, body = parser.take()
        headers: dict[str, str] = {}
        for name, value in head.headers:
            key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
            # Repeated headers have their values in one list.
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        return HttpRequest(head.method.decode(), head.path.decode(), headers, bytes(body))


def render_head(status: int, headers: Mapping[str, str], length: int | None) -> bytes:
    """The head of a response; without a length its body is chunked."""
    chunked = b"transfer-encoding: chunked\r\n"
    framing = chunked if length is None else b"content-length: %d\r\n" % length
    pairs = [(n.encode("latin-1"), v.encode("latin-1")) for n, v in headers.items()]
    return response_head(status, pairs, framing)


def render_response(status: int, headers: Mapping[str, str], body: bytes) -> bytes:
    """One whole response; its length is known, so the connection stays open."""
    return render_head(status, {"content-type": "application/json", **headers}, len(body)) + body


def reset(writer: asyncio.StreamWriter) -> None:
    """Break the connection so that the other side sees a reset, not an end."""
    connection = writer.get_extra_info("socket")
    if connection is not None and not writer.is_closing():
        linger = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()
