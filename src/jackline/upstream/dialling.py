"""Open a connection to an origin: name, TCP, proxy, TLS.

Laws: (1) all of it together takes at most the origin's `connect_seconds`; (2) a failure or a
cancellation leaves no socket; (3) only HTTP/1.1 is offered.
Not here: when to open one (pool.py).
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable

from jackline.upstream.origin import Origin
from jackline.upstream.proxying import Tunnel
from jackline.upstream.racing import connected_socket


class Dialler:
    """Opens connections to one origin."""

    __slots__ = ("_context", "_origin")

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._context: ssl.SSLContext | None = None

    async def open(self, make: Callable[[], asyncio.Protocol]) -> None:
        """Connect a protocol made by `make`; an OSError says why it could not be."""
        origin = self._origin
        try:
            async with asyncio.timeout(origin.connect_seconds):
                await self._open(make)
        except TimeoutError:
            where = origin.proxy_address or origin.address
            # Not chained: below it lies a cancellation, which would be taken for the client's.
            raise TimeoutError(
                f"connect timeout: no connection to {where.authority}"
                f" within {origin.connect_seconds:g} s"
            ) from None

    async def _open(self, make: Callable[[], asyncio.Protocol]) -> None:
        origin = self._origin
        to = origin.proxy_address or origin.address
        context = self._tls() if origin.address.scheme == "https" else None
        sock = await connected_socket(to.host, to.port)
        if context is None:
            await attached(make, sock)
            return
        tunnel = None if origin.proxy_address is None else Tunnel(origin)
        transport = await attached(lambda: tunnel or asyncio.Protocol(), sock)
        is_secured = False
        try:
            if tunnel is not None:
                await tunnel.opened
            await self._secure(transport, make(), context)
            is_secured = True
        finally:
            if not is_secured:
                transport.abort()

    async def _secure(
        self, transport: asyncio.Transport, protocol: asyncio.Protocol, context: ssl.SSLContext
    ) -> None:
        secured = await asyncio.get_running_loop().start_tls(
            transport, protocol, context, server_hostname=self._origin.address.host
        )
        if secured is None:
            raise ConnectionResetError("connection reset during the TLS handshake")
        protocol.connection_made(secured)

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            own = self._origin.ca_file or os.environ.get("SSL_CERT_FILE") or None
            self._context = ssl.create_default_context(cafile=own)
            self._context.set_alpn_protocols(["http/1.1"])
        return self._context


async def attached(make: Callable[[], asyncio.Protocol], sock: socket.socket) -> asyncio.Transport:
    """A transport on the connected socket.

    It takes two turns of the loop, and is not to be cancelled between them: uvloop would leave
    the socket in two hands, and the protocol without the news of its end.
    """
    loop = asyncio.get_running_loop()
    attaching = loop.create_task(loop.create_connection(make, sock=sock))
    cancelled: asyncio.CancelledError | None = None
    while not attaching.done():
        try:
            await asyncio.wait({attaching})
        except asyncio.CancelledError as error:
            cancelled = error
    transport, _ = attaching.result()
    if cancelled is not None:
        transport.abort()
        raise cancelled
    return transport
