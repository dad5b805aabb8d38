"""Stand between a client and its server, and count the errors that come back.

Laws: (1) bytes, ends and resets are passed on as they come; (2) an error is a status of 400 and
above, an error event, or an answer that does not end; a client that leaves by itself has seen none.
Not here: what clients make of errors (their own records).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from httptools import HttpResponseParser

from jackline.clock import SystemClock
from jackline.simulator.http_wire import reset

READ_AT_ONCE = 65_536
LOOPBACK = "127.0.0.1"


class Witnessed(NamedTuple):
    """An error in a word, and the real seconds since its request began."""

    word: str
    waited: float


class Witness:
    """A relay on a port of its own; `errors` holds what came back, in order."""

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target)
        self._tasks: set[asyncio.Task[None]] = set()
        self.errors: list[Witnessed] = []

    @property
    def url(self) -> str:
        """The base URL to give to a client."""
        return f"http://{LOOPBACK}:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            await self._relay(reader, writer)
        except asyncio.CancelledError:
            return  # the drill is over: nobody to tell
        finally:
            writer.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        watch = _Watch(self.errors)
        try:
            answers, asking = await asyncio.open_connection(
                self._target.hostname, self._target.port
            )
        except OSError:
            self.errors.append(Witnessed("refused", 0.0))
            reset(writer)
            return
        forth = asyncio.create_task(_forth(reader, asking, watch))
        try:
            while data := await answers.read(READ_AT_ONCE):
                watch.answer(data)
                writer.write(data)
                await writer.drain()
            watch.ended("ended early")
        except ConnectionError:
            watch.ended("reset")
            reset(writer)
        finally:
            forth.cancel()
            await asyncio.gather(forth, return_exceptions=True)
            asking.close()


async def _forth(reader: asyncio.StreamReader, asking: asyncio.StreamWriter, watch: _Watch) -> None:
    """Carry the client's bytes until it leaves; then its server shall see that at once."""
    with suppress(ConnectionError):
        while data := await reader.read(READ_AT_ONCE):
            watch.request(data)
            asking.write(data)
            await asking.drain()
    watch.client_left = True
    asking.transport.abort()


class _Watch:
    """What is seen of the exchanges of one connection."""

    def __init__(self, errors: list[Witnessed]) -> None:
        self._errors = errors
        self._clock = SystemClock()
        self._asked_at = 0.0
        self._parser: HttpResponseParser | None = None
        self._failed = False
        self._tail = b""
        self.client_left = False

    def request(self, data: bytes) -> None:
        """Bytes of the client; with no answer under way they begin a new exchange."""
        if self._parser is None and data.startswith(b"POST "):
            self._parser, self._failed, self._tail = HttpResponseParser(self), False, b""
            self._asked_at = self._clock.monotonic()

    def answer(self, data: bytes) -> None:
        """Bytes of the server."""
        if self._parser is not None:
            self._parser.feed_data(data)

    def ended(self, how: str) -> None:
        """The server has closed the connection."""
        if self._parser is not None and not self.client_left:
            self._fail(how)

    def on_headers_complete(self) -> None:
        """The parser has read the status."""
        status = self._parser.get_status_code() if self._parser is not None else 0
        if status >= 400:
            self._fail(str(status))

    def on_body(self, body: bytes) -> None:
        """The parser has read a piece of the body."""
        if b"event: error" in self._tail + body:
            self._fail("error event")
        self._tail = body[-16:]

    def on_message_complete(self) -> None:
        """The parser has read a whole answer."""
        self._parser = None

    def _fail(self, word: str) -> None:
        """Write an error down, once for each exchange."""
        if not self._failed:
            self._failed = True
            self._errors.append(Witnessed(word, self._clock.monotonic() - self._asked_at))
