"""Another user of the machine who connects to the port is not served without the token."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jackline import event_loop
from jackline.cli.open import Opened, open_secret
from jackline.gateway.peer_users import Peer, PeerUsers, _question
from jackline.gateway.relay import Relay
from jackline.gateway.settings import LimitSettings
from jackline.gateway_proof import Challenge, UnprovenError
from tests.assembly.world import (
    answered,
    ask,
    gateway,
    port_of,
    provider,
    question,
    request,
    run,
)
from tests.gateway.serving import listening
from tests.gateway.serving import run as on_loop

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.getuid() != 0,
    reason="only Linux tells whose a connection is, and only root can become another user",
)

NOBODY_USER = 65534
SYN_SENT = 2


def as_another_user(
    address: tuple[str, int], raw: bytes, *, stays: bool = True, resets: bool = False
) -> bytes:
    """What another user of this machine hears who connects there and says this."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads are of no account here
        child = os.fork()
    if child == 0:
        try:
            os.setuid(NOBODY_USER)
            with socket.create_connection(address, timeout=30) as line:
                line.sendall(raw)
                if resets:
                    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                while stays and (piece := line.recv(65536)):
                    os.write(writing, piece)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        received = file.read()
    os.waitpid(child, 0)
    return received


@pytest.mark.parametrize("path", [b"/v1/messages", b"/v1/files", b"/_jackline/status", b"/metrics"])
@pytest.mark.parametrize("token", [None, "shared-with-them"])
def test_another_user_is_served_with_the_token_only(
    path: bytes, token: str | None, tmp_path: Path
) -> None:
    async def main() -> None:
        answers = provider(answered())
        async with answers as (scripted, url), gateway(tmp_path, url, token=token) as service:
            address = ("127.0.0.1", port_of(service.url))
            method = b"POST" if path.endswith(b"messages") else b"GET"
            body = question() if method == b"POST" else b""
            close = (b"connection", b"close")
            shown = (b"x-jackline-token", (token or "guessed").encode())
            raw = request(method, path, body, shown, close)
            received = await asyncio.to_thread(as_another_user, address, raw)
            if token is None:
                assert received.startswith(b"HTTP/1.1 403 ")
                assert b"listen.token" in received
                # Whoever hangs up at once must not be taken for root, and be carried out.
                await asyncio.to_thread(as_another_user, address, raw, stays=False)
                await ask(service.url, request(b"GET", b"/healthz"))
                assert not scripted.asked
            else:
                assert not received.startswith(b"HTTP/1.1 403 ")

    run(main())


def test_another_user_is_not_carried_to_the_gateway_even_with_the_token(tmp_path: Path) -> None:
    """To the gateway, whoever comes over the relay is the user who runs it."""

    async def main() -> None:
        answers = provider(answered())
        async with answers as (scripted, url), gateway(tmp_path, url, token="t" * 32) as service:
            with Relay(service.url) as relay:
                shown = (b"x-jackline-token", b"t" * 32)
                raw = request(
                    b"POST", b"/v1/messages", question(), shown, (b"connection", b"close")
                )
                address = ("127.0.0.1", port_of(relay.url))
                assert await asyncio.to_thread(as_another_user, address, raw) == b""
                assert not scripted.asked
                assert (await ask(relay.url, raw)).status == 200

    run(main())


@contextlib.contextmanager
def many_of_another_user(address: tuple[str, int], number: int) -> Iterator[dict[str, int]]:
    """So many connections of another user, none of which it ends; what each of them was told."""
    reading, writing = os.pipe()
    leaving, leave = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads are of no account here
        child = os.fork()
    if child == 0:
        try:
            os.close(leave)
            os.setuid(NOBODY_USER)
            lines, told = [], {"403": 0, "reset": 0}
            for _ in range(number):
                try:
                    lines.append(socket.create_connection(address, timeout=30))
                except ConnectionError:
                    told["reset"] += 1
            for line in lines:
                try:
                    told["403" if line.recv(12).endswith(b"403") else "reset"] += 1
                except ConnectionError:
                    told["reset"] += 1
            os.write(writing, json.dumps(told).encode())
            os.close(writing)
            os.read(leaving, 1)
        finally:
            os._exit(0)
    os.close(writing)
    os.close(leaving)
    try:
        with os.fdopen(reading, "rb") as file:
            yield json.loads(file.read() or b"{}")
    finally:
        os.close(leave)
        os.waitpid(child, 0)


