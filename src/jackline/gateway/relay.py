"""Carry connections of this user's programs to the user's gateway, which proves itself for each.

A program has an address for as long as it runs, and cannot ask who listens there. So it gets the
address of a relay, whose port does not change hands meanwhile (docs/decisions/080).

Rules: (1) the port is held from `with` to its end, and beyond a kill of this process by the guard,
until its programs are gone; (2) other users of this machine are cut off before a byte of theirs is
read; (3) nothing is sent to a gateway that has not proved itself on that very connection; while
there is none the client waits, at most `patience`, and is then told why; (4) bytes go on as they
come and as fast as the slower end takes them; none of them is looked at, saved or logged; (5) it
has a thread of its own, so that no flow's code holds up programs; (6) at the end nothing is open.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Self, cast

from jackline import event_loop
from jackline.batches.processes import OrphanGuard
from jackline.gateway.peer_users import Peer, PeerUsers
from jackline.upstream.origin import Dialler, own_gateway

_HOST = "127.0.0.1"
_CONNECTIONS = 512
_BACKLOG = 256
# As long as our own calls wait for a gateway (agents/gateway_model.py).
_PATIENCE = 120.0
_FIRST_WAIT = 0.1
_LONGEST_WAIT = 2.0
# How long a client may take to read why its call was not carried.
_FAREWELL = 2.0
_RESET_ON_CLOSE = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)


class Relay:
    """`with` listens at `url`; programs that are started with it are to be watched by `guard`."""

    def __init__(
        self, gateway_url: str, *, patience: float = _PATIENCE, connections: int = _CONNECTIONS
    ) -> None:
        self._dialler = Dialler(own_gateway(gateway_url))
        self._gateway_url = gateway_url
        self._patience = patience
        self._connections = connections
        self._open: set[_End] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="jackline-relay", daemon=True)
        self._started: Future[tuple[int, int]] = Future()
        self._users: PeerUsers | None = None
        self.url = ""
        self.guard = OrphanGuard()

    def __enter__(self) -> Self:
        self._thread.start()
        port, number = self._started.result()
        self.url = f"http://{_HOST}:{port}"
        self.guard = OrphanGuard(holds=(number,))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.guard.close()
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            event_loop.run(self._serve())
        except OSError as error:
            if self._started.done():
                raise
            self._started.set_exception(error)
        finally:
            self._started.cancel()  # nobody waits for what will not come

    async def _serve(self) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._closing = asyncio.Event()
        server = await loop.create_server(lambda: _Client(self), _HOST, 0, backlog=_BACKLOG)
        listener = server.sockets[0]
        users = self._users = PeerUsers(listener.getsockname())
        self._started.set_result((listener.getsockname()[1], listener.fileno()))
        try:
            await self._closing.wait()
        finally:
            server.close()
            for end in list(self._open):
                end.reset()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            users.close()

    # --- called by ends ---

    def admits(self, transport: asyncio.Transport) -> bool:
        """Whether a connection is this user's, and not one too many."""
        if self._users is None:
            return False  # no program knows the address yet
        local, remote = (transport.get_extra_info(name) for name in ("sockname", "peername"))
        whose = self._users.peer_of(local, remote)
        return whose in (Peer.OWN, Peer.UNKNOWN) and self._clients() < self._connections

    def _clients(self) -> int:
        return sum(isinstance(each, _Client) for each in self._open)

    def carry(self, client: _Client) -> None:
        """Connect a client with the gateway."""
        task = self._loop.create_task(self._connect(client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, client: _Client) -> None:
        until, wait = self._loop.time() + self._patience, _FIRST_WAIT
        while not client.is_gone:
            server = _End(self._open)
            try:
                await self._dialler.open(server)
            except OSError as error:
                if self._loop.time() + wait > until:
                    client.refuse(f"no gateway at {self._gateway_url}: {error}")
                    return
                await asyncio.sleep(wait)
                wait = min(2 * wait, _LONGEST_WAIT)
            else:
                client.join(server)
                return


class _End(asyncio.Protocol):
    """One end of a carried connection; what it receives goes to the `other`."""

    def __init__(self, open_ends: set[_End]) -> None:
        self._open_ends = open_ends
        self.transport: asyncio.Transport | None = None
        self.other: _End | None = None
        self.is_gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._open_ends.add(self)

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.read(False)

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.read(True)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_gone = True
        self.transport = None
        self._open_ends.discard(self)
        other, self.other = self.other, None
        if other is None:
            return
        other.other = None
        if exc is not None:
            other.reset()  # what broke off shall not look like an end
        elif other.transport is not None:
            other.transport.close()

    def read(self, goes_on: bool) -> None:
        """Go on reading, or not."""
        if self.transport is not None and not self.transport.is_closing():
            (self.transport.resume_reading if goes_on else self.transport.pause_reading)()

    def reset(self) -> None:
        """Break the connection, so that its peer sees that."""
        if self.transport is None:
            return
        wire = self.transport.get_extra_info("socket")
        if wire is not None and not self.transport.is_closing():
            with suppress(OSError):
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.transport.abort()


class _Client(_End):
    """A program's end; it is not read before the gateway's end is there."""

    def __init__(self, relay: Relay) -> None:
        super().__init__(relay._open)  # noqa: SLF001 -- of this module
        self._relay = relay
        # A loop may deliver once what it had read when it was told to pause.
        self._early: bytearray | None = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        wire = cast(asyncio.Transport, transport)
        if not self._relay.admits(wire):
            self.is_gone = True
            wire.abort()
            return
        super().connection_made(wire)
        wire.pause_reading()
        self._relay.carry(self)

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            super().data_received(data)
        elif self._early is not None:
            self._early += data

    def join(self, server: _End) -> None:
        """From now on both ends are carried."""
        if self.transport is None or server.transport is None:
            server.reset()
            self.reset()
            return
        self.other, server.other = server, self
        early, self._early = self._early, None
        self.read(True)
        if early:
            server.transport.write(early)

    def refuse(self, why: str) -> None:
        """Answer the call that waits here, and end the connection."""
        transport = self.transport
        if transport is None:
            return
        error = {"type": "api_error", "message": f"jackline: {why}"}
        body = json.dumps({"type": "error", "error": error}).encode()
        head = (
            "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n"
            f"connection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        # Closed with a request unread, it would be reset, and the answer lost.
        self._early = None
        self.read(True)
        transport.write(head.encode() + body)
        self._relay._loop.call_later(_FAREWELL, transport.close)  # noqa: SLF001 -- of this module
