"""Ask the service one thing over a plain socket, within a short time, or not at all.

Laws: (1) never longer than told: connecting, proving, sending and reading together; (2) anything
but a whole answer with status 200 is None; (3) no proxy: the service is on this machine; (4)
nothing is sent before the service has proved to be this user's.
Not here: finding it (finding.py), the proof (gateway_proof.py), long conversations (conversing.py).
"""

from __future__ import annotations

import time

# What `socket` is built on, and a third of a hook's time quicker to load.
from _socket import AF_INET, AF_INET6, SOCK_STREAM, socket

from jackline.gateway_proof import authority_of, prove, whole_answer
from jackline.private_files import installation_key
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
    authority = authority_of(word.host, word.port)
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: {authority}\r\nx-jackline-control: {word.token}\r\n"
        f"x-jackline-processes: {processes}\r\n"
        f"connection: close\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body or b'')}\r\n\r\n"
    )
    line = socket(AF_INET6 if ":" in word.host else AF_INET, SOCK_STREAM)
    try:
        line.settimeout(seconds)
        line.connect((word.host, word.port))
        prove(line, authority, installation_key(make=False), until)
        status, answer = whole_answer(line, head.encode("latin-1") + (body or b""), until, _MOST)
    except OSError:
        return None
    finally:
        line.close()
    return answer if status == 200 else None
