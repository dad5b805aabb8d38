"""Decide who may send requests at all, and who needs the token.

Rules: (1) every request must name this gateway as its Host, so that a page whose name was rebound
to 127.0.0.1 gets nothing; (2) a request that a browser sends for another site's page is refused, on
every path; (3) the port in Host is not checked: a browser names the one it connected to, and behind
a tunnel or a container that is another than ours; (4) tokens are compared in constant time, and a
refusal repeats at most a valid host name of the request.
"""

from __future__ import annotations

import hmac
import re
from ipaddress import ip_address

from jackline.gateway.settings import ListenSettings
from jackline.http1.headers import Headers
from jackline.local_address import EVERYWHERE, HOSTS

TOKEN_HEADER = b"x-jackline-token"

_AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]{1,64})\]|([0-9a-z._-]{1,253}))(?::([0-9]{1,5}))?\Z")
# `none` is what a browser says when its user typed the address or opened a bookmark.
_OWN_SITES = frozenset((b"same-origin", b"none"))
_OTHER_SITE = "Requests from pages of other sites are refused."
_OWN_PAGES_ONLY = "Browsers may read the gateway's own pages only, and nothing of an upstream."
_HTTP_PORT = 80
_READS = (b"GET", b"HEAD")
_BROWSER = b"mozilla/"
_FORMS = frozenset((b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data"))


def foreign(headers: Headers, listen: ListenSettings) -> str | None:
    """Why a request must be refused because of where it is addressed to or comes from, or None."""
    hosts = _values(headers, b"host")
    authority = _authority(hosts[0]) if len(hosts) == 1 else None
    if authority is None:
        return "The request must name one valid Host."
    host = authority[0]
    own_host = listen.host.lower().strip("[]")
    own_names = {own_host, *(name.lower().strip("[]") for name in listen.names)}
    # Where it listens on every address, any of them may be named, but no name: only names can be
    # bound anew by a stranger.
    is_any_address = own_host in EVERYWHERE and _is_address(host)
    if host not in HOSTS and host not in own_names and not is_any_address:
        return (
            f"{host} is not a name of this gateway, so requests for it are refused: a web page"
            " could have sent them. Use 127.0.0.1 in the client's base URL; or, if"
            f' clients need this name, write names = ["{host}"] under [listen] in your own'
            f" jackline.toml (or set JACKLINE_LISTEN_NAMES={host})."
        )
    for origin in _values(headers, b"origin"):
        if not origin.startswith(b"http://"):
            return _OTHER_SITE
        if _with_port(_authority(origin[7:])) != _with_port(authority):
            return _OTHER_SITE
    if any(site not in _OWN_SITES for site in _values(headers, b"sec-fetch-site")):
        return _OTHER_SITE
    return None


def reads_as_browser(method: bytes, headers: Headers) -> str | None:
    """Why a request for an upstream must be refused as a browser's, though no site is named.

    Browsers do not say for which site they read where an address is a plain name, and old ones
    never do; but all of them name themselves, and no client of an API reads as a browser. Nor does
    one open a tab, which a site can send anywhere without being named.
    """
    if b"navigate" in _values(headers, b"sec-fetch-mode"):
        return _OWN_PAGES_ONLY
    if method not in _READS or _values(headers, b"sec-fetch-site"):
        return None
    if any(agent.startswith(_BROWSER) for agent in _values(headers, b"user-agent")):
        return _OWN_PAGES_ONLY
    return None


def sends_form(headers: Headers) -> str | None:
    """Why a model call must be refused because a page's form could have sent it, or None.

    A form needs nobody's leave to be sent to another site, and old browsers name no site with it;
    but all of them name themselves. Scripts (curl, urllib) call JSON a form all the time.
    """
    if not any(agent.startswith(_BROWSER) for agent in _values(headers, b"user-agent")):
        return None
    kinds = [value.partition(b";")[0].strip() for value in _values(headers, b"content-type")]
    if not any(kinds) or any(kind in _FORMS for kind in kinds):
        return "A browser's model call must have the header content-type: application/json."
    return None


def token_missing(headers: Headers, listen: ListenSettings) -> str | None:
    """Why a request must be refused for want of the token, or None."""
    if listen.token is None:
        return None
    tokens = _values(headers, TOKEN_HEADER, lowered=False)
    if len(tokens) == 1 and hmac.compare_digest(tokens[0], listen.token.encode()):
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


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
