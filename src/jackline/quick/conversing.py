"""Hold one HTTP conversation with the service over a plain socket, for as long as it takes.

Laws: (1) only connecting and the proof are bounded in time: answers may take hours; (2) a body that
ends before its time raises, and is never taken for a whole one; (3) no proxy: the service is on
this machine; (4) nothing is sent before the service has proved to be this user's.
Not here: short questions with a time limit (asking.py), what is said (mcp_link.py).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

from jackline.gateway_proof import authority_of, prove
from jackline.private_files import installation_key
from jackline.quick.finding import Word

_LONGEST_LINE = 65_536
_PIECE = 65_536


class Conversation:
    """A request that was sent; its answer is read from here. Close it."""

    def __init__(
        self,
        word: Word,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
        *,
        seconds: float,
    ) -> None:
        """Connect and send; OSError means that the service has not taken it."""
        until = time.monotonic() + seconds
        authority = authority_of(word.host, word.port)
        lines = [f"{method} {path} HTTP/1.1", f"host: {authority}", "connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [f"content-length: {len(body)}", "", ""]
        self._line = socket.create_connection((word.host, word.port), timeout=seconds)
        try:
            prove(self._line, authority, installation_key(make=False), until)
            self._line.settimeout(seconds)
            self._line.sendall("\r\n".join(lines).encode("latin-1") + body)
            self._line.settimeout(None)
            self._file = self._line.makefile("rb")
        except OSError:
            self._line.close()
            raise
        self.status = 0
        self.headers: dict[str, str] = {}

    def hear_head(self) -> None:
        """Wait for the answer's status and headers."""
        first = self._text_line().split(" ", 2)
        if len(first) < 2 or not first[0].startswith("HTTP/1.") or not first[1].isdecimal():
            raise ConnectionError("this is no answer in HTTP")
        self.status = int(first[1])
        while line := self._text_line():
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()

    def lines(self) -> Iterator[bytes]:
        """The body line by line, as it comes."""
        kept = b""
        for piece in self._pieces():
            *whole, kept = (kept + piece).split(b"\n")
            yield from whole
        if kept:
            yield kept

    def body(self) -> bytes:
        """All of the body."""
        return b"".join(self._pieces())

    def close(self) -> None:
        """Leave; whoever still answers finds nobody."""
        self._file.close()
        self._line.close()

    def _pieces(self) -> Iterator[bytes]:
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            while size := self._chunk_size():
                yield from self._exactly(size)
                self._text_line()
            while self._text_line():
                pass  # trailers, which say nothing to us
        elif (told := self.headers.get("content-length", "")).isdecimal():
            yield from self._exactly(int(told))
        else:
            while piece := self._file.read1(_PIECE):
                yield piece

    def _exactly(self, size: int) -> Iterator[bytes]:
        while size:
            piece = self._file.read1(min(size, _PIECE))
            if not piece:
                raise ConnectionError("the answer broke off")
            size -= len(piece)
            yield piece

    def _chunk_size(self) -> int:
        try:
            return int(self._text_line().partition(";")[0], 16)
        except ValueError:
            raise ConnectionError("this is no chunk") from None

    def _text_line(self) -> str:
        line = self._file.readline(_LONGEST_LINE)
        if not line.endswith(b"\n"):
            raise ConnectionError("the answer broke off")
        return line.strip().decode("latin-1")
