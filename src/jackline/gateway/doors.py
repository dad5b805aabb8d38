"""Decide who may come in by the control paths, and who needs the token.

Laws: (1) a control request must name this machine as its Host, so that a page whose name was bound
anew to 127.0.0.1 gets nothing; (2) a request that a browser sends for another site's page is
refused; (3) tokens are compared in constant time, and no reason that is given holds a header.
Not here: which paths are control paths (routing).
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence
from ipaddress import ip_address
from typing import TypeAlias

from jackline.gateway.settings import ListenSettings

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

TOKEN_HEADER = b"x-jackline-token"

_LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))
_EVERYWHERE = frozenset(("0.0.0.0", "::"))  # noqa: S104 -- compared with, not bound
_AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([0-9a-z._-]+))(?::([0-9]{1,5}))?\Z")
# `none` is what a browser says when its user typed the address or opened a bookmark.
_OWN_SITES = frozenset((b"same-origin", b"none"))
_HTTP_PORT = 80


def foreign(headers: Headers, listen: ListenSettings, port: int | None = None) -> str | None:
    """Why a control request must be refused, or None.

    `port` is the real one where the settings say 0; with neither, any port may be named.
    """
    hosts = _values(headers, b"host")
    authority = _authority(hosts[0]) if len(hosts) == 1 else None
    if authority is None:
        return "The request must name one valid Host."
    own_port = port or listen.port
    if not _is_own(authority, listen, own_port):
        return (
            "The Host of the request is not this gateway. Use the address that it listens on,"
            " or 127.0.0.1, with its port."
        )
    for origin in _values(headers, b"origin"):
        if not origin.startswith(b"http://"):
            return "Requests from pages of other sites are refused."
        if _with_port(_authority(origin[7:])) != _with_port(authority):
            return "Requests from pages of other sites are refused."
    if any(site not in _OWN_SITES for site in _values(headers, b"sec-fetch-site")):
        return "Requests from pages of other sites are refused."
    return None


def token_missing(headers: Headers, listen: ListenSettings) -> str | None:
    """Why a request must be refused for want of the token, or None."""
    if listen.token is None:
        return None
    given = _values(headers, TOKEN_HEADER, lowered=False)
    if len(given) == 1 and hmac.compare_digest(given[0], listen.token.encode()):
        return None
    return (
        "This gateway needs its token in the header x-jackline-token. Add it to the client, for"
        " example with ANTHROPIC_CUSTOM_HEADERS."
    )


def _values(headers: Headers, lowercase_name: bytes, *, lowered: bool = True) -> list[bytes]:
    found = [value.strip(b" \t") for name, value in headers if name.lower() == lowercase_name]
    return [value.lower() for value in found] if lowered else found


def _authority(value: bytes) -> tuple[str, int | None] | None:
    parts = _AUTHORITY.match(value.decode("latin-1"))
    if parts is None:
        return None
    bracketed, plain, port = parts.groups()
    return bracketed or plain, None if port is None else int(port)


def _with_port(authority: tuple[str, int | None] | None) -> tuple[str, int] | None:
    return None if authority is None else (authority[0], authority[1] or _HTTP_PORT)


def _is_own(authority: tuple[str, int | None], listen: ListenSettings, own_port: int) -> bool:
    host, port = authority
    if port is not None and own_port and port != own_port:
        return False
    own_host = listen.host.lower().strip("[]")
    if host in _LOOPBACK or host == own_host:
        return True
    # Where it listens on every address, any of them may be named, but no name: only names can be
    # bound anew by a stranger.
    return own_host in _EVERYWHERE and _is_address(host)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
