"""One connection to an origin, and the attempts that it carries one after the other.

Rules: (1) an attempt that is over holds neither its handler nor its body nor a connection; after
`hang_up` nothing is reported; (2) a connection is free again only after the whole answer, with the
whole request sent and no byte beyond; (3) the handler is called only when the parser has returned,
so that it may do anything, a next request included; (4) what cannot be parsed ends the connection.
Not here: HTTP's framing (http_messages.py), opening connections (dialler.py), which connection is
used (http_upstream.py).
"""

from __future__ import annotations

import asyncio
import socket
from typing import Protocol, cast

from jackline.upstream.http_messages import ResponseParser
from jackline.upstream.interface import ClosedHereError, Headers, NoAnswerError, ResponseHandler


class ConnectionControl(Protocol):
    """The connection, as far as an attempt may touch it."""

    def drop(self) -> None:
        """End the connection at once."""
        ...

    def pause(self) -> None:
        """Stop reading."""
        ...

    def resume(self) -> None:
        """Go on reading."""
        ...


class SilentHandler:
    """Listens to attempts that nobody listens to any more."""

    __slots__ = ()

    def began(self, status: int, headers: Headers) -> None:
        """Hear nothing."""

    def heard(self, data: bytes) -> None:
        """Hear nothing."""

    def ended(self) -> None:
        """Hear nothing."""

    def broke(self, error: OSError) -> None:
        """Hear nothing."""


SILENT_HANDLER = SilentHandler()


class HttpAttempt:
    """One request and whatever comes of it."""

    __slots__ = ("body", "dialling", "ear", "head", "is_head", "is_over", "is_paused", "line")

    def __init__(
        self, head: bytes, body: bytes | bytearray, is_head: bool, ear: ResponseHandler
    ) -> None:
        self.head = head
        self.body = body
        self.is_head = is_head
        self.ear = ear
        self.is_over = False
        self.is_paused = False
        self.line: ConnectionControl | None = None
        self.dialling: asyncio.Task[None] | None = None

    def hang_up(self) -> None:
        """Drop it at once; may be called at any time and any number of times."""
        line, dialling = self.line, self.dialling
        self.end()
        if line is not None:
            line.drop()
        if dialling is not None:
            dialling.cancel()

    def pause(self) -> None:
        """Stop reading: whoever takes the bytes is slow."""
        self.is_paused = True
        if self.line is not None:
            self.line.pause()

    def resume(self) -> None:
        """Go on reading."""
        self.is_paused = False
        if self.line is not None:
            self.line.resume()

    def end(self) -> ResponseHandler:
        """Let go of everything; the ear, for its last word."""
        ear = self.ear
        self.is_over = True
        self.ear = SILENT_HANDLER
        self.line = self.dialling = None
        self.head = self.body = b""
        return ear

    def break_off(self, error: OSError) -> None:
        """End it and tell the ear, unless it is over."""
        if not self.is_over:
            self.end().broke(error)


# Below this, copying the body behind the head is cheaper than a second write.
JOINED_BYTES = 64 * 1024
# A larger body goes out in such pieces, as fast as the other side takes them: nothing is copied.
PIECE_BYTES = 256 * 1024
# A usual prompt goes to the system in one call, instead of waiting several times for room.
SEND_BUFFER = 512 * 1024


class ConnectionOwner(Protocol):
    """Who owns the connection."""

    def free(self, connection: Connection) -> None:
        """The answer is complete and the connection can take another request."""
        ...

    def flush_soon(self, connection: Connection) -> None:
        """The connection has something to write at the end of this turn of the loop."""
        ...

    def lost(self, connection: Connection) -> None:
        """The connection is gone."""
        ...

    def resend(self, attempt: HttpAttempt) -> None:
        """A kept connection turned out dead before it said anything: send this on a new one."""
        ...


