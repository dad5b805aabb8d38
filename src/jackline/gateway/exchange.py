"""One request of a client and the answer that it gets.

Rules: (1) an answer that differs from what its head promised never ends cleanly: it is reset; (2)
after the end, and after the client has gone, every call is a no-op; (3) `on_gone` is called at most
once, and never after the answer was finished or reset; (4) the owner is not called back while the
next request is begun: requests of one connection are answered one after the other; (5) no header
can start a line of its own: CR, LF and NUL are refused; (6) the caller alone decides how an answer
is framed and whether the connection stays; headers about that are dropped.
Not here: sockets and time limits (connection.py), what is answered (router.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Protocol, TypeAlias

from jackline.gateway.request_reader import RequestHead

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus} | {529: b"Overloaded"}
_STATUS_LINES = {
    status: b"HTTP/1.1 %d %b\r\n" % (status, reason) for status, reason in _REASONS.items()
}
_FRAMING = frozenset((b"content-length", b"transfer-encoding", b"connection", b"keep-alive"))
# Providers use some dozens of names; whoever invents more of them gains nothing.
_REMEMBERED_NAMES = 1024
_in_one_line = b": ".join


class _Passes(dict[bytes, bool]):
    """Whether a header of this name is written as given, remembered for each spelling."""

    def __missing__(self, name: bytes) -> bool:
        passes = name.lower() not in _FRAMING
        if len(self) < _REMEMBERED_NAMES:
            self[name] = passes
        return passes


_passes = _Passes()


def answer_head(status: int, headers: Headers, framing: bytes) -> bytes:
    """Status line, the given headers, and the framing lines, up to the empty line."""
    lines = [_in_one_line(header) for header in headers if _passes[header[0]]]
    ends = len(lines)
    lines.append(b"")
    text = b"\r\n".join(lines)
    # Counting in the whole costs less than looking at each.
    if text.count(b"\n") != ends or text.count(b"\r") != ends or b"\0" in text:
        raise ValueError("a header's name or value holds a line break or NUL")
    start = _STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status
    return start + text + framing + b"\r\n"


def declared_length(headers: Headers) -> int | None:
    """The Content-Length among the given headers."""
    for name, value in headers:
        if not _passes[name] and name.lower() == b"content-length":
            # The parser let any number of zeros pass; int() reads no more than 4,300 digits.
            return int(value.lstrip(b"0") or b"0")
    return None


Bytes: TypeAlias = bytes | bytearray | memoryview
Callback: TypeAlias = Callable[[], None]

# From here on copying the data costs more than handing it over in pieces.
_WORTH_A_PIECE = 64 * 1024
_NO_BODY = frozenset((204, 304))
_LAST_CHUNK = (b"0\r\n\r\n",)


class ClientLine(Protocol):
    """What an exchange needs of the connection that it came on."""

    now: Callable[[], float]
    paused: bool
    stays: bool
    """Whether one more request is taken on it even while the gateway stops."""

    @property
    def last_request(self) -> bool:
        """Whether no further request will be taken on this connection."""
        ...

    @property
    def local_address(self) -> object:
        """The name of our end of the socket."""
        ...

    def write(self, pieces: tuple[Bytes, ...], size: int) -> None:
        """Send this at the end of the turn, with all else that is sent until then."""
        ...

    def end_with(self, pieces: tuple[Bytes, ...], *, keep_alive: bool) -> None:
        """Send the last of an answer, which is complete with it."""
        ...

    def reset(self) -> None:
        """Break the connection, so that the client cannot take the answer for complete."""
        ...


class Exchange:
    """The request, complete with its body; then the answer, in one piece or begun, sent, finished.

    `on_gone`, `on_pause` and `on_resume` are the owner's: the client left before the answer was
    finished; it takes bytes more slowly than they come; it has caught up.
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

    def __init__(self, line: ClientLine, head: RequestHead, body: bytes | bytearray) -> None:
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
        """Answer in one piece; `notes` are whole lines that go behind the headers."""
        if self.begun or self.gone:
            return
        length: int | None = len(body)
        if status in _NO_BODY:
            length, body = None, b""
        elif self._silent:
            declared = declared_length(headers)
            length, body = length if declared is None else declared, b""
        framing = b"" if length is None else b"Content-Length: %d\r\n" % length
        head = answer_head(status, headers, notes + framing + self._connection())
        self.begun = True
        self._end_with((head, body))

    def begin(self, status: int, headers: Headers = (), notes: bytes = b"") -> None:
        """Send the head; the body follows in pieces.

        A Content-Length among the headers is kept, and holds. Without one the answer is chunked,
        or, for HTTP/1.0, ends with the connection.
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
        head = answer_head(status, headers, notes + framing + self._connection())
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
        self._end_with(_LAST_CHUNK if self._chunked and not self._silent else ())

    def reset(self) -> None:
        """Break the connection: the client sees a broken answer, never a complete one."""
        if self.finished or self.gone:
            return
        self.gone = True
        self._forget_owner()
        self._line.reset()

    def local_address(self) -> object:
        """The name of the socket at which this was asked."""
        return self._line.local_address

    def expect_another(self) -> None:
        """Take the request that this one prepares, even while the gateway stops."""
        self._line.stays = True

    def left(self) -> None:
        """Called by the connection when the client has gone."""
        if self.finished or self.gone:
            return
        self.gone = True
        tell = self.on_gone
        self._forget_owner()
        if tell is not None:
            tell()

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
