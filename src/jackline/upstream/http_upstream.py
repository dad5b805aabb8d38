"""Send attempts to real providers over HTTP/1.1, on pooled connections.

Rules: (1) those of interface.py; (2) the lane's name selects the origin from the configuration;
nothing in a message can change it; (3) an attempt never waits for another one's connection; (4) a
request that met the end of a pooled connection is sent once more, on a new one, and never a third
time; (5) a connection is free again only after the whole answer, with the whole request sent and no
byte beyond; it stays idle for at most the origin's `idle_seconds`, watched by one timer; what
cannot be parsed ends it, and over TLS only TLS's own last message is the end of an answer without
a length; (6) the handler is called only when the parser has returned, so that it may do anything, a
next request included; (7) an attempt that is over has neither its handler nor its body nor a
connection; (8) after `close` nothing is open.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from typing import cast

from jackline.errors import InternalError
from jackline.http1.headers import request_lines
from jackline.http1.responses import ResponseParser
from jackline.lane_id import LaneId
from jackline.upstream.interface import (
    SILENT_HANDLER,
    ClosedHereError,
    NoAnswerError,
    ResponseHandler,
    UpstreamRequest,
)
from jackline.upstream.origin import Dialler, Origin

# Below this, copying the body behind the head is cheaper than a second write.
JOINED_BYTES = 64 * 1024
# A larger body goes out in such pieces, as fast as the other side takes them: nothing is copied.
PIECE_BYTES = 256 * 1024
# A usual prompt goes to the system in one call, instead of waiting several times for room.
SEND_BUFFER = 512 * 1024
_CLOSING = "the gateway is being closed"


class HttpAttempt:
    """One request and its answer."""

    __slots__ = (
        "body",
        "connection",
        "dialling",
        "handler",
        "head",
        "is_head",
        "is_over",
        "is_paused",
    )

    def __init__(
        self, head: bytes, body: bytes | bytearray, is_head: bool, handler: ResponseHandler
    ) -> None:
        self.head = head
        self.body = body
        self.is_head = is_head
        self.handler = handler
        self.is_over = False
        self.is_paused = False
        self.connection: Connection | None = None
        self.dialling: asyncio.Task[None] | None = None

    def hang_up(self) -> None:
        """Drop it at once; may be called at any time and any number of times."""
        connection, dialling = self.connection, self.dialling
        self.end()
        if connection is not None:
            connection.drop()
        if dialling is not None:
            dialling.cancel()

    def pause(self) -> None:
        """Stop reading: the receiver of the bytes is slow."""
        self.is_paused = True
        if self.connection is not None:
            self.connection.pause()

    def resume(self) -> None:
        """Go on reading."""
        self.is_paused = False
        if self.connection is not None:
            self.connection.resume()

    def end(self) -> ResponseHandler:
        """Drop everything; returns the handler, for its last call."""
        handler = self.handler
        self.is_over = True
        self.handler = SILENT_HANDLER
        self.connection = self.dialling = None
        self.head = self.body = b""
        return handler

    def break_off(self, error: OSError) -> None:
        """End it with this error, unless it is over."""
        if not self.is_over:
            self.end().broke(error)


class Connection(asyncio.Protocol):
    """One connection to an origin."""

    __slots__ = (
        "_attempt",
        "_is_held",
        "_is_left",
        "_parser",
        "_pool",
        "_rest",
        "_transport",
        "_unsent",
        "_was_used",
        "idle_since",
    )

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._parser = ResponseParser()
        self._transport: asyncio.Transport | None = None
        self._attempt: HttpAttempt | None = None
        self._rest: memoryview | None = None
        self._unsent: tuple[bytes | bytearray, ...] = ()
        self._is_held = False
        self._is_left = False
        self._was_used = False
        self.idle_since = 0.0

    @property
    def is_usable(self) -> bool:
        """Whether a request can be sent on it now."""
        transport = self._transport
        return self._attempt is None and transport is not None and not transport.is_closing()

    # --- sending ---

    def send(self, attempt: HttpAttempt) -> None:
        """Send the request; its answer goes to the attempt's handler."""
        transport = cast(asyncio.Transport, self._transport)
        self._attempt = attempt
        attempt.connection = self
        self._parser.expect(has_no_body=attempt.is_head)
        if attempt.is_paused:
            transport.pause_reading()
        body = attempt.body
        if len(body) <= JOINED_BYTES:
            # At the end of the turn, with those of the other connections: the first write wakes
            # the peer up, and that is most of its cost.
            self._unsent = (attempt.head + body if body else attempt.head,)
            self._pool.flush_soon(self)
            return
        # Together: a head that goes alone wakes the peer up for nothing.
        if len(body) <= PIECE_BYTES:
            self._unsent = (attempt.head, body)
            self._pool.flush_soon(self)
            return
        whole = memoryview(body)
        self._rest = whole[PIECE_BYTES:]
        transport.writelines((attempt.head, whole[:PIECE_BYTES]))
        self._send_rest(transport)

    def flush(self) -> None:
        """Write what waits for the end of the turn."""
        unsent, self._unsent = self._unsent, ()
        transport = self._transport
        if not unsent or transport is None or transport.is_closing():
            return
        if len(unsent) == 1:
            transport.write(unsent[0])
        else:
            transport.writelines(unsent)

    def _send_rest(self, transport: asyncio.Transport) -> None:
        while self._rest is not None and not self._is_held:
            piece, rest = self._rest[:PIECE_BYTES], self._rest[PIECE_BYTES:]
            self._rest = rest or None
            transport.write(piece)

    def pause_writing(self) -> None:
        """The other side accepts no more for now."""
        self._is_held = True

    def resume_writing(self) -> None:
        """The other side accepts more."""
        self._is_held = False
        if self._transport is not None:
            self._send_rest(self._transport)

    # --- called by attempts and by the owner ---

    def pause(self) -> None:
        """Stop reading."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Go on reading."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def drop(self) -> None:
        """End the connection at once, without a word to the attempt."""
        self._attempt = None
        self._leave()

    def break_off(self, error: OSError) -> None:
        """End the connection at once, and its attempt with this error."""
        attempt = self._attempt
        self.drop()
        if attempt is not None:
            attempt.break_off(error)

    def _leave(self) -> None:
        self._rest = None
        self._unsent = ()
        if not self._is_left:
            self._is_left = True
            if self._transport is not None:
                self._transport.abort()

    # --- called by the loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = cast(asyncio.Transport, transport)
        wire = transport.get_extra_info("socket")
        if wire is not None:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)

    def data_received(self, data: bytes) -> None:
        """Parse the next bytes of the answer and report what they hold."""
        attempt = self._attempt
        if attempt is None:  # no request is open
            self._leave()
            return
        self._parser.feed(data)
        parser = self._parser
        try:
            if parser.new_head is not None:
                headers, parser.new_head = parser.new_head, None
                attempt.handler.began(parser.status, headers)
            if parser.parts:
                attempt.handler.received(parser.take_content())
            if self._attempt is not attempt:  # hung up on meanwhile
                return
            if parser.is_complete:
                self._finish(attempt)
            elif parser.fault is not None:
                self.break_off(parser.fault)
        except OSError as error:
            # Stock asyncio takes an OSError here for the network's fault, and logs nothing.
            self._handler_failed(attempt)
            raise RuntimeError("the handler of an attempt has failed") from error
        except BaseException:
            self._handler_failed(attempt)
            raise

    def _finish(self, attempt: HttpAttempt) -> None:
        self._attempt = None
        is_paused = attempt.is_paused
        handler = attempt.end()
        transport = self._transport
        is_sent = self._rest is None and not self._is_held
        if self._parser.can_go_on and is_sent and transport is not None:
            if is_paused:
                transport.resume_reading()
            self._was_used = True
            self._pool.free(self)
        else:
            self._leave()
        handler.ended()

    def _handler_failed(self, attempt: HttpAttempt) -> None:
        # After its last call the connection may already be another attempt's.
        if self._attempt is attempt:
            self.break_off(ClosedHereError("its handler has failed"))

    def eof_received(self) -> None:
        """The other side sends no more; over TLS only its word for that counts."""
        transport = self._transport
        tls = None if transport is None else transport.get_extra_info("ssl_object")
        try:
            is_end = tls is None or tls.read(1) == b""
        except ssl.SSLError:
            is_end = False
        self._gone(None, is_end=is_end)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is no more."""
        self._transport = None
        self._pool.lost(self)
        self._gone(exc, is_end=False)
        self._parser.close()

    def _gone(self, cause: Exception | None, *, is_end: bool) -> None:
        attempt = self._attempt
        self._attempt = None
        self._leave()
        if attempt is None:
            return
        if self._parser.has_begun:
            error = self._parser.end_of_connection()
            if error is None and is_end:
                attempt.end().ended()
                return
            error = error or ConnectionResetError("connection reset in mid-response")
            error.__cause__ = cause
            attempt.break_off(error)
        elif self._was_used:
            attempt.connection = None
            self._pool.dial(attempt)
        else:
            attempt.break_off(cause if isinstance(cause, OSError) else NoAnswerError())


