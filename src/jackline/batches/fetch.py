"""The tool `fetch`: get a page from an allowed address as text.

Rules: (1) nothing is fetched unless its address fits an allowed pattern, and no redirect leads out
of that; (2) addresses of this machine and its network are reached only when allowed by name; the
connection itself is judged, not an earlier name lookup; behind a proxy, which connects by itself,
it is what the name resolves to here; (3) no credentials are sent; (4) size and time are bounded,
over all redirects together, of which only the head is read, and how many are fetched at once by all
batches; (5) the work of reading a page grows with its length and no faster: every character is
passed once, what is opened and never closed takes the rest of the page, as in a browser, and only
the beginning of a very long page is read; (6) every page has
a text and no error; scripts, styles and drawings are left out, lines stay lines.
"""

from __future__ import annotations

import html
import ipaddress
import os
import re
import socket
import string
from collections.abc import Iterable
from dataclasses import replace
from email.message import Message
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from pydantic import Field

from jackline.batches.arguments import Arguments
from jackline.batches.policy import LONGEST_URL, has_dot_segments
from jackline.batches.threads import SharedPlaces, in_own_thread
from jackline.batches.tool import (
    ClippedOutput,
    JsonObject,
    ToolContext,
    ToolFailedError,
    ToolOutput,
)
from jackline.clock import SystemClock
from jackline.errors import BadArgumentError
from jackline.failures.wording import is_html
from jackline.lane_id import LaneId
from jackline.upstream.bounded_answers import FetchedDocument, fetch
from jackline.upstream.http_upstream import HttpUpstream
from jackline.upstream.interface import UpstreamRequest
from jackline.upstream.origin import ConnectionCheck, Origin, proxy_from_environment

if TYPE_CHECKING:
    import asyncio

AT_ONCE_IN_ALL = 16
"""Over all batches."""
_fetching = SharedPlaces(AT_ONCE_IN_ALL)
_LARGEST = 5_000_000
_SECONDS = 30.0
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 10
_HEADERS = ((b"User-Agent", b"jackline"), (b"Accept", b"*/*"))
_SIGNS = "".join(sign for sign in string.printable if sign > " ")
"""What goes into a request as it is."""
_UNICAST = ipaddress.IPv6Network("2000::/3")
"""All that is given out on the internet."""
_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
"""NAT64: how a network without IPv4 reaches an IPv4 address, the last four bytes."""
_ISATAP = (b"\x00\x00\x5e\xfe", b"\x02\x00\x5e\xfe")
"""Before the last four bytes: a tunnel inside a site to that IPv4 address."""


class _RefusedError(OSError):
    """What was reached, or would be, is a private place that was not allowed by name."""


class FetchArguments(Arguments):
    """What `fetch` takes."""

    url: str = Field(max_length=LONGEST_URL, description="An http or https address.")


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
            found = await self._get(url)
            # Long pages take a while to read.
            return await in_own_thread(lambda: self._output(found), "jackline-fetch")

    async def _get(self, url: str) -> FetchedDocument:
        """What is there, or where its redirects lead."""
        clock = SystemClock()
        end = clock.monotonic() + _SECONDS
        found = FetchedDocument()
        for _ in range(1 + _MOST_REDIRECTS):
            self._refuse_strange(url)
            found = await self._ask(url, max(0.1, end - clock.monotonic()))
            place = found.headers.get("location")
            if found.status not in _REDIRECTS or not place:
                break
            try:
                url = urljoin(url, place)
            except ValueError:
                break
        return found

    async def _ask(self, url: str, seconds: float) -> FetchedDocument:
        parts = urlsplit(url)
        base = f"{parts.scheme}://{parts.netloc}"
        try:
            proxy = proxy_from_environment(base, os.environ)
            origin = Origin(base, proxy=proxy, connect_seconds=seconds)
        except BadArgumentError as error:
            raise ToolFailedError(error.message, ended_by="bad address") from error
        if origin.proxy_address is not None:
            await self._judge_beyond(parts, origin.address.port)
        elif origin.address.is_loopback:
            self._refuse_private(parts, "127.0.0.1")
        else:
            origin = replace(origin, check=self._check(parts))
        target = quote(
            (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=_SIGNS
        )
        message = UpstreamRequest(b"GET", target.encode("ascii"), _HEADERS)
        upstream = HttpUpstream({"page": origin})
        try:
            return await fetch(
                upstream,
                message,
                LaneId("page"),
                most_bytes=_LARGEST,
                seconds=seconds,
                heads_only=_REDIRECTS,
            )
        finally:
            await upstream.close()

    def _check(self, parts: SplitResult) -> ConnectionCheck:
        """Judges whom a connection has reached, before anything is asked."""

        async def check(transport: asyncio.Transport) -> None:
            try:
                self._refuse_private(parts, transport.get_extra_info("peername")[0])
            except ToolFailedError as refused:
                raise _RefusedError(refused.says) from refused

        return check

    async def _judge_beyond(self, parts: SplitResult, port: int) -> None:
        """Judge what a proxy will connect to, as far as its name is known here."""
        find = partial(socket.getaddrinfo, parts.hostname, port, type=socket.SOCK_STREAM)
        try:
            found = await in_own_thread(find, "jackline-name")
        except OSError:
            return  # only the proxy knows the name, as where it is the only way out
        for *_, address in found:
            self._refuse_private(parts, str(address[0]))

    def _output(self, found: FetchedDocument) -> ToolOutput:
        if isinstance(found.error, _RefusedError):
            raise ToolFailedError(str(found.error), ended_by="not allowed")
        late = isinstance(found.error, TimeoutError) and bool(found.body)
        if found.status is None or (found.error is not None and not late):
            raise ToolFailedError(f"it could not be fetched: {found.error}", ended_by="no answer")
        kind = Message()
        kind["Content-Type"] = found.headers.get("content-type", "")
        if not 200 <= found.status < 300:
            raise ToolFailedError(
                f"the server answered {found.status}",
                output=self._text(found.body, kind.get_content_charset()),
                ended_by=f"HTTP {found.status}",
            )
        if b"\0" in found.body:
            size = f"{len(found.body):,} bytes"
            return ToolOutput(f"({kind.get_content_type()}, {size}, not shown)")
        text = self._text(found.body, kind.get_content_charset())
        return ToolOutput(text or "(the page is empty)")

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

    def _refuse_private(self, parts: SplitResult, peer: str) -> None:
        """ToolFailedError for a private place that was not allowed by name."""
        if _is_public(peer):
            return
        by_name = {urlsplit(pattern).netloc.lower() for pattern in self._allow}
        if by_name.isdisjoint({parts.netloc.lower(), parts.hostname or ""}):
            raise ToolFailedError(
                f"{parts.hostname} is on this machine or its network; the user may allow it by"
                " name",
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
