"""`jackline open`: show the gateway's page in the browser, with the right to give orders.

Rules: (1) the token is in the address behind the `#`, which browsers send to nobody, and is printed
only with --print; (2) it is on no command line, which every user of the machine can read: the
browser is started with the address of a local listener, which redirects it once; (3) the listener
answers only this user's browser, as far as the system knows whose a connection is, and only for the
path that it was started with; (4) the browser is looked for in absolute folders of the PATH only. A
redirect, because a browser takes it for what its user has opened (docs/decisions/058).
Not here: the page (dashboard/).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum

import click

from jackline.assembly import StateDir
from jackline.assembly.gateway_process import find, not_running
from jackline.cli.gateway_flags import gateway_flags, service_place, warn_of_faults
from jackline.event_loop import run
from jackline.gateway.peer_users import Peer, PeerUsers
from jackline.programs import absolute_path

_HOST = "127.0.0.1"
# A browser that is already open takes a second; one that starts on a busy machine takes longer.
_COMES_WITHIN = 30.0
_ASKS_WITHIN = 10.0
_LARGEST_HEAD = 64 * 1024
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
# Unknown is whoever comes where the system never tells; on Linux it does (gateway/peer_users.py).
_SERVED = (Peer.OWN, Peer.UNKNOWN)

Opener = Callable[[str], bool]


class Opened(Enum):
    """What came of it."""

    SHOWN = "the browser was sent there"
    NO_BROWSER = "no browser was found"
    NO_PORT = "this machine has no free port to send a browser from"
    NOT_CAME = "a browser was started, but did not come"


def open_browser(address: str) -> bool:
    """Open it in the user's browser; False when none is found."""
    with _absolute_path_only():
        return webbrowser.open(address)


async def open_secret(
    address: str, opener: Opener = open_browser, within: float = _COMES_WITHIN
) -> Opened:
    """Send the user's browser to this address; returns when it was sent, or did not come."""
    redirect = _Redirect(address)
    try:
        server = await asyncio.start_server(redirect.answer, _HOST, 0, limit=_LARGEST_HEAD)
    except OSError:
        return Opened.NO_PORT
    redirect.ask_about(server.sockets[0].getsockname())
    try:
        port = server.sockets[0].getsockname()[1]
        # In a thread: a browser in the terminal runs until its user has seen enough.
        if not await asyncio.to_thread(opener, redirect.begin(port)):
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

    def ask_about(self, listener: object) -> None:
        """Be ready to tell users apart; nobody is answered before."""
        self._users = PeerUsers(listener)

    def begin(self, port: int) -> str:
        """The address that the browser is started with."""
        self._host = f"{_HOST}:{port}"
        return f"http://{self._host}{self._path}"

    def close(self) -> None:
        """Let go of the line to the system."""
        if self._users is not None:
            self._users.close()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        near, far = writer.get_extra_info("sockname"), writer.get_extra_info("peername")
        try:
            if self._users is not None and self._users.peer_of(near, far) in _SERVED:
                async with asyncio.timeout(_ASKS_WITHIN):
                    head = await reader.readuntil(b"\r\n\r\n")
                    if self.done.is_set() or not self._is_for_us(head):
                        writer.write(_NOT_FOUND)
                    else:
                        writer.write(self._found())
                        self.done.set()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever this was says no whole request: there is nobody to answer
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
        asked = words[1] if len(words) == 3 and words[0] == "GET" else ""
        # Compared in constant time, as every secret is.
        known = secrets.compare_digest(asked.encode(), self._path.encode())
        return known and hosts == [self._host]

    def _found(self) -> bytes:
        return (
            f"HTTP/1.1 302 Found\r\nLocation: {self._address}\r\nCache-Control: no-store\r\n"
            "Referrer-Policy: no-referrer\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        ).encode()


@contextmanager
def _absolute_path_only() -> Iterator[None]:
    """`webbrowser` looks for programs, and these for others, wherever the PATH says."""
    before = os.environ.get("PATH")
    os.environ["PATH"] = absolute_path(os.environ)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PATH"]
        else:
            os.environ["PATH"] = before


@click.command(name="open")
@gateway_flags
@click.option("--print", "only_print", is_flag=True, help="Print the address with its token.")
def open_(
    port: int | None, upstream: str | None, state: str | None, config: str | None, only_print: bool
) -> int:
    """Open the page that shows the fleet: who works, who waits for what, what it costs.

    Opened like this, the page may also give orders (pause, resume, cancel). Opened by its address
    alone, http://127.0.0.1:8766, it only shows.

    \b
    Examples:
      jackline open
      jackline open --print        the address, for a browser elsewhere (behind ssh -L, say)

    Exit codes: 0 opened or printed, 5 no gateway runs.
    """
    flags = {"port": port, "upstream": upstream, "state": state, "config": config}
    place = service_place(flags)
    folder = StateDir(place.state_dir)
    running = find(folder, place.listen)
    if running is None:
        raise place.problem or not_running(folder)
    warn_of_faults(place)
    address = f"{running.url}/#token={running.token}"
    if only_print:
        click.echo(address)
        return 0
    click.echo(f"opening {running.url}", err=True)
    opened = run(open_secret(address))
    if opened is not Opened.SHOWN:
        click.echo(f"{opened.value}; open {running.url} in one, or take the address that", err=True)
        click.echo("may give orders from: jackline open --print", err=True)
    return 0
