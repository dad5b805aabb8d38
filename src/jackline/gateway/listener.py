"""Open the gateway's port, watch over its connections, and close it without cutting answers.

Rules: (1) one sweep for all connections, no timer for each; (2) a port that cannot be opened is
reported with the system's error; (3) after `close` no connection is left, and each that was cut was
reset; (4) without a token, other users of this machine are refused before any of their bytes are
read, and their connections take no place of the owner's; (5) freed memory of past requests stays
with the process, up to `KEPT_BYTES`, where the C library allows that: returning the pages of each
prompt to the system costs more than all copying; (6) the garbage collector runs rarely while calls
are served, since they leave it nothing to find; its settings are restored at the end; (7) a
gateway of 127.0.0.1 is that of ::1, too: `localhost` means the one for some clients and the other
for others, and nobody else shall answer there; (8) all clients that wait at the port are let in
together, also by a loop that takes one in each of its turns: long turns must not keep them out.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import socket
import sys
from collections.abc import Callable
from functools import cache

from jackline.gateway.connection import ClientConnection, Exchange
from jackline.gateway.peer_users import Peer, PeerUsers
from jackline.gateway.settings import GatewaySettings
from jackline.http1.requests import RequestRefusal

_log = logging.getLogger(__name__)

KEPT_BYTES = 64 * 1024 * 1024
OWN_MAPPING_BYTES = 4 * 1024 * 1024
# As glibc's malloc.h names them.
_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3


@cache
def keep_freed_memory() -> bool:
    """Set the C library so, once for the process; whether it could be."""
    if sys.platform != "linux":
        return False
    import ctypes  # noqa: PLC0415 -- only where it is of use

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library than glibc
        return False
    settings = ((_TRIM_THRESHOLD, KEPT_BYTES), (_MMAP_THRESHOLD, OWN_MAPPING_BYTES))
    return all(mallopt(name, value) == 1 for name, value in settings)


# Objects made and not freed before the young ones are looked at; Python's own is 700.
YOUNG_OBJECTS = 20_000


class RareCollections:
    """Held by whoever serves calls, from `begin` to `end`; several may."""

    def __init__(self) -> None:
        self._held = 0
        self._before = gc.get_threshold()

    def begin(self) -> None:
        """Look rarely from now on."""
        if self._held == 0:
            self._before = gc.get_threshold()
            gc.set_threshold(YOUNG_OBJECTS, *self._before[1:])
        self._held += 1

    def end(self) -> None:
        """One of those that began needs it no longer."""
        self._held -= 1
        if self._held == 0:
            gc.set_threshold(*self._before)


RARE_COLLECTIONS = RareCollections()


_BACKLOG = 4096
# Let in by one turn of the loop; the rest by the next one.
_MOST_LET_IN = 256
# A usual prompt comes in one piece.
_PACKET_BYTES = 256 * 1024
_LONGEST_SWEEP = 1.0
# Above the limit so many clients at once get the reason; further ones are cut without a word.
_REFUSED_AT_ONCE = 256
# The same for other users of this machine, who are as many as they like, and no clients.
_STRANGERS_AT_ONCE = 64
_LAST_TURNS_SECONDS = 5.0
# Of the memory for incomplete requests, so much is freed at once: finding who holds most costs
# something with thousands of connections.
_FREED_SHARE = 8
# The least time of a body: one of many bytes in its first moment weighs by its size.
_FIRST_SECONDS = 0.01
# A sweep that comes later than this was held up: nothing ran, and no client is to blame for it.
_HELD_UP = 1.0


LACKS_LOCALHOST = (
    "another program listens at [::1]:{port}: clients that call the gateway localhost may reach it,"
    " with their key. Write 127.0.0.1 in their base URL, end that program, then restart the gateway"
)

_TOO_MANY = RequestRefusal(
    503,
    "Too many connections are open. Try again soon, or raise `limits.connections` in"
    " jackline.toml.",
    retry_after=1,
)
_OTHER_USER = RequestRefusal(
    403,
    "This gateway serves the user of this machine who has started it, and you are another one. If"
    " it shall serve you, that user sets `listen.token` and gives you the token.",
)
_UNCHECKED_USER = RequestRefusal(
    503,
    "The system did not say which user of this machine you are, for lack of memory or open files."
    " Try again soon; or the user who has started this gateway sets `listen.token`, and gives the"
    " token to whom it shall serve.",
    retry_after=1,
)


def _refuses_nobody(_exchange: Exchange, _length: int) -> None:
    return None


class Listener:
    """The listening socket and all of its connections; `handle` gets each request."""

    def __init__(self, settings: GatewaySettings, handle: Callable[[Exchange], None]) -> None:
        self.handle = handle
        self.refusal: Callable[[Exchange, int], RequestRefusal | None] = _refuses_nobody
        # Whether other users of this machine are served as well: those that know the token.
        self.is_shared: Callable[[], bool] = lambda: settings.listen.token is not None
        self._users: PeerUsers | None = None
        self.limits = settings.limits
        self.draining = False
        self.packet = memoryview(bytearray(_PACKET_BYTES))
        self.port = settings.listen.port
        self._host = settings.listen.host
        self._open: set[ClientConnection] = set()
        # Those of them that are other users', while they are refused.
        self._strangers: set[ClientConnection] = set()
        self._to_flush: list[ClientConnection] = []
        # Bytes of incomplete requests, of all connections.
        self._unfinished = 0
        self._server: asyncio.Server | None = None
        # The same port of ::1, where this machine has that address and nobody else the port.
        self._second: asyncio.Server | None = None
        # The listening sockets once more, where the loop takes one client in each turn.
        self._doors: list[socket.socket] = []
        self._is_letting_in = False
        self._entering: set[asyncio.Task[None]] = set()
        self.lacks_localhost = False
        """Whether another program listens where `localhost` may lead to."""
        self._sweeping: asyncio.TimerHandle | None = None
        self._sweep_due = 0.0
        self._all_left = asyncio.Event()
        self._all_left.set()

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._open) - len(self._strangers)

    async def open(self) -> None:
        """Listen; OSError when the address cannot be had."""
        keep_freed_memory()
        self._loop = loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: ClientConnection(self, loop),
            self._host,
            self.port,
            backlog=_BACKLOG,
            start_serving=False,
        )
        # Known from now on: a client may be let in before this returns from listening.
        await self._server.start_serving()
        self._peer_users()
        self.port = self._server.sockets[0].getsockname()[1]
        if self._host == "127.0.0.1":
            await self._open_second(loop)
        if not isinstance(loop, asyncio.BaseEventLoop):
            # uvloop; asyncio's own takes all that wait.
            listening = [*self._server.sockets, *(self._second.sockets if self._second else ())]
            self._doors = [socket.socket(fileno=os.dup(each.fileno())) for each in listening]
            for door in self._doors:
                door.setblocking(False)
        RARE_COLLECTIONS.begin()
        self._sweep_later()

    async def _open_second(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self._second = await loop.create_server(
                lambda: ClientConnection(self, loop), "::1", self.port, backlog=_BACKLOG
            )
        except OSError as error:
            # Else this machine has no such address.
            self.lacks_localhost = error.errno in (errno.EADDRINUSE, errno.EACCES)
        if self.lacks_localhost:
            _log.warning("%s", LACKS_LOCALHOST.format(port=self.port))

    async def close(self, drain_seconds: float | None = None) -> None:
        """Stop: idle clients at once, running answers within `drain_seconds`, the rest is reset."""
        if self._server is None:
            return
        servers = [each for each in (self._server, self._second) if each is not None]
        self._server = self._second = None
        doors, self._doors = self._doors, []
        for door in doors:
            door.close()
        RARE_COLLECTIONS.end()
        self.draining = True
        for server in servers:
            server.close()
        for connection in list(self._open):
            if connection.idle:
                connection.close()
        await self._wait_for_all(self.limits.drain if drain_seconds is None else drain_seconds)
        self.cut()
        await self._wait_for_all(_LAST_TURNS_SECONDS)
        if self._sweeping is not None:
            self._sweeping.cancel()
        for server in servers:
            await server.wait_closed()
        if self._users is not None:
            self._users.close()

    def cut(self) -> None:
        """Reset whatever still runs: a `close` that waits for it returns."""
        for connection in list(self._open):
            connection.hang_up()

    def arrived(self, connection: ClientConnection) -> RequestRefusal | None:
        """Register a connection; why it is refused, if it is."""
        self._open.add(connection)
        self._all_left.clear()
        if self._doors and not self._is_letting_in:
            self._is_letting_in = True
            self._loop.call_soon(self._let_in)
        peer = Peer.UNKNOWN
        if not self.is_shared():
            peer_address: object = connection.transport.get_extra_info("peername")
            peer = self._peer_users().peer_of(connection.local_address, peer_address)
        if peer is Peer.OTHER:
            self._strangers.add(connection)
            if len(self._strangers) <= _STRANGERS_AT_ONCE:
                return _OTHER_USER
        over = self.connections - self.limits.connections
        if peer in (Peer.OTHER, Peer.GONE) or over > _REFUSED_AT_ONCE:
            # Nobody would receive an answer, or too many would; what was sent is not read.
            connection.hang_up()
            return None
        if peer is Peer.UNCHECKED:
            return _UNCHECKED_USER
        return _TOO_MANY if over > 0 else None

    def _let_in(self) -> None:
        """Take who else waits at the port; whoever comes in so has the next ones taken."""
        self._is_letting_in = False
        for door in self._doors:
            for _ in range(_MOST_LET_IN):
                try:
                    client, _ = door.accept()
                except OSError:
                    break  # nobody waits, or what it lacks is reported by the loop's own accept
                entering = self._loop.create_task(self._enter(client))
                self._entering.add(entering)
                entering.add_done_callback(self._entering.discard)

    async def _enter(self, client: socket.socket) -> None:
        client.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(
                lambda: ClientConnection(self, self._loop), client
            )
        except OSError:
            client.close()  # it has gone already

    def _peer_users(self) -> PeerUsers:
        """Created with the first client at the latest."""
        if self._users is None:
            # `open` calls this before it returns, so there is a listener at this moment.
            address = None if self._server is None else self._server.sockets[0].getsockname()
            self._users = PeerUsers(address)
        return self._users

    def flush_soon(self, connection: ClientConnection) -> None:
        """Let a connection write at the end of this turn of the loop."""
        if not self._to_flush:
            self._loop.call_soon(self._flush)
        self._to_flush.append(connection)

    def holds(self, more: int) -> None:
        """Incomplete requests hold so many bytes more, or fewer."""
        self._unfinished += more
        if more > 0 and self._unfinished > self.limits.unfinished_bodies:
            self._make_room()

    def _make_room(self) -> None:
        """Drop those that have held most memory for longest, until a part of it is free.

        Bytes times seconds: a large body that comes fast weighs as little as a small one that comes
        slowly, and whoever stalls weighs more with every second.
        """
        now = self._loop.time()
        holding = [one for one in self._open if one.unfinished]
        holding.sort(key=lambda one: one.unfinished * (now - one.began + _FIRST_SECONDS))
        enough = self.limits.unfinished_bodies - self.limits.unfinished_bodies // _FREED_SHARE
        while holding and self._unfinished > enough:
            holding.pop().give_way()

    def left(self, connection: ClientConnection) -> None:
        """Forget a connection."""
        self._open.discard(connection)
        self._strangers.discard(connection)
        if not self._open:
            self._all_left.set()

    def _flush(self) -> None:
        waiting, self._to_flush = self._to_flush, []
        try:
            while waiting:
                waiting.pop().flush()
        finally:
            # An owner that fails in `on_pause` must not silence the others.
            for connection in waiting:
                self.flush_soon(connection)

    async def _wait_for_all(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._all_left.wait(), seconds)
        except TimeoutError:
            return  # those that are left are the caller's business

    def _sweep_later(self) -> None:
        limits = self.limits
        shortest = min(limits.header_time, limits.body_pause, limits.idle)
        pause = min(_LONGEST_SWEEP, shortest)
        self._sweep_due = self._loop.time() + pause
        self._sweeping = self._loop.call_later(pause, self._sweep)

    def _sweep(self) -> None:
        now = self._loop.time()
        late = now - self._sweep_due
        if late > _HELD_UP:
            # The process was stopped, or the machine slept on a system that counts that as time.
            for connection in self._open:
                connection.deadline += late
        self._sweep_later()
        for connection in [one for one in self._open if one.deadline <= now]:
            connection.overdue()
