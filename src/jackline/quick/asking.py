"""Ask the service one thing over a plain socket, within a short time, or not at all.

Laws: (1) never longer than told: connecting, sending and reading together; (2) anything but a whole
answer with status 200 is None; (3) no proxy: the service is on this machine.
Not here: finding it (finding.py), long conversations (conversing.py).
"""

from __future__ import annotations

import time

# What `socket` is built on, and a third of a hook's time quicker to load.
from _socket import AF_INET, AF_INET6, SOCK_STREAM, socket

from jackline.quick.finding import Word

_MOST = 4 << 20


def ask(
    word: Word, path: str, body: bytes | None = None, *, seconds: float, processes: str = ""
) -> bytes | None:
    """What the service answers to this path; None if it does not, in time and in order.

    `processes` are the numbers of those that asked us, the nearest first.
    """
    until = time.monotonic() + seconds
    method = "GET" if body is None else "POST"
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: {_host(word)}\r\nx-jackline-control: {word.token}\r\n"
        f"x-jackline-processes: {processes}\r\n"
        f"connection: close\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body or b'')}\r\n\r\n"
    )
    line = socket(AF_INET6 if ":" in word.host else AF_INET, SOCK_STREAM)
    try:
        line.settimeout(seconds)
        line.connect((word.host, word.port))
        line.sendall(head.encode("latin-1") + (body or b""))
        heard = bytearray()
        while True:
            left = until - time.monotonic()
            if left <= 0 or len(heard) > _MOST:
                return None
            line.settimeout(left)
            piece = line.recv(65536)
            if not piece:
                return _body_of(bytes(heard))
            heard += piece
    except OSError:
        return None
    finally:
        line.close()


def _host(word: Word) -> str:
    name = f"[{word.host}]" if ":" in word.host else word.host
    return f"{name}:{word.port}"


def _body_of(answer: bytes) -> bytes | None:
    head, mark, body = answer.partition(b"\r\n\r\n")
    if not mark or not head.startswith(b"HTTP/1.1 200"):
        return None
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip() != b"%d" % len(body):
            return None
    return body
