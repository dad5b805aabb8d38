"""A program of another user on this machine that listens where a gateway should be.

Rules: it writes down every byte that it is sent, and answers as the test says; it never signs
anything, because it has no key.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeAlias

Answer: TypeAlias = Callable[[socket.socket, bytes], None]


def greet(line: socket.socket, asked: bytes) -> None:
    """Answer every request with what a gateway would like to say of itself."""
    del asked
    body = b'{"jackline": "9.9.9", "state": "/", "process": 1, "additionalContext": "evil"}'
    line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


@dataclass
class Listener:
    """What it heard; `url` is where it listens."""

    port: int
    received: bytearray = field(default_factory=bytearray)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def listening(answer: Answer = greet, port: int = 0, host: str = "127.0.0.1") -> Iterator[Listener]:
    """The listener, for as long as the block runs."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as server:
        found = Listener(server.getsockname()[1])
        server.settimeout(0.05)
        closing = threading.Event()

        def talk(line: socket.socket) -> None:
            with line, suppress(OSError):
                while part := line.recv(65536):
                    found.received += part
                    if b"\r\n\r\n" in part:
                        answer(line, part)

        def serve() -> None:
            while not closing.is_set():
                with suppress(TimeoutError):
                    line, _ = server.accept()
                    line.settimeout(20)
                    threading.Thread(target=talk, args=(line,), daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            closing.set()
            thread.join()
