"""The tool `fetch`: get a page from an allowed address as text.

Rules: (1) nothing is fetched unless its address fits an allowed pattern, and no redirect leads out
of that; (2) addresses of this machine and its network are reached only when allowed by name; the
connection itself is judged, not an earlier name lookup; behind a proxy, which connects by itself,
it is what the name resolves to here; (3) no credentials are sent; (4) size and time are bounded,
and how many are fetched at once by all batches; (5) the work of reading a page grows with its
length and no faster: every character is passed once, what is opened and never closed takes the rest
of the page, as in a browser, and only the beginning of a very long page is read; (6) every page has
a text and no error; scripts, styles and drawings are left out, lines stay lines.
"""

from __future__ import annotations

import html
import http.client
import ipaddress
import re
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import IO, Any, TypeAlias
from urllib.parse import urlsplit

from pydantic import Field

from jackline.batches.arguments import Arguments
from jackline.batches.policy import has_dot_segments
from jackline.batches.threads import SharedPlaces, in_own_thread
from jackline.batches.tool import (
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
_fetching = SharedPlaces(AT_ONCE_IN_ALL)
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
"""Gets host, port and the address that was reached; raises to refuse it."""


class FetchArguments(Arguments):
    """What `fetch` takes."""

    url: str = Field(description="An http or https address.")


class FetchTool:
    """Gets pages whose addresses fit one of `allow`, such as "https://docs.python.org/*"."""

    name = "fetch"
    input_schema = FetchArguments.json_schema()

    def __init__(self, allow: Iterable[str] = ()) -> None:
        self._allow = tuple(allow)

    @property
    def description(self) -> str:
        """What it does, for a model."""
        return f"Gets a page from the web as text. Allowed: {', '.join(self._allow) or 'nothing'}."

    def read_only(self, arguments: JsonObject) -> bool:  # noqa: ARG002 -- for any arguments
        """A GET changes nothing, by the rules of HTTP."""
        return True

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:  # noqa: ARG002
        """The page's text."""
        url = FetchArguments.checked(arguments).url
        async with _fetching.here():
            return await in_own_thread(lambda: self._get(url), "jackline-fetch")

    def _get(self, url: str) -> ToolOutput:
        self._refuse_strange(url)
        opener = urllib.request.build_opener(
            _JudgedHandler(self._refuse_strange, self._refuse_private)
        )
        request = urllib.request.Request(url, headers={"User-Agent": _AGENT})  # noqa: S310 -- judged
        try:
            with opener.open(request, timeout=_SECONDS) as answer:
                content, headers = self._read(answer.read1), answer.headers
                if b"\0" in content:
                    kind = headers.get_content_type()
                    return ToolOutput(f"({kind}, {len(content):,} bytes, not shown)")
                text = self._text(content, headers.get_content_charset())
                return ToolOutput(text or "(the page is empty)")
        except urllib.error.HTTPError as error:
            with error:
                raise ToolFailedError(
                    f"the server answered {error.code} {error.reason}",
                    output=self._text(self._read(error.read1)),
                    ended_by=f"HTTP {error.code}",
                ) from None
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "reason", None) or error
            raise ToolFailedError(f"it could not be fetched: {why}", ended_by="no answer") from None

    def _read(self, read: Callable[[int], bytes]) -> bytes:
        """The body, as far as size and time allow."""
        clock = SystemClock()
        end = clock.monotonic() + _SECONDS
        pieces: list[bytes] = []
        size = 0
        while size < _LARGEST and clock.monotonic() < end and (piece := read(65_536)):
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)

    def _text(self, content: bytes, charset: str | None = None) -> str:
        try:
            text = content.decode(charset or "utf-8", "replace")
        except LookupError:  # a charset that Python does not know
            text = content.decode("utf-8", "replace")
        if is_html(text):
            text = page_text(text)
        clipped = ClippedOutput()
        clipped.add(text)
        return clipped.text

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
        for pattern in map(urlsplit, self._allow):
            # Host and path are matched apart, so that no path fakes a host.
            if (
                parts.scheme == pattern.scheme
                and fnmatchcase(parts.netloc.lower(), pattern.netloc.lower())
                and fnmatchcase(parts.path or "/", pattern.path or "/")
            ):
                return
        allowed = ", ".join(self._allow) or "nothing"
        raise ToolFailedError(
            f"{parts.scheme}://{parts.netloc} is not allowed; allowed: {allowed}",
            ended_by="not allowed",
        )

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


class _PlainConnection(http.client.HTTPConnection):
    """Looks at whom it reached before it asks for anything."""

    judge: _Judge | None = None

    def connect(self) -> None:
        super().connect()
        if self.judge is not None:
            self.judge(self.host, self.port, self.sock.getpeername()[0])


class _SecureConnection(_PlainConnection, http.client.HTTPSConnection):
    """The same, encrypted."""


