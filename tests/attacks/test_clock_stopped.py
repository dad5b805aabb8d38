"""A process that is stopped for a while (or a machine that sleeps) has not heard its clients late."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# How long a client may pause within a body, and for how much longer nothing runs at all.
PAUSE, STOPPED = 1.5, 4.0
SERVER = f"""
import asyncio
from dataclasses import replace
from jackline.gateway.settings import LimitSettings
from tests.gateway.serving import listening

async def main():
    limits = replace(LimitSettings(), body_pause_seconds={PAUSE}, header_seconds={PAUSE})
    async with listening(lambda exchange: exchange.respond(200, (), b"taken"), limits) as listener:
        print(listener.port, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.skipif(os.name == "nt", reason="a process cannot be stopped and continued there")
def test_a_client_in_the_middle_of_a_request_is_not_refused_because_we_did_not_run() -> None:
    server = subprocess.Popen(  # noqa: S603 -- ourselves
        [sys.executable, "-c", SERVER], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        with (
            socket.create_connection(("127.0.0.1", port), timeout=60) as body,
            socket.create_connection(("127.0.0.1", port), timeout=60) as head,
        ):
            body.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
            head.sendall(b"POST / HTTP/1.1\r\nHost: x\r\n")
            server.send_signal(signal.SIGSTOP)
            asyncio.run(asyncio.sleep(STOPPED))  # the attack itself: nothing runs for so long
            server.send_signal(signal.SIGCONT)
            # What the clients send now could not have come earlier to anybody's knowledge.
            body.sendall(b"and on")
            head.sendall(b"Content-Length: 0\r\n\r\n")
            for client in (body, head):
                assert client.recv(1000).split(b" ", 2)[1] == b"200"
    finally:
        server.kill()
        server.wait()
