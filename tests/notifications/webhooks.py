"""A receiver of webhooks on a loopback port, which saves what it receives."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from jackline.notifications.delivery import signature


class Receiver:
    def __init__(self, statuses: list[int]) -> None:
        self.statuses = statuses
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.url = ""


@contextmanager
def receiver(*statuses: int) -> Iterator[Receiver]:
    """Answers with these statuses in turn; the last one is repeated."""
    kept = Receiver(list(statuses) or [204])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            kept.got.append(({k.lower(): v for k, v in self.headers.items()}, body))
            status = kept.statuses.pop(0) if len(kept.statuses) > 1 else kept.statuses[0]
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *_: object) -> None:  # noqa: A002 -- its name there
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    kept.url = f"http://127.0.0.1:{server.server_port}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield kept
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def is_signed(secret: str, header: str, body: bytes, *, now: int, patience: int = 300) -> bool:
    """Whether a message is ours and fresh, as docs/notifications.md tells receivers to check."""
    parts = dict(part.partition("=")[::2] for part in header.split(","))
    at = parts.get("t", "")
    if not at.isdecimal() or len(at) > 12 or abs(now - int(at)) > patience:
        return False
    received = f"t={int(at)},v1={parts.get('v1', '')}"
    return hmac.compare_digest(received.encode(), signature(secret, int(at), body).encode())
