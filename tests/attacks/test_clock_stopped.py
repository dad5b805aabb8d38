"""A process that is stopped for a while, like a machine that sleeps: its clients were not late."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# How long a client may pause within a body, and for how much longer nothing runs at all.
PAUSE, STOPPED = 3.0, 5.0
SERVER = f"""
import asyncio
from dataclasses import replace
from jackline.gateway.settings import LimitSettings
from tests.gateway.serving import listening

async def main():
    limits = replace(LimitSettings(), body_pause={PAUSE}, header_time={PAUSE})
    async with listening(lambda exchange: exchange.respond(200, (), b"taken"), limits) as listener:
        print(listener.port, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.skipif(os.name == "nt", reason="a process cannot be stopped and continued there")
def test_a_client_in_the_middle_of_a_request_is_not_refused_because_we_did_not_run() -> None:
    server = subprocess.Popen(
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
            for _ in range(2):  # by the second, what came before has been read
                with socket.create_connection(("127.0.0.1", port), timeout=60) as other:
                    other.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                    assert other.recv(1000)
            server.send_signal(signal.SIGSTOP)
            time.sleep(STOPPED)  # the attack itself: nothing runs for so long
            server.send_signal(signal.SIGCONT)
            time.sleep(0.2)  # its timers may well come before what the clients send
            body.sendall(b"and on")
            head.sendall(b"Content-Length: 0\r\n\r\n")
            for client in (body, head):
                assert client.recv(1000).split(b" ", 2)[1] == b"200"
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()
