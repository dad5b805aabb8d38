"""One client's connection: bytes in, one exchange after the other, bytes out.

Rules: (1) the next request is parsed only after the current answer was finished and received by the
client; (2) the owner learns at once when the client goes, so reading goes on while an answer is
pending; (3) no task, future or timer per request: time limits are a `deadline` that the listener's
sweep checks; (4) all output of one turn of the loop is one write.
Not here: parsing requests (request_reader.py), accepting and stopping (listener.py).
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import Callable
from enum import Enum
from math import inf
from typing import Protocol, cast

from jackline.gateway.exchange import Bytes, Exchange, answer_head
from jackline.gateway.request_reader import (
    Packet,
    RequestHead,
    RequestReader,
    RequestRefusal,
    RequestStage,
)
from jackline.gateway.settings import LimitSettings

# A larger packet is not copied before it is known what of it has to be kept.
_WORTH_A_VIEW = 16 * 1024
# Requests that a client sends ahead are kept up to this size; then it is no longer read from.
_MOST_AHEAD = 64 * 1024
# So much may wait for the end of the turn, and be joined then; more is written at once.
_MOST_WAITING = 64 * 1024
# So long a refused client may go on sending before it is cut: an earlier cut would destroy the
# answer on its way.
_FAREWELL_SECONDS = 5.0
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_RESET_ON_CLOSE = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)


class ConnectionPhase(Enum):
    """What a connection is doing."""

    READING = "waiting for a request, or reading it"
    ANSWERING = "waiting for the answer, or sending it"
    FLUSHING = "waiting for the client to take the answer"
    FAREWELL = "nothing is read any more"


_READING, _ANSWERING = ConnectionPhase.READING, ConnectionPhase.ANSWERING
_FLUSHING, _FAREWELL = ConnectionPhase.FLUSHING, ConnectionPhase.FAREWELL
_NOTHING, _BODY, _COMPLETE = RequestStage.NOTHING, RequestStage.BODY, RequestStage.COMPLETE


class AcceptingListener(Protocol):
    """What a connection needs of the listener that accepted it."""

    limits: LimitSettings
    draining: bool
    handle: Callable[[Exchange], None]
    # Why a request is refused by its head and its length alone (0: it is not told), before its
    # body is read; None if it is not.
    refusal: Callable[[Exchange, int], RequestRefusal | None]
    # What is read goes in here, and is taken out again before anything else is read.
    packet: memoryview

    def arrived(self, connection: ClientConnection) -> RequestRefusal | None:
        """Take note of it; why it is refused, if it is."""
        ...

    def flush_soon(self, connection: ClientConnection) -> None:
        """Call its `flush` at the end of this turn of the loop."""
        ...

    def holds(self, more: int) -> None:
        """So many bytes more, or fewer, are held of requests that are not whole."""
        ...

    def left(self, connection: ClientConnection) -> None:
        """Forget it."""
        ...


class ClientConnection(asyncio.BufferedProtocol):
    """The protocol of one accepted socket."""

    __slots__ = (
        "_ahead",
        "_consuming",
        "_exchange",
        "_held",
        "_loop",
        "_out",
        "_out_size",
        "_reader",
        "_reading_paused",
        "_reads_body",
        "_reception",
        "began",
        "deadline",
        "now",
        "paused",
        "phase",
        "stays",
        "transport",
    )

    transport: asyncio.Transport

    def __init__(self, reception: AcceptingListener, loop: asyncio.AbstractEventLoop) -> None:
        self._reception = reception
        self._loop = loop
        self._reader = RequestReader(reception.limits)
        self.now: Callable[[], float] = loop.time
        self.phase = _READING
        self.deadline = inf
        # When the first bytes came of what is held, and how many bytes that is.
        self.began = inf
        self._held = 0
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

    @property
    def idle(self) -> bool:
        """Whether nothing is asked and nothing is answered."""
        return self.phase is _READING and self._reader.stage is _NOTHING and self._ahead is None

    @property
    def unfinished(self) -> int:
        """How many bytes are held of requests that are not whole."""
        return self._held

    @property
    def last_request(self) -> bool:
        """Whether the connection ends with the current answer."""
        return self._reception.draining and not self.stays

    @property
    def local_address(self) -> object:
        """The name of our end of the socket."""
        return self.transport.get_extra_info("sockname")

    @property
    def peer_address(self) -> object:
        """The name of the other end of the socket."""
        return self.transport.get_extra_info("peername")

    # --- called by the loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come."""
        self.transport = cast(asyncio.Transport, transport)
        self.deadline = self.now() + self._reception.limits.idle
        refusal = self._reception.arrived(self)
        if refusal is not None:
            self._refuse(refusal)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 -- asyncio's signature
        """Where the next bytes go."""
        reader = self._reader
        room = reader.room if reader.stage is _BODY else None
        self._reads_body = room is not None
        return self._reception.packet if room is None else room

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        if self._reads_body:
            self._consume_body(nbytes)
            return
        if self.phase is _FAREWELL:
            return
        view = self._reception.packet[:nbytes]
        data = view if nbytes > _WORTH_A_VIEW else bytes(view)
        if self.phase is not _READING or self._ahead is not None:
            self._keep(data)
            return
        request = self._reader.at_once(data)
        if request is None:
            self._consume(data)
        else:
            self._hand_over(*request)

    def eof_received(self) -> None:
        """The client sends no more: nobody who awaits an answer does that, so it has gone."""
        if self.phase is _ANSWERING:
            self.hang_up()
        elif self.phase is not _FAREWELL:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        """The connection is closed, whoever closed it."""
        self._reception.left(self)
        self._leave()
        if self._exchange is not None:
            exchange, self._exchange = self._exchange, None
            exchange.left()

    def pause_writing(self) -> None:
        """The client takes bytes more slowly than they are written."""
        self.paused = True
        exchange = self._exchange
        if exchange is not None and not exchange.finished:
            # One that takes nothing at all for so long is as good as gone.
            self.deadline = self.now() + self._reception.limits.idle
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
            self._reception.flush_soon(self)
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
            # of many, which took a fifth more processor time (uvloop 0.23 writes at once).
            self.write(pieces, sum(map(len, pieces)))
        stays, self.stays = self.stays, False
        if not keep_alive or (self._reception.draining and not stays):
            self.close()
        elif self.paused:
            self.phase = _FLUSHING
            self.deadline = self.now() + self._reception.limits.idle
        else:
            self._be_idle()

    def reset(self) -> None:
        """Break the connection: what was not sent is lost, and the client is told so."""
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
        self.deadline = self.now() + self._reception.limits.idle
        self.transport.close()

    def hang_up(self) -> None:
        """Break the connection, and tell the owner of an answer that was not finished."""
        exchange, self._exchange = self._exchange, None
        self.reset()
        if exchange is not None:
            exchange.left()

    def overdue(self) -> None:
        """Its deadline has passed."""
        if self.phase is not _READING:
            self.hang_up()
        elif self._reader.stage is not _NOTHING:
            self._refuse(self._too_slow())
        else:
            self.close()

    def give_way(self) -> None:
        """All connections together hold too much, and this one has taken most for longest."""
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

    def _consume_body(self, size: int) -> None:
        reader = self._reader
        reader.filled(size)
        if reader.stage is _COMPLETE:
            self._hand_over(*reader.take())
        else:
            self.deadline = self._body_deadline()
            if reader.held != self._held:
                self._count_held()

    def _body_deadline(self) -> float:
        limits = self._reception.limits
        pause, pace = limits.body_pause, limits.body_pace
        return min(self.now(), self.began + self._reader.came / pace) + pause

    def _count_held(self) -> None:
        """Tell the listener how much is held now of what is not whole."""
        held = self._reader.held + (0 if self._ahead is None else len(self._ahead))
        if not held:
            self.began = inf
        elif self.began == inf:
            self.began = self.now()
        more, self._held = held - self._held, held
        self._reception.holds(more)

    def _consume(self, data: Packet) -> None:
        # A loop and not a recursion: thousands of requests may come in one packet.
        reader = self._reader
        before = reader.stage
        self._consuming = True
        try:
            while data and self.phase is _READING:
                data = reader.feed(data)
                if reader.stage is _COMPLETE:
                    before = _NOTHING
                    self._hand_over(*reader.take())
        except RequestRefusal as refusal:
            self._refuse(refusal)
            return
        finally:
            self._consuming = False
        if self.phase is _READING:
            if reader.stage is not _NOTHING:
                self._await_the_rest(before)
            elif self._held:
                self._count_held()
        elif data and self.phase is not _FAREWELL:
            self._keep(data)

    def _hand_over(self, head: RequestHead, body: bytes | bytearray) -> None:
        self.phase = _ANSWERING
        self.deadline = inf
        if self._held:
            self._count_held()
        self._exchange = exchange = Exchange(self, head, body)
        self._reception.handle(exchange)

    def _await_the_rest(self, before: RequestStage) -> None:
        limits = self._reception.limits
        stage = self._reader.stage
        if stage is _BODY and before is not _BODY:
            head = self._reader.head
            if head is None:
                raise AssertionError("a body is read without its head")
            refusal = self._reception.refusal(Exchange(self, head, b""), head.length or 0)
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

    def _too_slow(self) -> RequestRefusal:
        limits = self._reception.limits
        if self._reader.stage is _BODY:
            return RequestRefusal(
                408,
                f"Nothing of the body came for {limits.body_pause:g} s, or less than"
                f" {limits.body_pace} bytes a second. Send it faster, or change"
                " `limits.body_pause` and `limits.body_pace` in jackline.toml.",
            )
        return RequestRefusal(
            408,
            f"The headers did not come within {limits.header_time:g} s. Send them faster, or"
            " raise `limits.header_time` in jackline.toml.",
        )

    def _keep(self, data: Packet) -> None:
        if self._ahead is None:
            self._ahead = bytearray(data)
        else:
            self._ahead += data
        size = len(self._ahead)
        self._count_held()
        # Counting may have ended the connection: then nothing is kept any more.
        if size > _MOST_AHEAD and self.phase is not _FAREWELL and not self._reading_paused:
            self._reading_paused = True
            self.transport.pause_reading()

    def _be_idle(self) -> None:
        self.phase = _READING
        self.deadline = self.now() + self._reception.limits.idle
        if self._ahead is not None and not self._consuming:
            # Not from within the owner's call that finished the answer.
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._ahead is None or self.phase is not _READING:
            return
        data, self._ahead = bytes(self._ahead), None
        if self._reading_paused:
            self._reading_paused = False
            self.transport.resume_reading()
        self._consume(data)

    # --- the end ---

    def _refuse(self, refusal: RequestRefusal) -> None:
        self.flush()
        self._leave()
        self.deadline = self.now() + _FAREWELL_SECONDS
        body = refusal.body
        framing = b"Content-Length: %d\r\nConnection: close\r\n" % len(body)
        self.transport.write(answer_head(refusal.status, refusal.headers, framing) + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _leave(self) -> None:
        self.phase = _FAREWELL
        self.deadline = inf
        self._reader.forget()
        self._ahead = None
        if self._held:
            self._count_held()
        self._out = []
        self._out_size = 0
