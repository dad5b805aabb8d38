"""Another user of the machine who connects to the port is not served without the token."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import warnings
from pathlib import Path

import pytest

from jackline.gateway.peer_users import Peer, PeerUsers
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

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.getuid() != 0,
    reason="only Linux tells whose a connection is, and only root can become another user",
)

NOBODY_USER = 65534


def as_another_user(address: tuple[str, int], raw: bytes, *, stays: bool = True) -> bytes:
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
                while stays and (piece := line.recv(65536)):
                    os.write(writing, piece)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        heard = file.read()
    os.waitpid(child, 0)
    return heard


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
            heard = await asyncio.to_thread(as_another_user, address, raw)
            if token is None:
                assert heard.startswith(b"HTTP/1.1 403 ")
                assert b"listen.token" in heard
                # Whoever hangs up at once must not be taken for root, and be carried out.
                await asyncio.to_thread(as_another_user, address, raw, stays=False)
                await ask(service.url, request(b"GET", b"/healthz"))
                assert not scripted.asked
            else:
                assert not heard.startswith(b"HTTP/1.1 403 ")

    run(main())


def test_own_connections_are_known_by_both_families() -> None:
    users = PeerUsers()
    try:
        for host, family in (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)):
            with (
                socket.create_server((host, 0), family=family) as server,
                socket.create_connection(server.getsockname()[:2]) as client,
            ):
                near, far = server.getsockname(), client.getsockname()
                assert users.peer_of(near, far) is Peer.OWN
                client.close()
                assert users.peer_of(near, far) is not Peer.OWN
        assert users.peer_of(None, ("127.0.0.1", 1)) is Peer.UNKNOWN
        assert users.peer_of(("", 1), ("no address", 1)) is Peer.UNKNOWN
    finally:
        users.close()