@pytest.mark.parametrize("loop", ["fast", "asyncio"])
def test_connections_of_another_user_take_no_place_of_the_owners(loop: str) -> None:
    """They were counted among the owner's, and kept open for seconds after their refusal."""

    async def main() -> None:
        limits = replace(LimitSettings(), connections=8)
        async with listening(lambda asked: asked.respond(200, (), b"served"), limits) as listener:
            address = ("127.0.0.1", listener.port)
            flood = many_of_another_user(address, 300)
            told = await asyncio.to_thread(flood.__enter__)
            try:
                # Some are told why; of the others nothing is kept.
                assert told["403"] + told["reset"] == 300
                assert min(told.values()) > 0
                assert listener.connections == 0
                for _ in range(8):
                    got = await ask(f"http://127.0.0.1:{listener.port}", request(b"GET", b"/"))
                    assert got.status == 200
            finally:
                await asyncio.to_thread(flood.__exit__, None, None, None)

    on_loop(main(), loop)


@pytest.mark.parametrize("loop", [event_loop.loop_factory(), asyncio.new_event_loop])
@pytest.mark.parametrize("resets", [False, True])
def test_whoever_has_left_before_being_looked_at_is_not_served(
    resets: bool, loop: event_loop.LoopFactory, tmp_path: Path
) -> None:
    """The bytes are there, but the system tells neither the address nor the user any more."""

    async def main() -> None:
        async with (
            provider(answered()) as (scripted, url),
            gateway(tmp_path, url) as service,
        ):
            address = ("127.0.0.1", port_of(service.url))
            raw = request(b"POST", b"/v1/messages", question())
            # The line to the upstream is open from then on: what is let in goes out at once.
            await ask(service.url, raw)
            for _ in range(3):
                # Not in a thread: they come and go while the loop stands still.
                as_another_user(address, raw, stays=False, resets=resets)
            await ask(service.url, request(b"GET", b"/healthz"))
            # The one who may is still served.
            await ask(service.url, raw)
            assert len(scripted.asked) == 2

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(main(), 60))


def own_users() -> PeerUsers:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return PeerUsers(server.getsockname())


def test_an_answer_of_the_system_to_an_earlier_question_is_not_taken() -> None:
    users = own_users()
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname()) as client,
        ):
            near, far = server.getsockname(), client.getsockname()
            assert users._line is not None
            # An answer that came too late for whoever asked: about a connection of this user.
            users._line.send(_question(users._sequence, far, near))
            gone = ("127.0.0.1", 1)
            assert users.peer_of(near, gone) is Peer.GONE
            assert users.peer_of(near, far) is Peer.OWN
    finally:
        users.close()


