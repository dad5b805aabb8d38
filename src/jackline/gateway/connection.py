"""One client's connection: bytes in, one exchange after the other, bytes out.

Rules: (1) the next request is parsed only after the current answer was finished and received by the
client; (2) the owner learns at once when the client goes, so reading goes on while an answer is
pending; (3) no task, future or timer per request: time limits are a `deadline` that the listener's
sweep checks; (4) all output of one turn of the loop is one write; (5) an answer that differs from
what its head promised never ends cleanly: it is reset; (6) after the end, and after the client has
gone, every call of an exchange is a no-op; `on_gone` is called at most once, and never after the
answer was finished or reset; (7) the owner is not called back while the next request is begun; (8)
of the requests that a client sends ahead, one is handed over in each turn of the loop.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import Callable
from enum import Enum
from math import inf
from typing import Protocol, TypeAlias, cast

from jackline.gateway.own_answers import request_refusal
from jackline.gateway.settings import LimitSettings
from jackline.http1.headers import LAST_CHUNK, Headers, declared_length, response_head
from jackline.http1.requests import (
    Packet,
    RequestHead,
    RequestParser,
    RequestRefusal,
    RequestStage,
)

Bytes: TypeAlias = bytes | bytearray | memoryview
Callback: TypeAlias = Callable[[], None]

# From here on copying the data costs more than passing it on in pieces.
_WORTH_A_PIECE = 64 * 1024
_NO_BODY = frozenset((204, 304))


class _Line(Protocol):
    """The connection of an exchange; with `stays` it serves one more request while we stop."""

    now: Callable[[], float]
    paused: bool
    stays: bool

    @property
    def last_request(self) -> bool: ...

    @property
    def local_address(self) -> object: ...

    def write(self, pieces: tuple[Bytes, ...], size: int) -> None: ...

    def end_with(self, pieces: tuple[Bytes, ...], *, keep_alive: bool) -> None: ...

    def reset(self) -> None: ...


class Exchange:
    """A complete request of a client; then its answer, in one piece or begun, sent, finished.

    Callbacks of the owner: `on_gone`, the client left before the answer was finished; `on_pause`,
    it reads more slowly than bytes come; `on_resume`, it has caught up.
    """

    __slots__ = (
        "_by_name",
        "_chunked",
        "_keep_alive",
        "_line",
        "_missing",
        "_silent",
        "begun",
        "body",
        "finished",
        "gone",
        "headers",
        "http_1_0",
        "last_write",
        "memo",
        "method",
        "on_gone",
        "on_pause",
        "on_resume",
        "path",
        "query",
        "target",
    )

    def __init__(self, line: _Line, head: RequestHead, body: bytes | bytearray) -> None:
        self._line = line
        self.method = head.method
        self.target = head.target
        self.path = head.path
        self.query = head.query
        self.headers = head.headers
        self.http_1_0 = head.http_1_0
        self.body = body
        self.begun = False
        self.finished = False
        self.gone = False
        self.last_write = 0.0
        self.on_gone: Callback | None = None
        self.on_pause: Callback | None = None
        self.on_resume: Callback | None = None
        self._keep_alive = head.keep_alive
        self._by_name = head.by_name
        self.memo = head.memo
        self._chunked = False
        # Bytes that the head promised and that have not been sent; None: as many as come.
        self._missing: int | None = None
        # The answer has no body, whatever is sent.
        self._silent = head.method == b"HEAD"

    def __repr__(self) -> str:
        state = "gone" if self.gone else "finished" if self.finished else "begun"
        return f"<Exchange {state if self.begun or self.gone else 'waiting'}>"

    def header(self, lowercase_name: bytes) -> bytes | None:
        """The first value under this name."""
        return self._by_name.get(lowercase_name)

    @property
    def paused(self) -> bool:
        """Whether the client is behind, and the owner should wait for `on_resume`."""
        return self._line.paused

    def respond(
        self, status: int, headers: Headers = (), body: Bytes = b"", notes: bytes = b""
    ) -> None:
        """Answer in one piece; `notes` are whole lines to put behind the headers."""
        if self.begun or self.gone:
            return
        length: int | None = len(body)
        if status in _NO_BODY:
            length, body = None, b""
        elif self._silent:
            declared = declared_length(headers)
            length, body = length if declared is None else declared, b""
        framing = b"" if length is None else b"Content-Length: %d\r\n" % length
        head = response_head(status, headers, notes + framing + self._connection())
        self.begun = True
        self._end_with((head, body))

    def begin(self, status: int, headers: Headers = (), notes: bytes = b"") -> None:
        """Send the head; the body follows in pieces.

        A Content-Length among the headers is binding. Without one the answer is chunked, or, for
        HTTP/1.0, ends with the connection.
        """
        if self.begun or self.gone:
            return
        length = declared_length(headers)
        framing = b""
        if status in _NO_BODY:
            self._silent = True
        elif length is not None:
            framing = b"Content-Length: %d\r\n" % length
        elif self.http_1_0:
            self._keep_alive = False
        else:
            framing = b"Transfer-Encoding: chunked\r\n"
        head = response_head(status, headers, notes + framing + self._connection())
        self.begun = True
        self._missing = length
        self._chunked = length is None and not self.http_1_0
        line = self._line
        self.last_write = line.now()
        line.write((head,), len(head))

    def send(self, data: Bytes) -> None:
        """Send a piece of the body; an empty one is nothing, and so is one that HEAD forbids."""
        size = len(data)
        if not self.begun or self.finished or self.gone or self._silent or not size:
            return
        if size < _WORTH_A_PIECE:
            data = bytes(data)  # it waits for the end of the turn: the owner may change its buffer
        line = self._line
        self.last_write = line.now()
        if self._chunked:
            line.write((b"%x\r\n" % size, data, b"\r\n"), size)
            return
        if self._missing is not None:
            if size > self._missing:
                self.reset()
                return
            self._missing -= size
        line.write((data,), size)

    def finish(self) -> None:
        """The body is complete."""
        if self.finished or self.gone:
            return
        if not self.begun or (self._missing and not self._silent):
            self.reset()
            return
        self._end_with((LAST_CHUNK,) if self._chunked and not self._silent else ())

    def reset(self) -> None:
        """Break the connection: the client sees a broken answer, never a complete one."""
        if self.finished or self.gone:
            return
        self.gone = True
        self._forget_owner()
        self._line.reset()

    def local_address(self) -> object:
        """The name of the socket that this came to."""
        return self._line.local_address

    def expect_another(self) -> None:
        """Accept the request that this one prepares, even while the gateway stops."""
        self._line.stays = True

    def left(self) -> None:
        """Called by the connection when the client has gone."""
        if self.finished or self.gone:
            return
        self.gone = True
        on_gone = self.on_gone
        self._forget_owner()
        if on_gone is not None:
            on_gone()

    def _connection(self) -> bytes:
        if self._line.last_request:
            self._keep_alive = False
        if not self._keep_alive:
            return b"Connection: close\r\n"
        return b"Connection: keep-alive\r\n" if self.http_1_0 else b""

    def _end_with(self, pieces: tuple[Bytes, ...]) -> None:
        self.finished = True
        self.on_gone = self.on_pause = self.on_resume = None  # see _forget_owner
        line = self._line
        self.last_write = line.now()
        line.end_with(pieces, keep_alive=self._keep_alive)

    def _forget_owner(self) -> None:
        # Else owner and exchange would hold each other until the garbage collector comes by.
        self.on_gone = self.on_pause = self.on_resume = None


# A larger packet is not copied before it is known how much of it has to be stored.
_WORTH_A_VIEW = 16 * 1024
# Requests that a client sends ahead are stored up to this size; then it is no longer read from.
_MOST_AHEAD = 64 * 1024
# So much may wait for the end of the turn, and be joined then; more is written at once.
_MOST_WAITING = 64 * 1024
# A refused client may go on sending for so long: an earlier cut would destroy the answer on its
# way.
_FAREWELL_SECONDS = 5.0
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_RESET_ON_CLOSE = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)


class ConnectionPhase(Enum):
    """What a connection is doing."""

    READING = "waiting for a request, or reading it"
    ANSWERING = "waiting for the answer, or sending it"
    FLUSHING = "waiting for the client to receive the answer"
    FAREWELL = "nothing is read any more"


_READING, _ANSWERING = ConnectionPhase.READING, ConnectionPhase.ANSWERING
_FLUSHING, _FAREWELL = ConnectionPhase.FLUSHING, ConnectionPhase.FAREWELL
_NOTHING, _BODY, _COMPLETE = RequestStage.NOTHING, RequestStage.BODY, RequestStage.COMPLETE


class _Listener(Protocol):
    """The listener that accepted the connection.

    `refusal` is why a request is refused by its head and its length alone (0: unknown), before its
    body is read, or None. `packet` is where bytes are read into, to be used before the next read.
    """

    limits: LimitSettings
    draining: bool
    handle: Callable[[Exchange], None]
    refusal: Callable[[Exchange, int], RequestRefusal | None]
    packet: memoryview

    def arrived(self, connection: ClientConnection) -> RequestRefusal | None: ...

    def flush_soon(self, connection: ClientConnection) -> None: ...

    def holds(self, more: int) -> None: ...

    def left(self, connection: ClientConnection) -> None: ...


class ClientConnection(asyncio.BufferedProtocol):
    """The protocol of one accepted socket."""

    __slots__ = (
        "_ahead",
        "_consuming",
        "_exchange",
        "_listener",
        "_loop",
        "_out",
        "_out_size",
        "_parser",
        "_reading_paused",
        "_reads_body",
        "_sends_no_more",
        "began",
        "deadline",
        "now",
        "paused",
        "phase",
        "stays",
        "transport",
        "unfinished",
    )

    transport: asyncio.Transport

    def __init__(self, listener: _Listener, loop: asyncio.AbstractEventLoop) -> None:
        self._listener = listener
        self._loop = loop
        limits = listener.limits
        self._parser = RequestParser(limits.headers, limits.body)
        self.now: Callable[[], float] = loop.time
        self.phase = _READING
        self.deadline = inf
        # When the first bytes came of incomplete requests, and how many bytes are in memory.
        self.began = inf
        self.unfinished = 0
        self.paused = False
        self.stays = False
        self._exchange: Exchange | None = None
        # What waits for the end of the turn.
        self._out: list[Bytes] = []
        self._out_size = 0
        # What came behind the request that is being answered.
        self._ahead: bytearray | None = None
        self._consuming = False
        self._reading_paused = False
        # What is read goes straight to where the body is put together.
        self._reads_body = False
        self._sends_no_more = False

    @property
    def idle(self) -> bool:
        """Whether no request has begun and nothing is answered."""
        return self.phase is _READING and self._parser.stage is _NOTHING and self._ahead is None

    @property
    def last_request(self) -> bool:
        """Whether the connection ends with the current answer."""
        return self._listener.draining and not self.stays

    @property
    def local_address(self) -> object:
        """The name of our end of the socket."""
        return self.transport.get_extra_info("sockname")

    # --- called by the loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come."""
        self.transport = cast(asyncio.Transport, transport)
        self.deadline = self.now() + self._listener.limits.idle
        refusal = self._listener.arrived(self)
        if refusal is not None:
            self._refuse(refusal)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 -- asyncio's signature
        """Where the next bytes go."""
        parser = self._parser
        room = parser.room if parser.stage is _BODY else None
        self._reads_body = room is not None
        return self._listener.packet if room is None else room

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        if self._reads_body:
            parser = self._parser
            parser.filled(nbytes)
            if parser.stage is _COMPLETE:
                self._hand_over(*parser.take())
            else:
                self.deadline = self._body_deadline()
                if parser.held != self.unfinished:
                    self._count_held()
            return
        if self.phase is _FAREWELL:
            return
        view = self._listener.packet[:nbytes]
        data = view if nbytes > _WORTH_A_VIEW else bytes(view)
        if self.phase is not _READING or self._ahead is not None:
            self._store(data)
            return
        request = self._parser.at_once(data)
        if request is None:
            self._consume(data)
        else:
            self._hand_over(*request)

    def eof_received(self) -> bool:
        """The client sends no more: nobody who awaits an answer does that, so it has gone.

        Of requests that it sent ahead, those that are answered at once are still answered.
        """
        if self.phase is _ANSWERING:
            self.hang_up()
        elif self.phase is _READING and self._ahead is not None:
            self._sends_no_more = True
            return True  # the transport stays open
        elif self.phase is not _FAREWELL:
            self.close()
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        """The connection is closed, whoever closed it."""
        self._listener.left(self)
        self._leave()
        if self._exchange is not None:
            exchange, self._exchange = self._exchange, None
            exchange.left()

    def pause_writing(self) -> None:
        """The client reads more slowly than bytes are written."""
        self.paused = True
        exchange = self._exchange
        if exchange is not None and not exchange.finished:
            # One that reads nothing at all for so long is as good as gone.
            self.deadline = self.now() + self._listener.limits.idle
            if exchange.on_pause is not None:
                exchange.on_pause()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self.paused = False
        if self.phase is _FLUSHING:
            self._be_idle()
        elif self._exchange is not None:
            self.deadline = inf
            if self._exchange.on_resume is not None:
                self._exchange.on_resume()

    # --- called by the exchange ---

    def write(self, pieces: tuple[Bytes, ...], size: int) -> None:
        """Send this at the end of the turn, with all else that is sent until then."""
        if not self._out:
            self._listener.flush_soon(self)
        self._out += pieces
        self._out_size += size
        if self._out_size >= _MOST_WAITING:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        out, size = self._out, self._out_size
        if not out:
            return
        self._out = []
        self._out_size = 0
        if size >= _MOST_WAITING:
            self.transport.writelines(out)
        else:
            self.transport.write(b"".join(out))

    def end_with(self, pieces: tuple[Bytes, ...], *, keep_alive: bool) -> None:
        """Send the last of an answer; the exchange is over."""
        self._exchange = None
        if pieces:
            # At the end of the turn even so: a write at once would wake the peer up for each answer
            # of many, at a fifth more processor time (uvloop 0.23 writes at once).
            self.write(pieces, sum(map(len, pieces)))
        stays, self.stays = self.stays, False
        if not keep_alive or (self._listener.draining and not stays):
            self.close()
        elif self.paused:
            self.phase = _FLUSHING
            self.deadline = self.now() + self._listener.limits.idle
        else:
            self._be_idle()

    def reset(self) -> None:
        """Break the connection: what was not sent is lost, and the client sees that."""
        self._leave()
        wire = self.transport.get_extra_info("socket")
        if wire is not None and not self.transport.is_closing():
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.transport.abort()

    # --- called by the listener ---

    def close(self) -> None:
        """End the connection when what was written has been sent."""
        self.flush()
        self._leave()
        self.deadline = self.now() + self._listener.limits.idle
        self.transport.close()

    def hang_up(self) -> None:
        """Break the connection, and call the owner of an unfinished answer."""
        exchange, self._exchange = self._exchange, None
        self.reset()
        if exchange is not None:
            exchange.left()

    def overdue(self) -> None:
        """Its deadline has passed."""
        if self.phase is not _READING:
            self.hang_up()
        elif self._parser.stage is _NOTHING:
            self.close()
        else:
            limits = self._listener.limits
            words = (
                f"The headers did not come within {limits.header_time:g} s. Send them faster, or"
                " raise `limits.header_time` in jackline.toml."
            )
            if self._parser.stage is _BODY:
                words = (
                    f"Nothing of the body came for {limits.body_pause:g} s, or less than"
                    f" {limits.body_pace} bytes a second. Send it faster, or change"
                    " `limits.body_pause` and `limits.body_pace` in jackline.toml."
                )
            self._refuse(RequestRefusal(408, words))

    def give_way(self) -> None:
        """All connections together hold too much, and this one has held most for longest."""
        if self.phase is not _READING:
            self.hang_up()  # requests that were sent ahead, behind one that is being answered
            return
        self._refuse(
            RequestRefusal(
                503,
                "The requests that are being received hold too much memory together, and this one"
                " has taken most for longest. Send it again, and faster, or raise"
                " `limits.unfinished_bodies` in jackline.toml.",
                retry_after=1,
            )
        )

    # --- reading ---

    def _body_deadline(self) -> float:
        limits = self._listener.limits
        pause, pace = limits.body_pause, limits.body_pace
        return min(self.now(), self.began + self._parser.came / pace) + pause

    def _count_held(self) -> None:
        held = self._parser.held + (0 if self._ahead is None else len(self._ahead))
        if not held:
            self.began = inf
        elif self.began == inf:
            self.began = self.now()
        more, self.unfinished = held - self.unfinished, held
        self._listener.holds(more)

    def _consume(self, data: Packet) -> None:
        parser = self._parser
        before = parser.stage
        self._consuming = True
        try:
            data = parser.feed(data)
            if parser.stage is _COMPLETE:
                self._hand_over(*parser.take())
        except RequestRefusal as refusal:
            self._refuse(refusal)
            return
        finally:
            self._consuming = False
        if self.phase is _FAREWELL:
            return
        if data:
            self._store(data)
            if self.phase is _READING:
                # Answered already. One packet may hold thousands of requests: others come between.
                self._loop.call_soon(self._go_on)
        elif self.phase is _READING:
            if parser.stage is not _NOTHING:
                self._await_the_rest(before)
            elif self.unfinished:
                self._count_held()

    def _hand_over(self, head: RequestHead, body: bytes | bytearray) -> None:
        self.phase = _ANSWERING
        self.deadline = inf
        if self.unfinished:
            self._count_held()
        self._exchange = exchange = Exchange(self, head, body)
        self._listener.handle(exchange)

    def _await_the_rest(self, before: RequestStage) -> None:
        limits = self._listener.limits
        stage = self._parser.stage
        if stage is _BODY and before is not _BODY:
            head = self._parser.head
            if head is None:
                raise AssertionError("a body is read without its head")
            refusal = self._listener.refusal(Exchange(self, head, b""), head.length or 0)
            if refusal is not None:
                self._refuse(refusal)
                return
            if head.expects_continue:
                self.transport.write(_CONTINUE)
            # The time that its head took is not the body's.
            self.began = self.now()
        elif before is _NOTHING:
            self.deadline = self.now() + limits.header_time
        self._count_held()
        if stage is _BODY and self.phase is _READING:
            self.deadline = self._body_deadline()

    def _store(self, data: Packet) -> None:
        if self._ahead is None:
            self._ahead = bytearray(data)
        else:
            self._ahead += data
        size = len(self._ahead)
        self._count_held()
        # Counting may have ended the connection: then nothing is stored any more.
        if size > _MOST_AHEAD and self.phase is not _FAREWELL and not self._reading_paused:
            self._reading_paused = True
            self.transport.pause_reading()

    def _be_idle(self) -> None:
        self.phase = _READING
        self.deadline = self.now() + self._listener.limits.idle
        if self._ahead is not None and not self._consuming:
            # Not from within the owner's call that finished the answer.
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._ahead is None or self.phase is not _READING:
            return
        data, self._ahead = bytes(self._ahead), None
        self._consume(data)
        if self._sends_no_more:
            self.eof_received()
        elif self.phase is not _FAREWELL:
            self._read_again()

    def _read_again(self) -> None:
        if self._reading_paused and len(self._ahead or b"") <= _MOST_AHEAD:
            self._reading_paused = False
            self.transport.resume_reading()

    # --- the end ---

    def _refuse(self, refusal: RequestRefusal) -> None:
        self.flush()
        self._leave()
        self.deadline = self.now() + _FAREWELL_SECONDS
        # What is on its way is read and dropped: unread, it would destroy the answer.
        self._read_again()
        no = request_refusal(refusal)
        framing = b"Content-Length: %d\r\nConnection: close\r\n" % len(no.body)
        self.transport.write(response_head(no.status, no.headers, framing) + no.body)
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _leave(self) -> None:
        self.phase = _FAREWELL
        self.deadline = inf
        self._parser.clear()
        self._ahead = None
        if self.unfinished:
            self._count_held()
        self._out = []
        self._out_size = 0