class Connection(asyncio.Protocol):
    """One connection to an origin."""

    __slots__ = (
        "_answer",
        "_attempt",
        "_is_held",
        "_is_left",
        "_keeper",
        "_rest",
        "_transport",
        "_unsent",
        "_was_used",
        "idle_since",
    )

    def __init__(self, keeper: ConnectionOwner) -> None:
        self._keeper = keeper
        self._answer = ResponseParser()
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

    # ---- sending

    def send(self, attempt: HttpAttempt) -> None:
        """Send the request; its answer goes to the attempt's ear."""
        transport = cast(asyncio.Transport, self._transport)
        self._attempt = attempt
        attempt.line = self
        self._answer.expect(is_to_head=attempt.is_head)
        if attempt.is_paused:
            transport.pause_reading()
        body = attempt.body
        if len(body) <= JOINED_BYTES:
            # At the end of the turn, with those of the other connections: the first write wakes
            # the peer up, and that is most of its cost.
            self._unsent = (attempt.head + body if body else attempt.head,)
            self._keeper.flush_soon(self)
            return
        # Together: a head that goes alone wakes the peer up for nothing.
        if len(body) <= PIECE_BYTES:
            self._unsent = (attempt.head, body)
            self._keeper.flush_soon(self)
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
        """The other side takes no more for now."""
        self._is_held = True

    def resume_writing(self) -> None:
        """The other side takes more."""
        self._is_held = False
        if self._transport is not None:
            self._send_rest(self._transport)

    # ---- what an attempt may do

    def pause(self) -> None:
        """Stop reading."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Go on reading."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def drop(self) -> None:
        """End the connection at once; whoever still listens is not told."""
        self._attempt = None
        self._leave()

    def break_off(self, error: OSError) -> None:
        """End the connection at once and tell whoever listens."""
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

    # ---- what the transport tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Know what to write on."""
        self._transport = cast(asyncio.Transport, transport)
        wire = transport.get_extra_info("socket")
        if wire is not None:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)

    def data_received(self, data: bytes) -> None:
        """Read the next bytes of the answer and tell what they hold."""
        attempt = self._attempt
        if attempt is None:  # nobody asked
            self._leave()
            return
        self._answer.feed(data)
        try:
            self._tell(attempt)
        except OSError as error:
            # Stock asyncio takes an OSError here for the network's fault, and says nothing.
            self._give_up_on_ear_of(attempt)
            raise RuntimeError("whoever listens to an attempt has failed") from error
        except BaseException:
            self._give_up_on_ear_of(attempt)
            raise

    def _tell(self, attempt: HttpAttempt) -> None:
        answer = self._answer
        if answer.new_head is not None:
            headers, answer.new_head = answer.new_head, None
            attempt.ear.began(answer.status, headers)
        if answer.parts:
            attempt.ear.heard(answer.take_content())
        if self._attempt is not attempt:  # hung up on meanwhile
            return
        if answer.is_complete:
            self._finish(attempt)
        elif answer.fault is not None:
            self.break_off(answer.fault)

    def _finish(self, attempt: HttpAttempt) -> None:
        self._attempt = None
        is_paused = attempt.is_paused
        ear = attempt.end()
        transport = self._transport
        is_sent = self._rest is None and not self._is_held
        if self._answer.can_go_on and is_sent and transport is not None:
            if is_paused:
                transport.resume_reading()
            self._was_used = True
            self._keeper.free(self)
        else:
            self._leave()
        ear.ended()

    def _give_up_on_ear_of(self, attempt: HttpAttempt) -> None:
        # After its last word the connection may already be another attempt's.
        if self._attempt is attempt:
            self.break_off(ClosedHereError("its listener has failed"))

    def eof_received(self) -> None:
        """The other side will say no more."""
        self._gone(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is no more."""
        self._transport = None
        self._keeper.lost(self)
        self._gone(exc)
        self._answer.close()

    def _gone(self, cause: Exception | None) -> None:
        attempt = self._attempt
        self._attempt = None
        self._leave()
        if attempt is None:
            return
        if self._answer.has_spoken:
            error = self._answer.end_of_connection()
            if error is None and cause is None:
                attempt.end().ended()
                return
            error = error or ConnectionResetError("connection reset in mid-response")
            error.__cause__ = cause
            attempt.break_off(error)
        elif self._was_used:
            attempt.line = None
            self._keeper.resend(attempt)
        else:
            attempt.break_off(cause if isinstance(cause, OSError) else NoAnswerError())
