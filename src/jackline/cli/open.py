"""`jackline open`: show the gateway's page in the browser, with the right to give orders.

Rules: (1) the token is in the address behind the `#`, which browsers send to nobody, and is printed
only with --print; (2) it is on no command line, which every user of the machine can read: the
browser is started with the address of a local listener, which redirects it once; (3) the listener
answers only this user's browser, as far as the system knows whose a connection is, and only for the
path that it was started with; (4) the browser is looked for in absolute folders of the PATH only. A
redirect, because a browser treats its target as opened by the user (docs/decisions/058).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import webbrowser
from collections.abc import Callable, Mapping
from enum import Enum

import click

from jackline.cli.gateway_flags import gateway_flags, running_gateway
from jackline.event_loop import run
from jackline.gateway.peer_users import Peer, PeerUsers
from jackline.programs import absolute_path

_HOST = "127.0.0.1"
# A browser that is already open takes a second; one that starts on a busy machine takes longer.
_BROWSER_SECONDS = 30.0
_REQUEST_SECONDS = 10.0
_LARGEST_HEAD = 64 * 1024
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
# Where the system never knows the user, everybody is unknown; Linux knows (peer_users.py).
_SERVED = (Peer.OWN, Peer.UNKNOWN)


class Opened(Enum):
    """The result of opening the browser."""

    SHOWN = "the browser was sent there"
    NO_BROWSER = "no browser was found"
    NO_PORT = "this machine has no free port to send a browser from"
    NOT_CAME = "a browser was started, but did not connect"


def open_browser(address: str) -> bool:
    """Open it in the user's browser; False when none is found."""
    before = os.environ.get("PATH")
    # `webbrowser` looks for programs, and these for others, wherever the PATH leads.
    os.environ["PATH"] = absolute_path(os.environ)
    try:
        return webbrowser.open(address)
    finally:
        if before is None:
            del os.environ["PATH"]
        else:
            os.environ["PATH"] = before


async def open_secret(
    address: str, opener: Callable[[str], bool] = open_browser, within: float = _BROWSER_SECONDS
) -> Opened:
    """Redirect the user's browser to this address; returns when it was, or did not connect."""
    redirect = _Redirect(address)
    try:
        server = await asyncio.start_server(redirect.answer, _HOST, 0, limit=_LARGEST_HEAD)
    except OSError:
        return Opened.NO_PORT
    try:
        # In a thread: a browser in the terminal runs until its user leaves it.
        if not await asyncio.to_thread(opener, redirect.listen_at(server.sockets[0].getsockname())):
            return Opened.NO_BROWSER
        async with asyncio.timeout(within):
            await redirect.done.wait()
    except TimeoutError:
        return Opened.NOT_CAME
    finally:
        server.close()
        redirect.close()
    return Opened.SHOWN


class _Redirect:
    """Answers the first request for its path, by this user, with the address."""

    def __init__(self, address: str) -> None:
        self.done = asyncio.Event()
        self._address = address
        self._path = f"/{secrets.token_urlsafe(32)}"
        self._host = ""
        self._users: PeerUsers | None = None

    def listen_at(self, listener: tuple[str, int]) -> str:
        """The address that the browser is started with; nobody is answered before."""
        self._users = PeerUsers(listener)
        self._host = f"{_HOST}:{listener[1]}"
        return f"http://{self._host}{self._path}"

    def close(self) -> None:
        if self._users is not None:
            self._users.close()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        near, far = writer.get_extra_info("sockname"), writer.get_extra_info("peername")
        found = (
            f"HTTP/1.1 302 Found\r\nLocation: {self._address}\r\nCache-Control: no-store\r\n"
            "Referrer-Policy: no-referrer\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        try:
            if self._users is not None and self._users.peer_of(near, far) in _SERVED:
                async with asyncio.timeout(_REQUEST_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                    if self.done.is_set() or not self._is_for_us(head):
                        writer.write(_NOT_FOUND)
                    else:
                        writer.write(found.encode())
                        self.done.set()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # no complete request: there is nobody to answer
        finally:
            writer.close()

    def _is_for_us(self, head: bytes) -> bool:
        first, *fields = head.decode("latin-1").split("\r\n")
        words = first.split(" ")
        hosts = [
            value.strip()
            for name, _, value in (field.partition(":") for field in fields)
            if name.lower() == "host"
        ]
        path = words[1] if len(words) == 3 and words[0] == "GET" else ""
        # Compared in constant time, as every secret is.
        known = secrets.compare_digest(path.encode(), self._path.encode())
        return known and hosts == [self._host]


@click.command(name="open")
@gateway_flags
@click.option("--print", "only_print", is_flag=True, help="Print the address with its token.")
def open_(flags: Mapping[str, object], only_print: bool) -> int:
    """Open the page that shows the fleet: who works, who waits for what, what it costs.

    Opened like this, the page may also give orders (pause, resume, cancel). Opened by its address
    alone, http://127.0.0.1:8766, it only shows.

    \b
    Examples:
      jackline open
      jackline open --print      the address, for a browser elsewhere

    Exit codes: 0 opened or printed, 5 no gateway runs.
    """
    running = running_gateway(flags)
    address = f"{running.url}/#token={running.token}"
    if only_print:
        click.echo(address)
        return 0
    click.echo(f"opening {running.url}", err=True)
    opened = run(open_secret(address))
    if opened is not Opened.SHOWN:
        click.echo(f"{opened.value}; open {running.url} in one, or the address that may", err=True)
        click.echo("give orders, from: jackline open --print", err=True)
    return 0
