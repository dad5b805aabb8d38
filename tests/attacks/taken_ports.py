"""A program: start a gateway's port where another user has taken every ephemeral port.

Run in a network namespace of its own (`unshare --net`), as root. Prints the first line that this
user, and then another one, is answered.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

from jackline.gateway.connection import Exchange
from jackline.gateway.listener import Listener
from jackline.gateway.settings import GatewaySettings, ListenSettings

PORT = 8766
FIRST_FREE = 20_000
NOBODY_USER = 65534
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def take_all_ports() -> list[socket.socket]:
    """Every port that the system gives to whoever names none."""
    taken: list[socket.socket] = []
    while True:
        one = socket.socket()
        try:
            one.bind(("127.0.0.1", 0))
            one.listen()
        except OSError:
            one.close()
            return taken
        taken.append(one)


def first_line(user: int, port: int) -> bytes:
    """What this user is answered, who connects from a port that is named."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setuid(user)
        with socket.socket() as line:
            line.bind(("127.0.0.1", port))
            line.connect(("127.0.0.1", PORT))
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:8766\r\n\r\n")
            os.write(writing, line.recv(65536).partition(b"\r\n")[0])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        received = file.read()
    os.waitpid(child, 0)
    return received


async def main() -> None:
    def handle(exchange: Exchange) -> None:
        exchange.respond(204, [])

    taken = take_all_ports()
    listener = Listener(GatewaySettings(listen=ListenSettings(port=PORT)), handle)
    await listener.open()
    try:
        for user in (os.getuid(), NOBODY_USER):
            received = await asyncio.to_thread(first_line, user, FIRST_FREE + user % 1000)
            sys.stdout.write(f"{received.decode()}\n")
    finally:
        await listener.close(0)
        for one in taken:
            one.close()


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    RANGE.write_text("60000 60009")
    asyncio.run(main())
