"""Programs reach the user's gateway over a relay whose port does not change hands."""

from __future__ import annotations

import asyncio
import http.client
import os
import socket
import struct
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from jackline.batches.processes import MARK
from jackline.gateway.relay import Relay
from jackline.private_files import installation_key
from tests.assembly.world import answered, ask, gateway, provider, question, request, run
from tests.attacks.listener import listening
from tests.cli.gateways import until
from tests.ports import free_port
from tests.proving import prove_first

PATIENCE = 60.0  # only reached by a test that fails
RESET = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
LARGE = os.urandom(1 << 20) * 48


def address_of(relay: Relay) -> tuple[str, int]:
    return "127.0.0.1", int(relay.url.rpartition(":")[2])


def connected(relay: Relay) -> socket.socket:
    return socket.create_connection(address_of(relay), timeout=PATIENCE)


def got(url: str, body: bytes | None = None) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, body, timeout=PATIENCE) as answer:  # noqa: S310 -- loopback
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@contextmanager
def proven(talk: Callable[[socket.socket], None], port: int = 0) -> Iterator[str]:
    """The URL of what proves itself as the user's gateway does, and then talks as the test says."""
    installation_key()
    with socket.create_server(("127.0.0.1", port)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    line, _ = server.accept()
                    threading.Thread(target=one, args=(line,), daemon=True).start()

        def one(line: socket.socket) -> None:
            with line, suppress(OSError, AssertionError):
                prove_first(line)
                talk(line)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def echo(line: socket.socket) -> None:
    while piece := line.recv(65536):
        line.sendall(piece)


def received(line: socket.socket, number: int) -> bytes:
    found = bytearray()
    while len(found) < number and (piece := line.recv(65536)):
        found += piece
    return bytes(found)


def test_a_call_over_the_relay_is_a_call_of_the_gateway(tmp_path: Path) -> None:
    async def main() -> None:
        answers = provider(answered())
        async with answers as (scripted, url), gateway(tmp_path, url, token="t" * 32) as service:
            with Relay(service.url) as relay:
                shown = (b"x-jackline-token", b"t" * 32)
                for _ in range(2):
                    told = await ask(
                        relay.url, request(b"POST", b"/v1/messages", question(), shown)
                    )
                    assert told.status == 200
                # The relay shows no token of its own.
                refused = await ask(relay.url, request(b"POST", b"/v1/messages", question()))
                assert refused.status in (401, 403)
            assert len(scripted.asked) == 2

    run(main())


@pytest.mark.parametrize("sender", ["client", "gateway"])
def test_bytes_go_whole_and_at_the_pace_of_the_slower_end(sender: str) -> None:
    sent = threading.Event()

    def send(line: socket.socket) -> None:
        line.sendall(LARGE)
        sent.set()
        line.recv(1)

    def receive(line: socket.socket) -> None:
        # More than all systems' buffers on the way: the rest has no room in the relay.
        assert not sent.wait(0.5)
        whole.append(received(line, len(LARGE)) == LARGE)
        line.sendall(b"x")

    whole: list[bool] = []
    at_gateway, at_client = (receive, send) if sender == "client" else (send, receive)
    with (
        proven(at_gateway) as url,
        Relay(url) as relay,
        connected(relay) as line,
    ):
        at_client(line)
    assert whole == [True]


def test_a_client_waits_for_a_gateway_that_is_gone() -> None:
    port = free_port()
    with Relay(f"http://127.0.0.1:{port}") as relay, connected(relay) as line:
        line.sendall(b"are you there?")
        with proven(echo, port):
            assert received(line, 14) == b"are you there?"


@pytest.mark.parametrize("holder", ["nobody", "a stranger"])
def test_after_its_patience_the_relay_says_why_a_call_was_not_carried(holder: str) -> None:
    installation_key()
    with listening() as neighbour:
        port = free_port() if holder == "nobody" else neighbour.port
        with Relay(f"http://127.0.0.1:{port}", patience=0.2) as relay:
            status, told = got(f"{relay.url}/v1/messages", b"p" * 200_000)
    words = told.decode()
    assert status == 503
    assert f"127.0.0.1:{port}" in words
    assert ("did not prove to be your gateway" in words) is (holder == "a stranger")
    assert b"POST" not in neighbour.received


def test_an_answer_that_was_cut_is_cut_for_the_client_too() -> None:
    def cut(line: socket.socket) -> None:
        line.recv(65536)
        line.sendall(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        until(came.is_set, "its arrival")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

    came = threading.Event()
    with proven(cut) as url, Relay(url) as relay:
        connection = http.client.HTTPConnection(*address_of(relay), timeout=PATIENCE)
        connection.request("GET", "/")
        answer = connection.getresponse()
        assert answer.read(4) == b"half"
        came.set()
        with pytest.raises(ConnectionResetError):
            answer.read()
        connection.close()


def test_an_answer_that_ends_with_its_connection_is_whole() -> None:
    def answer(line: socket.socket) -> None:
        line.recv(65536)
        line.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + LARGE)

    with proven(answer) as url, Relay(url) as relay:
        assert got(f"{relay.url}/") == (200, LARGE)


def test_there_are_no_more_connections_than_it_may_have() -> None:
    with proven(echo) as url, Relay(url, connections=3) as relay:
        lines = [connected(relay) for _ in range(3)]
        for line in lines:
            line.sendall(b"x")
            assert line.recv(1) == b"x"
        with connected(relay) as more, suppress(ConnectionError):
            assert more.recv(1) == b""
        lines.pop().close()

        def is_served() -> bool:
            with (
                suppress(ConnectionError),
                connected(relay) as next_one,
            ):
                next_one.sendall(b"y")
                return next_one.recv(1) == b"y"
            return False

        until(is_served, "the place of the one that has left")
        for line in lines:
            line.close()


def test_what_a_loop_does_meanwhile_holds_up_no_program() -> None:
    async def main() -> None:
        # This blocks the loop: a relay on it would never answer.
        with proven(echo) as url, Relay(url) as relay, connected(relay) as line:
            line.sendall(b"x")
            assert line.recv(1) == b"x"

    asyncio.run(main())


def test_at_its_end_nothing_is_open_and_nobody_is_left_waiting() -> None:
    with proven(echo) as url, Relay(url) as relay:
        address = address_of(relay)
        talking = socket.create_connection(address, timeout=PATIENCE)
        talking.sendall(b"x")
        assert talking.recv(1) == b"x"
        with Relay(f"http://127.0.0.1:{free_port()}") as other:
            waiting = socket.create_connection(address_of(other), timeout=PATIENCE)
    for line in (talking, waiting):
        with line, suppress(ConnectionError):
            assert line.recv(1) == b""
    assert not [each for each in threading.enumerate() if each.name == "jackline-relay"]
    with socket.create_server(address):
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_what_is_left_running_after_a_good_end_is_left_alone_and_the_port_is_free() -> None:
    with Relay(f"http://127.0.0.1:{free_port()}") as relay:
        environ = {**os.environ, MARK: relay.guard.mark()}
        left = subprocess.Popen(["/bin/sleep", "600"], env=environ, start_new_session=True)
        address = address_of(relay)
    try:
        with socket.create_server(address):
            pass
        assert left.poll() is None
    finally:
        left.kill()
        left.wait()
