"""Open a connection to an origin: name, TCP, proxy, TLS.

Laws: (1) all of it together takes at most the origin's `connect_seconds`; (2) a failure or a
cancellation leaves no socket; (3) only HTTP/1.1 is offered.
Not here: when to open one (pool.py).
"""

from __future__ import annotations

import asyncio
import os
import ssl

from jackline.upstream.origin import Origin
from jackline.upstream.proxying import Tunnel
from jackline.upstream.racing import connected_transport


class Dialler:
    """Opens connections to one origin."""

    __slots__ = ("_context", "_origin")

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._context: ssl.SSLContext | None = None

    async def open(self, protocol: asyncio.Protocol) -> None:
        """Connect the protocol; an OSError says why it could not be."""
        origin = self._origin
        try:
            async with asyncio.timeout(origin.connect_seconds):
                await self._open(protocol)
        except TimeoutError:
            where = origin.proxy_address or origin.address
            # Not chained: below it lies a cancellation, which would be taken for the client's.
            raise TimeoutError(
                f"connect timeout: no connection to {where.authority}"
                f" within {origin.connect_seconds:g} s"
            ) from None

    async def _open(self, protocol: asyncio.Protocol) -> None:
        origin = self._origin
        to = origin.proxy_address or origin.address
        context = self._tls() if origin.address.scheme == "https" else None
        transport = await connected_transport(to.host, to.port)
        is_handed_over = False
        try:
            if context is not None and origin.proxy_address is not None:
                await self._tunnel(transport)
            secured = (
                transport if context is None else await self._secured(transport, context, protocol)
            )
            if secured is None or secured.is_closing():
                raise ConnectionResetError("connection reset before anything was sent")
            if context is None:
                secured.set_protocol(protocol)
            protocol.connection_made(secured)
            is_handed_over = True
        finally:
            if not is_handed_over:
                transport.abort()

    async def _tunnel(self, transport: asyncio.Transport) -> None:
        tunnel = Tunnel(self._origin)
        transport.set_protocol(tunnel)
        tunnel.connection_made(transport)
        await tunnel.opened

    async def _secured(
        self, transport: asyncio.Transport, context: ssl.SSLContext, protocol: asyncio.Protocol
    ) -> asyncio.Transport | None:
        return await asyncio.get_running_loop().start_tls(
            transport, protocol, context, server_hostname=self._origin.address.host
        )

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            own = self._origin.ca_file or os.environ.get("SSL_CERT_FILE") or None
            self._context = ssl.create_default_context(cafile=own)
            self._context.set_alpn_protocols(["http/1.1"])
        return self._context
