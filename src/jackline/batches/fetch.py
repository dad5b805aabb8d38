"""The tool `fetch`: get a page from an allowed address as text.

Rules: (1) nothing is fetched unless its address fits an allowed pattern, and no redirect leads out
of that; (2) addresses of this machine and its network are reached only when allowed by name; the
connection itself is judged, not an earlier name lookup; behind a proxy, which connects by itself,
it is what the name resolves to here; (3) no credentials are sent; (4) size and time are bounded,
and how many are fetched at once by all batches.
Not here: models (agents/gateway_model.py), the text of a page (page_text.py).
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from email.message import Message
from fnmatch import fnmatchcase
from typing import IO, Any, Protocol, TypeAlias
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from pydantic import Field

from jackline.batches.arguments import Arguments, checked, schema_of
from jackline.batches.page_text import page_text
from jackline.batches.policy import has_dot_segments
from jackline.batches.threads import SharedPlaces, in_own_thread, places_in_all
from jackline.batches.tool import (
    OUTPUT_CHARACTERS,
    ClippedOutput,
    JsonObject,
    ToolContext,
    ToolFailedError,
    ToolOutput,
)
from jackline.clock import SystemClock
from jackline.failures.wording import is_html

AT_ONCE_IN_ALL = 16
"""Over all batches: each has a thread."""
_in_all: SharedPlaces = WeakKeyDictionary()
_LARGEST = 5_000_000
_SECONDS = 30.0
_AGENT = "jackline"
_UNICAST = ipaddress.IPv6Network("2000::/3")
"""All that is given out on the internet."""
_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
"""NAT64: how a network without IPv4 reaches an IPv4 address, the last four bytes."""
_ISATAP = (b"\x00\x00\x5e\xfe", b"\x02\x00\x5e\xfe")
"""Before the last four bytes: a tunnel inside a site to that IPv4 address."""


_Judge: TypeAlias = Callable[[str, int, str], None]
"""Told host, port and the address that was reached; raises to refuse it."""


class _Readable(Protocol):
    def read1(self, amount: int, /) -> bytes:
        """At most so many bytes, as they come."""


class FetchArguments(Arguments):
    """What `fetch` takes."""

    url: str = Field(description="An http or https address.")


class FetchTool:
    """Gets pages whose addresses fit one of `allow`, such as "https://docs.python.org/*"."""

    name = "fetch"
    input_schema = schema_of(FetchArguments)

    def __init__(self, allow: Iterable[str] = (), *, limit: int = OUTPUT_CHARACTERS) -> None:
        self._allow = tuple(allow)
        self._limit = limit

    @property
    def description(self) -> str:
        """What it does, for a model."""
        told = ", ".join(self._allow) or "nothing"
        return f"Gets a page from the web as text. Allowed: {told}."

    def read_only(self, arguments: JsonObject) -> bool:  # noqa: ARG002 -- for any arguments
        """A GET changes nothing, by the rules of HTTP."""
        return True

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:  # noqa: ARG002
        """The page's text."""
        asked = checked(FetchArguments, arguments)
        async with places_in_all(_in_all, AT_ONCE_IN_ALL):
            return await in_own_thread(lambda: self._get(asked.url), "jackline-fetch")

    def _get(self, url: str) -> ToolOutput:
        self._refuse_strange(url)
        handlers = (
            _Redirects(self._refuse_strange),
            _Plain(self._refuse_private),
            _Secure(self._refuse_private),
        )
        opener = urllib.request.build_opener(*handlers)
        request = urllib.request.Request(url, headers={"User-Agent": _AGENT})  # noqa: S310 -- judged
        try:
            with opener.open(request, timeout=_SECONDS) as answer:
                return self._told(_read(answer), answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                raise ToolFailedError(
                    f"the server answered {error.code} {error.reason}",
                    output=self._text(_read(error)),
                    ended_by=f"HTTP {error.code}",
                ) from None
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "reason", None) or error
            raise ToolFailedError(f"it could not be fetched: {why}", ended_by="no answer") from None

    def _told(self, content: bytes, headers: Message) -> ToolOutput:
        if b"\0" in content:
            kind = headers.get_content_type()
            return ToolOutput(f"({kind}, {len(content):,} bytes, not shown)")
        text = self._text(content, headers.get_content_charset())
        return ToolOutput(text or "(the page is empty)")

    def _text(self, content: bytes, charset: str | None = None) -> str:
        try:
            text = content.decode(charset or "utf-8", "replace")
        except LookupError:  # a charset that Python does not know
            text = content.decode("utf-8", "replace")
        if is_html(text):
            text = page_text(text)
        kept = ClippedOutput(self._limit)
        kept.add(text)
        return kept.text

    def _refuse_strange(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ToolFailedError(
                "give an http or https address without a login in it", ended_by="bad address"
            )
        if has_dot_segments(url):
            raise ToolFailedError(
                "the address leads elsewhere than it says; give it without dots and backslashes",
                ended_by="bad address",
            )
        if not self._fitting(url):
            allowed = ", ".join(self._allow) or "nothing"
            raise ToolFailedError(
                f"{parts.scheme}://{parts.netloc} is not allowed; allowed: {allowed}",
                ended_by="not allowed",
            )

    def _fitting(self, url: str) -> list[str]:
        return [pattern for pattern in self._allow if _fits(url, pattern)]

    def _refuse_private(self, host: str, port: int, peer: str) -> None:
        """ToolFailedError for a private place that was not allowed by name."""
        if _is_public(peer):
            return
        by_name = {urlsplit(pattern).netloc for pattern in self._allow}
        if host not in by_name and f"{host}:{port}" not in by_name:
            raise ToolFailedError(
                f"{host} is on this machine or its network; the user may allow it by name",
                ended_by="not allowed",
            )


def _is_public(peer: str) -> bool:
    """Whether an address is on the internet, by itself and by the one that it carries.

    A list of what is: the versions of `ipaddress` differ in what is not.
    """
    address = ipaddress.ip_address(peer.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not address.is_multicast
    if address.ipv4_mapped is not None:
        return _is_public(str(address.ipv4_mapped))
    if address in _TRANSLATED:
        return _is_public(str(ipaddress.IPv4Address(address.packed[-4:])))
    tunnelled = address.sixtofour is not None or address.teredo is not None
    carries = ipaddress.IPv4Address(address.packed[-4:])
    if address.packed[8:12] in _ISATAP and not _is_public(str(carries)):
        return False
    return address in _UNICAST and address.is_global and not tunnelled


def _read(answer: _Readable) -> bytes:
    """The body, as far as size and time allow."""
    clock = SystemClock()
    end = clock.monotonic() + _SECONDS
    pieces: list[bytes] = []
    size = 0
    while size < _LARGEST and clock.monotonic() < end and (piece := answer.read1(65_536)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def _fits(url: str, pattern: str) -> bool:
    """Whether an address fits; host and path are matched apart, so that no path fakes a host."""
    given, wanted = urlsplit(url), urlsplit(pattern)
    return (
        given.scheme == wanted.scheme
        and fnmatchcase(given.netloc.lower(), wanted.netloc.lower())
        and fnmatchcase(given.path or "/", wanted.path or "/")
    )


def _judge_beyond(netloc: str, usual_port: int, judge: _Judge) -> None:
    """Judge a place that a proxy will connect to, as far as its name is known here."""
    parts = urlsplit(f"//{netloc}")
    host, port = parts.hostname or "", parts.port or usual_port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return  # only the proxy knows the name, as in a network where it is the only way out
    for *_, address in found:
        judge(host, port, str(address[0]))


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect only to where one may go."""

    def __init__(self, refuse: Callable[[str], None]) -> None:
        self._refuse = refuse

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """The next request; refused like the first."""
        try:
            self._refuse(newurl)
        except ToolFailedError:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _PlainConnection(http.client.HTTPConnection):
    """Looks at whom it reached before it asks for anything."""

    judge: _Judge | None = None

    def connect(self) -> None:
        """Connect, and judge the peer."""
        super().connect()
        if self.judge is not None:
            self.judge(self.host, self.port, self.sock.getpeername()[0])


class _SecureConnection(http.client.HTTPSConnection):
    """The same, encrypted."""

    judge: _Judge | None = None

    def connect(self) -> None:
        """Connect, and judge the peer."""
        super().connect()
        if self.judge is not None:
            self.judge(self.host, self.port, self.sock.getpeername()[0])


class _Plain(urllib.request.HTTPHandler):
    """Opens plain connections that are judged."""

    def __init__(self, judge: _Judge) -> None:
        super().__init__()
        self._judge = judge

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """The answer to a request."""

        def connection(host: str, **options: Any) -> _PlainConnection:
            made = _PlainConnection(host, **options)
            made.judge = None if req.has_proxy() else self._judge
            return made

        if req.has_proxy():
            _judge_beyond(urlsplit(req.full_url).netloc, 80, self._judge)
        return self.do_open(connection, req)


class _Secure(urllib.request.HTTPSHandler):
    """Opens encrypted connections that are judged."""

    def __init__(self, judge: _Judge) -> None:
        super().__init__()
        self._judge = judge

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """The answer to a request."""

        # A tunnel through a proxy leaves no other trace in the request.
        tunnelled = getattr(req, "_tunnel_host", None)

        def connection(host: str, **options: Any) -> _SecureConnection:
            made = _SecureConnection(host, **options)
            made.judge = None if tunnelled is not None else self._judge
            return made

        if tunnelled is not None:
            _judge_beyond(str(tunnelled), 443, self._judge)
        return self.do_open(connection, req, context=ssl.create_default_context())
