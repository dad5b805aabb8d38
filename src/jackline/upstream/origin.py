"""The address of an upstream, and the way to it: name, TCP, proxy, TLS.

Rules: (1) an origin is validated completely when it is made: reading it later cannot fail; no
address has a user name or password except the proxy's, and that one is never shown; (2) opening a
connection takes at most the origin's `connect_seconds` in all; a failure or a cancellation leaves
no socket; (3) only HTTP/1.1 is offered; (4) the addresses of a name race (RFC 8305): families
alternate, each address has a short head start over the next, one connection is left or none, and if
all fail the error is that of the first; (5) this machine is never reached through a proxy; a
proxy's refusal is reported as such; (6) an origin's `check` ends before anything else is sent; (7)
the user's own gateway has to prove itself on each connection: whoever holds its port without the
installation key gets a random number, and that is all; a failed proof is an `UnprovenError`: to
whoever calls, the gateway is not there; bytes that come between the proof and its use end the
connection.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import TypeAlias, cast
from urllib.parse import SplitResult, unquote, urlsplit

from jackline.errors import BadArgumentError
from jackline.gateway_proof import Challenge, UnprovenError
from jackline.http1.headers import RequestHeads
from jackline.http1.responses import ResponseParser
from jackline.local_address import is_loopback
from jackline.private_files import installation_key
from jackline.upstream.interface import NameTimeoutError, ProxyRefusedError

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """A scheme, a host and a port, as a connection needs them."""

    scheme: str
    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether it is this machine, by name or number."""
        return is_loopback(self.host) or self.host.endswith(".localhost")

    @property
    def authority(self) -> str:
        """Host and port, always both."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def host_header(self) -> str:
        """Host, and the port where it is not the scheme's own."""
        if self.port == _DEFAULT_PORTS[self.scheme]:
            return self.authority.rpartition(":")[0]
        return self.authority


