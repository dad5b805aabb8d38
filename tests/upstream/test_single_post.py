"""One document for a collector or a webhook goes to the address that the user named alone."""

from __future__ import annotations

import socket
import threading
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from jackline.upstream.single_post import post

SECRET = {"authorization": "Bearer sk-secret"}


@contextmanager
def recorder(status: int, location: str = "") -> Iterator[tuple[str, list[str]]]:
    """A server that answers so, its address, and the lines and credentials that it was sent."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.do_GET()

        def do_GET(self) -> None:
            seen.append(f"{self.requestline} {self.headers.get('authorization')}")
            self.send_response(status)
            if location:
                self.send_header("location", location)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *_: object) -> None:  # noqa: A002 -- its name there
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_nobody_sends_a_credential_elsewhere_by_a_redirect(status: int) -> None:
    with recorder(200) as (other, stolen), recorder(status, f"{other}/steal") as (url, seen):
        with pytest.raises(urllib.error.HTTPError) as raised:
            post(f"{url}/v1/traces", b"{}", SECRET, 5)
        raised.value.close()
    assert raised.value.code == status
    assert seen == ["POST /v1/traces HTTP/1.1 Bearer sk-secret"]
    assert stolen == []


def test_what_goes_to_this_machine_goes_through_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with recorder(200) as (proxy, stolen), recorder(204) as (url, seen):
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.setenv("all_proxy", proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        post(f"{url}/hook?a=b", b"{}", SECRET, 5)
        post(url.replace("127.0.0.1", "localhost"), b"{}", SECRET, 5)
    assert stolen == []
    assert len(seen) == 2


def test_another_machine_is_reached_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with recorder(200) as (proxy, seen):
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        post("http://collector.invalid/v1/traces", b"{}", SECRET, 5)
    assert seen == ["POST http://collector.invalid/v1/traces HTTP/1.1 Bearer sk-secret"]


# One byte and then another, for far longer than anybody waits; each within a socket's own limit.
DRIPS = {
    "head": (b"HTTP/1.1 200 OK\r\n", b"x"),
    "body": (b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n", b"x"),
    "tunnel": (b"HTTP/1.1 200 OK\r\n", b"x"),
}


@pytest.mark.parametrize("where", DRIPS)
def test_an_answer_that_drips_ends_with_its_time(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, more = DRIPS[where]
    left = threading.Event()

    def drip(server: socket.socket) -> None:
        line, _ = server.accept()
        with line, suppress(OSError):
            line.recv(65536)
            line.sendall(first)
            for _ in range(6000):
                line.sendall(more)
                if left.wait(0.05):
                    break

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        thread = threading.Thread(target=drip, args=(server,))
        thread.start()
        url = f"http://127.0.0.1:{port}/hook"
        if where == "tunnel":
            monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
            url = "https://hooks.example/hook"
        # Of one whose head came in time the rest does not matter: it was accepted.
        accepted = where == "body"
        expected = nullcontext() if accepted else pytest.raises(TimeoutError, match="no answer")
        try:
            with expected:
                post(url, b"{}", SECRET, 0.5)
        finally:
            left.set()
            thread.join()
