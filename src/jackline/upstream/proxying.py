"""Reach origins through HTTP proxies, and find the proxy that the environment names.

Laws: (1) this machine is never reached through a proxy; (2) a proxy's refusal is told as such, and
its credentials never.
Not here: absolute-form requests (head.py).
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Mapping
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from jackline.upstream.breaks import ProxyRefusedError
from jackline.upstream.origin import Address, Origin

_HEAD_BYTES = 64 * 1024


def proxy_from_environment(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy for `url` by HTTPS_PROXY, HTTP_PROXY and NO_PROXY, in either case of letters."""
    address = Origin(url).address
    if address.is_loopback or _is_exempt(address, _variable(environ, "no_proxy")):
        return None
    proxy = _variable(environ, f"{address.scheme}_proxy") or _variable(environ, "all_proxy")
    if not proxy:
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(environ: Mapping[str, str], name: str) -> str:
    return (environ.get(name) or environ.get(name.upper()) or "").strip()


def _is_exempt(address: Address, no_proxy: str) -> bool:
    return any(_covers(entry.strip().lower(), address) for entry in no_proxy.split(","))


def _covers(entry: str, address: Address) -> bool:
    if not entry:
        return False
    if entry == "*":
        return True
    if _is_network(entry):
        return _holds(entry, address.host)
    host, colon, port = entry.rpartition(":")
    if colon and port.isdigit() and "]" not in port:
        if int(port) != address.port:
            return False
        entry = host
    entry = entry.strip("[]").removeprefix("*").lstrip(".")
    return address.host == entry or address.host.endswith(f".{entry}")


def _is_network(entry: str) -> bool:
    try:
        ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
    return True


def _holds(network: str, host: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:  # the host is a name
        return False


class Tunnel(asyncio.Protocol):
    """Asks the proxy for a way to the origin; `opened` has its word."""

    def __init__(self, origin: Origin) -> None:
        self._request = _connect_request(origin)
        self._parser = HttpResponseParser(self)
        self._bytes = 0
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Whoever was to wait for it may be gone by then; that is no error to report.
        self.opened.add_done_callback(lambda word: word.cancelled() or word.exception())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        """Read the proxy's answer."""
        self._bytes += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            pass  # what an open tunnel looks like to some versions of the parser
        except HttpParserError as error:
            self._fail(f"its answer is not proper HTTP ({error})")
        if self._bytes > _HEAD_BYTES:
            self._fail("its answer has no end")

    def on_headers_complete(self) -> None:
        """Know the proxy's word: any success opens the way."""
        status = self._parser.get_status_code()
        if status < 200 or self.opened.done():
            return
        if status < 300:
            self.opened.set_result(None)
        else:
            self._fail(f"status {status}" + (", credentials wanted" if status == 407 else ""))

    def connection_lost(self, exc: Exception | None) -> None:
        """Without a word until now, this is one."""
        self._fail(f"it closed the connection{f' ({exc})' if exc else ''}")

    def _fail(self, why: str) -> None:
        if not self.opened.done():
            self.opened.set_exception(ProxyRefusedError(why))


def _connect_request(origin: Origin) -> bytes:
    authority = origin.address.authority
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    if origin.proxy_credentials is not None:
        lines.append(f"Proxy-Authorization: {origin.proxy_credentials}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")