class ConnectionPool:
    """The connections to one origin."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._heads = origin.request_heads()
        self._dialler = Dialler(origin)
        self.all: set[Connection] = set()
        # In the order in which they became idle.
        self.idle: dict[Connection, None] = {}
        self._dialling: dict[asyncio.Task[None], HttpAttempt] = {}
        self._to_flush: list[Connection] = []
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._emptied: asyncio.Event | None = None

    def start(self, message: UpstreamRequest, handler: ResponseHandler) -> HttpAttempt:
        """Send the message, at once where a connection is idle."""
        method, target, headers, body, lines, *_ = message
        if lines is None:
            lines = request_lines(headers)
        head = self._heads.render(method, target, lines, len(body))
        attempt = HttpAttempt(head, body, method == b"HEAD", handler)
        idle = self.idle
        while idle and not message.fresh:
            connection, _ = idle.popitem()
            if connection.is_usable:
                connection.send(attempt)
                return attempt
        self.dial(attempt)
        return attempt

    async def close(self) -> None:
        """Break off whatever goes on; returns when every connection is gone."""
        self._emptied = asyncio.Event()
        tasks = list(self._dialling.items())
        for task, attempt in tasks:
            task.cancel()
            attempt.break_off(ClosedHereError(_CLOSING))
        for connection in list(self.all):
            connection.break_off(ClosedHereError(_CLOSING))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.idle.clear()
        await asyncio.gather(*(task for task, _ in tasks), return_exceptions=True)
        if self.all:
            await self._emptied.wait()

    # --- opening ---

    def dial(self, attempt: HttpAttempt) -> None:
        """Send the attempt on a new connection."""
        loop = self._loop = asyncio.get_running_loop()
        if self._emptied is not None:
            loop.call_soon(attempt.break_off, ClosedHereError(_CLOSING))
            return
        task = loop.create_task(self._connect(attempt))
        attempt.dialling = task
        self._dialling[task] = attempt
        task.add_done_callback(self._dialled)

    async def _connect(self, attempt: HttpAttempt) -> None:
        connection = Connection(self)
        await self._dialler.open(connection)
        self.all.add(connection)
        attempt.dialling = None
        if attempt.is_over:
            connection.drop()
        else:
            connection.send(attempt)

    def _dialled(self, task: asyncio.Task[None]) -> None:
        attempt = self._dialling.pop(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, OSError):
            attempt.break_off(error)
        elif error is not None:
            attempt.break_off(ClosedHereError("connecting failed in an unforeseen way"))
            raise error

    # --- called by connections ---

    def free(self, connection: Connection) -> None:
        """Save the connection for the next request."""
        loop = self._loop
        if loop is None or self._emptied is not None:
            connection.drop()
            return
        connection.idle_since = loop.time()
        self.idle[connection] = None
        if self._timer is None:
            self._timer = loop.call_later(self._origin.idle_seconds, self._drop_idle)

    def flush_soon(self, connection: Connection) -> None:
        """Let a connection write at the end of this turn of the loop."""
        if not self._to_flush:
            asyncio.get_running_loop().call_soon(self._flush)
        self._to_flush.append(connection)

    def _flush(self) -> None:
        waiting, self._to_flush = self._to_flush, []
        for connection in waiting:
            connection.flush()

    def lost(self, connection: Connection) -> None:
        """Forget the connection."""
        self.all.discard(connection)
        self.idle.pop(connection, None)
        if not self.all and self._emptied is not None:
            self._emptied.set()

    def _drop_idle(self) -> None:
        self._timer = None
        loop = self._loop
        if loop is None:
            return
        oldest_allowed = loop.time() - self._origin.idle_seconds
        while self.idle:
            connection = next(iter(self.idle))
            if connection.idle_since > oldest_allowed:
                due = connection.idle_since + self._origin.idle_seconds
                self._timer = loop.call_at(due, self._drop_idle)
                return
            del self.idle[connection]
            connection.drop()


class HttpUpstream:
    """The upstreams of several origins; to be used inside a running event loop."""

    __slots__ = ("_pools", "_retired")

    def __init__(self, origins: Mapping[str, Origin]) -> None:
        self._pools = {name: ConnectionPool(origin) for name, origin in origins.items()}
        self._retired: list[ConnectionPool] = []

    def use(self, name: str, origin: Origin) -> None:
        """Send to another origin under this name from now on; what is under way goes on."""
        if name in self._pools:
            self._retired.append(self._pools[name])
        self._pools[name] = ConnectionPool(origin)

    def start(
        self, message: UpstreamRequest, lane: LaneId, handler: ResponseHandler
    ) -> HttpAttempt:
        """Begin one attempt at the origin of the lane's upstream."""
        pool = self._pools.get(lane.upstream)
        if pool is None:
            raise InternalError(f"Lane {lane} belongs to no configured upstream.")
        return pool.start(message, handler)

    async def close(self) -> None:
        """Break off whatever goes on; returns when no connection and no task is left."""
        await asyncio.gather(*(pool.close() for pool in self._all()))

    def _all(self) -> list[ConnectionPool]:
        return [*self._pools.values(), *self._retired]