class _JudgedHandler(
    urllib.request.HTTPRedirectHandler, urllib.request.HTTPHandler, urllib.request.HTTPSHandler
):
    """Opens connections that are judged, and follows a redirect only to where one may go."""

    def __init__(self, refuse: Callable[[str], None], judge: _Judge) -> None:
        super().__init__()
        self._refuse = refuse
        self._judge = judge

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        try:
            self._refuse(newurl)
        except ToolFailedError:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        beyond = urlsplit(req.full_url).netloc if req.has_proxy() else None
        return self.do_open(self._connections(_PlainConnection, beyond, 80), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        # A tunnel through a proxy leaves no other trace in the request.
        beyond = getattr(req, "_tunnel_host", None)
        connections = self._connections(_SecureConnection, beyond, 443)
        return self.do_open(connections, req, context=ssl.create_default_context())

    def _connections(
        self, kind: type[_PlainConnection], beyond: str | None, usual_port: int
    ) -> Callable[..., _PlainConnection]:
        """What makes a connection; `beyond` is the place that a proxy will connect to, if any."""

        def connection(host: str, **options: Any) -> _PlainConnection:
            made = kind(host, **options)
            made.judge = self._judge if beyond is None else None
            return made

        if beyond is not None:
            # The proxy's own peer cannot be seen: judged as far as its name is known here.
            parts = urlsplit(f"//{beyond}")
            host, port = parts.hostname or "", parts.port or usual_port
            try:
                found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except OSError:
                found = []  # only the proxy knows the name, as where it is the only way out
            for *_, address in found:
                self._judge(host, port, str(address[0]))
        return connection


MOST_READ = 1_000_000
"""Characters of a page."""
_UNSEEN = frozenset({"noscript", "template", "svg"})
_IN_LINE = frozenset(
    {
        *("a", "abbr", "b", "cite", "code", "em", "i", "kbd", "mark", "q", "s"),
        *("small", "span", "strong", "sub", "sup", "u", "var"),
    }
)
_OPENING = re.compile("<")
_NAME = re.compile(r"/?[A-Za-z][^\s/>]*")
# A quote means something only after an equals sign; inside of it, `>` ends no tag.
_TAG_STOP = re.compile(r">|=\s*[\"']")
_QUOTES = {quote: re.compile(quote) for quote in "\"'"}
_TAG_END = re.compile(">")
_COMMENT_END = re.compile("--!?>")
# What is in these is no markup up to their own end.
_RAW_ENDS = {name: re.compile(f"(?i)</{name}") for name in ("script", "style")}
# Bounded: html.unescape() itself fails at a number of thousands of digits.
_REFERENCE = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});?")


def page_text(page: str) -> str:
    """The page as plain lines."""
    lines = (" ".join(line.split()) for line in _Page(page[:MOST_READ]).text().split("\n"))
    text = "\n".join(line for line in lines if line)
    left = len(page) - MOST_READ
    return f"{text}\n(the rest of the page was not read: {left:,} characters)" if left > 0 else text


class _Page:
    """One pass over a page."""

    def __init__(self, page: str) -> None:
        self._parts: list[str] = []
        self._page = page
        self._at = 0
        self._unseen = 0

    def text(self) -> str:
        while self._at < len(self._page):
            begin = self._at
            found = self._pass(_OPENING)
            self._words(self._page[begin : found.start() if found else len(self._page)])
            if found:
                self._markup()
        return "".join(self._parts)

    def _pass(self, what: re.Pattern[str]) -> re.Match[str] | None:
        """Go behind the next place that fits, or to the page's end."""
        found = what.search(self._page, self._at)
        self._at = found.end() if found else len(self._page)
        return found

    def _markup(self) -> None:
        """Pass what begins with the `<` before this place."""
        if name := _NAME.match(self._page, self._at):
            self._at = name.end()
            self._tag(name[0].lower())
        elif self._page.startswith("!--", self._at):
            # Also `<!-->` is a comment, and a whole one.
            self._at += 1
            self._pass(_COMMENT_END)
        elif self._page[self._at : self._at + 1] in ("!", "?", "/"):
            self._pass(_TAG_END)
        else:
            self._words("<")

    def _tag(self, name: str) -> None:
        while (stop := self._pass(_TAG_STOP)) and stop[0] != ">":
            self._pass(_QUOTES[stop[0][-1]])
        ends, base = name.startswith("/"), name.removeprefix("/")
        closed = self._page.endswith("/>", 0, self._at)
        if base not in _IN_LINE:
            self._parts.append("\n")
        if base in _RAW_ENDS and not ends and not closed:
            self._pass(_RAW_ENDS[base])
            self._pass(_TAG_END)
        elif base in _UNSEEN and not closed:
            self._unseen = max(0, self._unseen - 1) if ends else self._unseen + 1

    def _words(self, text: str) -> None:
        if text and not self._unseen:
            # A line break in the source is a space on the page.
            text = text.replace("\n", " ")
            self._parts.append(_REFERENCE.sub(lambda found: html.unescape(found[0]), text))
