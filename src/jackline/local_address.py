"""Addresses of this machine: which they are, and how a gateway's own is written and read.

Rules: (1) only this module says what loopback is; (2) an address in `gateway.json` is read in the
one way in which a gateway writes it; (3) an address that means "every one" is shown as loopback,
since no client can connect to the other; (4) nothing is imported: hooks load this module at every
tool call.
"""

from __future__ import annotations

HOSTS = ("127.0.0.1", "localhost", "::1")
"""As clients write loopback."""
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104 -- compared with
"""What a listener on every address is bound to: where clients on this machine find it."""
_HEX = frozenset("0123456789abcdefABCDEF:.")
_HOST_SIGNS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")


def is_loopback(host: str) -> bool:
    """Whether this names nothing but this machine, in the plain way of writing it."""
    if host in ("localhost", "::1", "[::1]"):
        return True
    parts = host.split(".")
    return (
        len(parts) == 4
        and parts[0] == "127"
        and all(part.isascii() and part.isdigit() and len(part) <= 3 for part in parts)
        and all(str(int(part)) == part and int(part) < 256 for part in parts)
    )


def local_url(host: str, port: int) -> str:
    """The base URL at which clients on this machine reach a listener."""
    return f"http://{authority_of(EVERYWHERE.get(host, host), port)}"


def authority_of(host: str, port: int) -> str:
    """The value of the Host header."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_and_port(url: str) -> tuple[str, int]:
    """Where a gateway's own URL leads to; ValueError unless it is written as gateways write it."""
    start, mark, place = url.partition("http://")
    if start or not mark:
        raise ValueError("not an address of a gateway")
    if place.startswith("["):
        host, mark, port = place[1:].partition("]:")
        fits = ":" in host and _HEX.issuperset(host)
    else:
        host, mark, port = place.partition(":")
        fits = _HOST_SIGNS.issuperset(host)
    if not mark or not host or not fits:
        raise ValueError("not an address of a gateway")
    if not (port.isascii() and port.isdigit()) or len(port) > 5 or port.startswith("0"):
        raise ValueError("not a port")
    number = int(port)
    if number > 65_535:
        raise ValueError("not a port")
    return host, number