ConnectionCheck: TypeAlias = Callable[[asyncio.Transport], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Origin:
    """One place that requests are sent to.

    `url` may carry a path, which goes before every request's target. `proxy` is
    `http://[user:password@]host:port`. `ca_file` replaces the machine's own certificates.
    `connect_seconds` covers everything up to a usable connection: name, TCP, check, proxy, TLS.
    `check` raises an OSError for a connection that must not be used.
    """

    url: str
    proxy: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    connect_seconds: float = 10.0
    idle_seconds: float = 60.0
    check: ConnectionCheck | None = field(default=None, repr=False)
    address: Address = field(init=False, repr=False)
    path: str = field(init=False, repr=False)
    proxy_address: Address | None = field(init=False, repr=False)
    proxy_credentials: str | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        parts = _split(self.url, "upstream", ("http", "https"))
        if parts.username is not None or parts.password is not None:
            raise BadArgumentError(
                "The address of an upstream may not hold a user name or password.",
                hint="Write it as https://host/path and send credentials as headers.",
            )
        object.__setattr__(self, "address", _address(parts, "upstream"))
        path = parts.path.rstrip("/")
        if parts.query or parts.fragment or not path.isascii() or any(c <= " " for c in path):
            raise BadArgumentError(
                "The address of an upstream may hold a path, but no query, fragment or blank.",
                hint="Write it as https://host/path.",
            )
        object.__setattr__(self, "path", path)
        proxy, credentials = None, None
        if self.proxy is not None and not self.address.is_loopback:
            parts = _split(self.proxy, "proxy", ("http",))
            proxy = _address(parts, "proxy")
            if parts.username is not None:
                pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
                credentials = "Basic " + base64.b64encode(pair.encode()).decode("ascii")
        object.__setattr__(self, "proxy_address", proxy)
        object.__setattr__(self, "proxy_credentials", credentials)

    def request_heads(self) -> RequestHeads:
        """Renders the heads of requests to this origin; a proxy gets them in absolute form."""
        prefix, lines = self.path, f"Host: {self.address.host_header}\r\n"
        if self.proxy_address is not None and self.address.scheme == "http":
            prefix = f"http://{self.address.host_header}{self.path}"
            if self.proxy_credentials is not None:
                lines += f"Proxy-Authorization: {self.proxy_credentials}\r\n"
        return RequestHeads(prefix, lines)


def _split(url: str, what: str, schemes: tuple[str, ...]) -> SplitResult:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise _unusable(what, schemes) from error
    if parts.scheme not in schemes or not parts.hostname:
        raise _unusable(what, schemes)
    return parts


def _unusable(what: str, schemes: tuple[str, ...]) -> BadArgumentError:
    # The address itself is not repeated: it may hold a password.
    forms = " or ".join(f"{scheme}://host" for scheme in schemes)
    return BadArgumentError(
        f"The address of the {what} cannot be used.", hint=f"Write it as {forms}."
    )


def _address(parts: SplitResult, what: str) -> Address:
    try:
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
        host = parts.hostname or ""
        host = host.encode("idna").decode("ascii")
    except ValueError as error:
        raise _unusable(what, (parts.scheme,)) from error
    if any(mark in host for mark in " \t\r\n\0"):
        raise _unusable(what, (parts.scheme,))
    return Address(parts.scheme, host, port)


_HEAD_BYTES = 64 * 1024


def proxy_from_environment(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy for `url` by HTTPS_PROXY, HTTP_PROXY and NO_PROXY, in either case of letters."""
    address = Origin(url).address
    exempt = _variable(environ, "no_proxy").lower().split(",")
    if address.is_loopback or any(_covers(entry.strip(), address) for entry in exempt):
        return None
    proxy = _variable(environ, f"{address.scheme}_proxy") or _variable(environ, "all_proxy")
    if not proxy:
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(environ: Mapping[str, str], name: str) -> str:
    return (environ.get(name) or environ.get(name.upper()) or "").strip()


def _covers(entry: str, address: Address) -> bool:
    if not entry:
        return False
    if entry == "*":
        return True
    with suppress(ValueError):  # most entries are names
        network = ipaddress.ip_network(entry, strict=False)
        try:
            return ipaddress.ip_address(address.host) in network
        except ValueError:  # the host is a name
            return False
    host, colon, port = entry.rpartition(":")
    if colon and port.isdigit() and "]" not in port:
        if int(port) != address.port:
            return False
        entry = host
    entry = entry.strip("[]").removeprefix("*").lstrip(".")
    return address.host == entry or address.host.endswith(f".{entry}")


class ProxyTunnel(asyncio.Protocol):
    """Requests a tunnel to the origin from the proxy; `opened` has its answer."""

    def __init__(self, origin: Origin) -> None:
        authority = origin.address.authority
        lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
        if origin.proxy_credentials is not None:
            lines.append(f"Proxy-Authorization: {origin.proxy_credentials}")
        self._request = "\r\n".join([*lines, "", ""]).encode("ascii")
        self._parser = ResponseParser()
        self._parser.expect(has_no_body=True)
        self._bytes = 0
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # The task that waits for it may be gone by then; that is no error to report.
        self.opened.add_done_callback(lambda done: done.cancelled() or done.exception())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        """Parse the proxy's answer: any success opens the tunnel."""
        if self.opened.done():
            return
        self._bytes += len(data)
        self._parser.feed(data)
        status, fault = self._parser.status, self._parser.fault
        if fault is not None:
            self._fail(str(fault))
        elif 200 <= status < 300:
            self.opened.set_result(None)
        elif status:
            self._fail(f"status {status}" + (", credentials wanted" if status == 407 else ""))
        elif self._bytes > _HEAD_BYTES:
            self._fail("its answer has no end")

    def connection_lost(self, exc: Exception | None) -> None:
        """The proxy has closed the connection."""
        self._fail(f"it closed the connection{f' ({exc})' if exc else ''}")

    def _fail(self, why: str) -> None:
        if not self.opened.done():
            self.opened.set_exception(ProxyRefusedError(why))


HEAD_START_SECONDS = 0.25
# A stream may be silent for minutes: middle boxes forget connections that are, and a peer that is
# gone must be distinguished from one that thinks. So the other side's system is probed after half a
# minute of silence, every ten seconds, and after a minute without its answer the connection ends.
_GONE_AFTER = 60
_TCP_OPTIONS = (
    ("TCP_KEEPIDLE", 30),
    ("TCP_KEEPALIVE", 30),  # the same, on macOS
    ("TCP_KEEPINTVL", 10),
    ("TCP_KEEPCNT", 3),
    ("TCP_USER_TIMEOUT", 1000 * _GONE_AFTER),
)

# Family, host in numbers, port.
SocketAddress: TypeAlias = tuple[int, str, int]


async def resolved(host: str, port: int) -> list[SocketAddress]:
    """The places of a host in the order in which they are tried, or an OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return interleave_families(
        (family, str(where[0]), int(where[1])) for family, _, _, _, where in found
    )


def interleave_families(places: Iterable[SocketAddress]) -> list[SocketAddress]:
    """The places with their families taking turns, beginning with the first one's."""
    families: dict[int, list[SocketAddress]] = {}
    for place in places:
        families.setdefault(place[0], []).append(place)
    turns = chain.from_iterable(zip_longest(*families.values()))
    return [place for place in turns if place is not None]


async def first_connected(places: list[SocketAddress]) -> asyncio.Transport:
    """A transport connected to one of the places; those that lose the race are closed."""
    if len(places) == 1:
        return await _connect(places[0])
    started: list[asyncio.Task[asyncio.Transport]] = []
    winner: asyncio.Transport | None = None
    try:
        for place in places:
            started.append(asyncio.create_task(_connect(place)))
            winner = await _first(started, HEAD_START_SECONDS)
            if winner is not None:
                return winner
        winner = await _first(started, None)
    finally:
        await _clear_away(started, winner)
    if winner is not None:
        return winner
    raise next(error for task in started if (error := task.exception()) is not None)


async def _first(
    started: list[asyncio.Task[asyncio.Transport]], seconds: float | None
) -> asyncio.Transport | None:
    """The first success within the time, or None once it is over or all have failed."""
    loop = asyncio.get_running_loop()
    end = None if seconds is None else loop.time() + seconds
    while running := [task for task in started if not task.done()]:
        left = None if end is None else max(0.0, end - loop.time())
        await asyncio.wait(running, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        for task in started:
            if task.done() and task.exception() is None:
                return task.result()
        if end is not None and (loop.time() >= end or started[-1].done()):
            return None
    return None


async def _clear_away(
    started: list[asyncio.Task[asyncio.Transport]], winner: asyncio.Transport | None
) -> None:
    def drop_late_winner(task: asyncio.Task[asyncio.Transport]) -> None:
        # `exception()` also marks the error as seen for the loop.
        if not task.cancelled() and task.exception() is None and task.result() is not winner:
            task.result().abort()

    for task in started:
        task.cancel()
        task.add_done_callback(drop_late_winner)
    try:
        await asyncio.wait(started)
    except asyncio.CancelledError:
        if winner is not None:
            winner.abort()
        raise


async def _connect(place: SocketAddress) -> asyncio.Transport:
    family, host, port = place
    # No socket of ours is passed to the loop: uvloop, cancelled at the wrong moment, would close
    # it and leave us believing that we own its number.
    transport, _ = await asyncio.get_running_loop().create_connection(
        asyncio.Protocol, host, port, family=family
    )
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _TCP_OPTIONS:
        option: int | None = getattr(socket, name, None)
        if option is not None:  # not every system has every one
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    return transport


class Dialler:
    """Opens connections to one origin."""

    __slots__ = ("_context", "_origin")

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._context: ssl.SSLContext | None = None

    async def open(self, protocol: asyncio.Protocol) -> None:
        """Connect the protocol; an OSError says why it could not be."""
        origin = self._origin
        where = origin.proxy_address or origin.address
        places: list[SocketAddress] | None = None
        try:
            async with asyncio.timeout(origin.connect_seconds):
                places = await resolved(where.host, where.port)
                await self._open(protocol, places)
        except TimeoutError:
            if places is None:
                raise NameTimeoutError(where.host, origin.connect_seconds) from None
            # Not chained: below it lies a cancellation, which would be taken for the client's.
            raise TimeoutError(
                f"connect timeout: no connection to {where.authority}"
                f" within {origin.connect_seconds:g} s"
            ) from None

    async def _open(self, protocol: asyncio.Protocol, places: list[SocketAddress]) -> None:
        origin = self._origin
        context = None
        if origin.address.scheme == "https":
            if self._context is None:
                own = origin.ca_file or os.environ.get("SSL_CERT_FILE") or None
                self._context = ssl.create_default_context(cafile=own)
                self._context.set_alpn_protocols(["http/1.1"])
            context = self._context
        transport = await first_connected(places)
        is_handed_over = False
        try:
            if origin.check is not None:
                await origin.check(transport)
            if context is not None and origin.proxy_address is not None:
                tunnel = ProxyTunnel(origin)
                transport.set_protocol(tunnel)
                tunnel.connection_made(transport)
                await tunnel.opened
            secured: asyncio.Transport | None = transport
            if context is not None:
                secured = await asyncio.get_running_loop().start_tls(
                    transport, protocol, context, server_hostname=origin.address.host
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


def own_gateway(url: str) -> Origin:
    """The origin of the gateway at this URL, which has to prove itself on every connection."""
    authority = Origin(url).address.authority

    async def check(transport: asyncio.Transport) -> None:
        try:
            await _prove(transport, authority)
        except UnprovenError as error:
            words = f"the program at {authority} did not prove to be your gateway: {error}"
            raise UnprovenError(words, error.status) from error

    return Origin(url, check=check)


async def _prove(transport: asyncio.Transport, authority: str) -> None:
    try:
        key = installation_key(make=False)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise UnprovenError(f"there is no installation key to prove it with: {why}") from error
    answer = _ProofAnswer(Challenge(authority, key), transport)
    transport.set_protocol(answer)
    answer.ask()
    await answer.proved


class _ProofAnswer(asyncio.Protocol):
    """Sends the question, and judges what comes back."""

    def __init__(self, challenge: Challenge, transport: asyncio.Transport) -> None:
        self._challenge = challenge
        self._transport = transport
        self.proved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # The task that waits for it may be gone by then; that is no error to report.
        self.proved.add_done_callback(lambda done: done.cancelled() or done.exception())

    def ask(self) -> None:
        self._transport.write(self._challenge.question)

    def data_received(self, data: bytes) -> None:
        if self.proved.done():
            self._transport.abort()
            return
        try:
            if self._challenge.is_met(data, self._transport.get_extra_info("peername")):
                self.proved.set_result(None)
        except UnprovenError as error:
            self.proved.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.proved.done():
            why = "" if exc is None else f" ({exc})"
            self.proved.set_exception(UnprovenError(f"it hung up when asked to prove itself{why}"))
