"""The address of an upstream, and the way to it.

Rules: (1) an origin is validated completely when it is made: reading it later cannot fail; (2) no
address has a user name or password except the proxy's, and that one is never shown.
"""

from __future__ import annotations

import base64
import ipaddress
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from jackline.errors import BadArgumentError
from jackline.http1.headers import RequestHeads

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
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:  # a name, not a number
            return False

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


@dataclass(frozen=True, slots=True)
class Origin:
    """One place that requests are sent to.

    `url` may carry a path, which goes before every request's target. `proxy` is
    `http://[user:password@]host:port`. `ca_file` replaces the machine's own certificates.
    `connect_seconds` covers everything up to a usable connection: name, TCP, proxy, TLS.
    """

    url: str
    proxy: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    connect_seconds: float = 10.0
    idle_seconds: float = 60.0
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