def test_whoever_takes_all_ports_while_the_gateway_starts_is_refused_all_the_same() -> None:
    """Whether the system tells users apart is found out without a port that others can take."""
    said = subprocess.run(
        ["unshare", "--net", sys.executable, "-m", "tests.attacks.taken_ports"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    own, another = said.stdout.splitlines()
    assert own.startswith("HTTP/1.1 204 ")
    assert another.startswith("HTTP/1.1 403 ")


PROOF = """
import sys
from jackline.gateway_proof import proof, socket_address
print(proof(b"key", sys.argv[1], socket_address((sys.argv[2], 8766))))
"""


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize(("network", "is_own"), [((), True), (("unshare", "--net"), False)])
def test_a_proof_from_another_machine_of_a_shared_home_is_none(
    network: tuple[str, ...], is_own: bool, host: str
) -> None:
    """Another user with an account on both passes the question on, from loopback to loopback."""
    challenge = Challenge("127.0.0.1:8766", b"key")
    nonce = challenge.question.partition(b"nonce=")[2].partition(b" ")[0].decode()
    answer = subprocess.run(
        [*network, sys.executable, "-c", PROOF, nonce, host],
        capture_output=True,
        timeout=60,
        check=True,
    ).stdout.strip()
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(answer)
    if is_own:
        assert challenge.is_met(head + answer, (host, 8766))
    else:
        with pytest.raises(UnprovenError, match="wrong"):
            challenge.is_met(head + answer, (host, 8766))


def test_while_the_system_tells_nobody_is_unknown() -> None:
    users = own_users()
    try:
        assert users.peer_of(None, ("127.0.0.1", 1)) is Peer.GONE
        assert users.peer_of(("127.0.0.1", 1), None) is Peer.GONE
        assert users.peer_of(("", 1), ("no address", 1)) is Peer.GONE
        users.close()
        assert users.peer_of(("127.0.0.1", 1), ("127.0.0.1", 2)) is Peer.GONE
    finally:
        users.close()


def test_a_lack_of_open_files_is_no_sign_that_the_system_does_not_tell() -> None:
    """Another user can bring that about; it passes, and until then nobody is let in."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        near, far = server.getsockname(), client.getsockname()
        import resource  # noqa: PLC0415 -- there is none on Windows, where this module is only skipped

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            users = PeerUsers(near)
            assert users.peer_of(near, far) is Peer.UNCHECKED
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        try:
            assert users.peer_of(near, far) is Peer.OWN
        finally:
            users.close()


def test_whoever_asks_about_no_listener_of_theirs_knows_nothing() -> None:
    """Where the kernel lacks the part that tells, it denies a socket that is surely there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    assert PeerUsers(address).peer_of(address, ("127.0.0.1", 1)) is Peer.UNKNOWN


def test_a_listener_does_not_answer_for_a_peer_that_has_gone() -> None:
    """Where no connection is left the system looks for a listener on the peer's port instead."""
    users = own_users()
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()
            assert users.peer_of(("127.0.0.1", 1), port) is Peer.GONE
    finally:
        users.close()


def test_own_connections_are_known_by_both_families() -> None:
    users = own_users()
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.socket(socket.AF_INET6) as client,
        ):
            client.connect(("::ffff:127.0.0.1", server.getsockname()[1]))
            with server.accept()[0] as ours:
                assert users.peer_of(ours.getsockname(), ours.getpeername()) is Peer.OWN
        for host, family in (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)):
            with (
                socket.create_server((host, 0), family=family) as server,
                socket.create_connection(server.getsockname()[:2]) as client,
            ):
                near, far = server.getsockname(), client.getsockname()
                assert users.peer_of(near, far) is Peer.OWN
                client.close()
                assert users.peer_of(near, far) is not Peer.OWN
    finally:
        users.close()


def test_the_page_is_opened_for_this_user_only() -> None:
    """What a browser is started with stands on its command line: another user may come first."""
    received: list[bytes] = []

    def opener(address: str) -> bool:
        host, _, path = address.removeprefix("http://").partition("/")
        name, _, port = host.partition(":")
        raw = f"GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        received.append(as_another_user((name, int(port)), raw))
        for asked in (raw.replace(b"GET /", b"GET /x"), raw.replace(b"127.0.0.1", b"a.test"), raw):
            with socket.create_connection((name, int(port)), timeout=60) as line:
                line.sendall(asked)
                received.append(line.recv(65536))
        return True

    assert run(open_secret("http://127.0.0.1:9/#token=secret", opener)) is Opened.SHOWN
    assert received[0] == b""
    assert [each[9:12] for each in received[1:]] == [b"404", b"404", b"302"]
    assert b"\r\nLocation: http://127.0.0.1:9/#token=secret\r\n" in received[-1]


def test_a_browser_that_does_not_come_is_told_apart() -> None:
    assert run(open_secret("http://127.0.0.1:9/", lambda _: False)) is Opened.NO_BROWSER
    assert run(open_secret("http://127.0.0.1:9/", lambda _: True, 0.0)) is Opened.NOT_CAME


def test_a_socket_that_is_still_connecting_answers_for_nobody() -> None:
    """Bound to a device, another user's socket is not found, and one of this user's that tries to
    connect from the same port is: it must not vouch for them."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = server.getsockname()
        users = PeerUsers(address)
        stack.callback(users.close)
        for _ in range(8):
            trying = stack.enter_context(socket.socket())
            trying.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                trying.connect(address)
            if trying.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == SYN_SENT:
                break
        else:
            pytest.fail("all were let in: nobody is connecting")
        assert users.peer_of(address, trying.getsockname()) is Peer.GONE
