"""Answer `/docs/…` on the service's port with the pages of this installation.

Rules: (1) only names of the site are answered, never a path of the disk; (2) a page is read and
rendered when it is first wanted, off the event loop, and remembered; (3) the policy allows our own
style, pictures and search, and nothing else; (4) where the pages are missing, the answer says so.
"""

from __future__ import annotations

import asyncio
from importlib.resources import files

from jackline.control.http_handler import ServiceRequest
from jackline.documentation.rendering import rendered
from jackline.documentation.search_index import search_index
from jackline.documentation.sources import FIRST, Sources
from jackline.errors import JacklineError

PREFIX = b"/docs"
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; base-uri 'none';"
    b" form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
INDEX = "search-index.js"
# By their package, because the mark is that of the fleet's page.
SITE_FILES = {
    "search.js": ("jackline.documentation", "site/search.js"),
    "site.css": ("jackline.documentation", "site/site.css"),
    "mark.svg": ("jackline.dashboard", "page/mark.svg"),
}
TYPES = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
    "png": b"image/png",
}


class Site:
    """Every file of the site, by its address below /docs/; made when it is first wanted."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._made: dict[str, bytes] = {}

    @property
    def addresses(self) -> list[str]:
        """Everything that can be asked for."""
        pages = [f"{name}.html" for name in self._sources.pages]
        return [*pages, *self._sources.pictures, *SITE_FILES, INDEX]

    def content(self, address: str) -> bytes | None:
        """The bytes of one file; None where there is none. Takes a moment the first time."""
        made = self._made.get(address)
        if made is None:
            made = self._make(address)
            if made is not None:
                self._made[address] = made
        return made

    def moved(self, address: str) -> str | None:
        """The address of the page that was meant by one without its ending, or with that of its
        Markdown."""
        name = address.removesuffix(".md").strip("/") or FIRST
        if name not in self._sources.pages and f"{name}/{FIRST}" in self._sources.pages:
            name = f"{name}/{FIRST}"
        return f"{name}.html" if name in self._sources.pages else None

    def _make(self, address: str) -> bytes | None:
        if address == INDEX:
            return search_index(self._sources.page(name) for name in self._sources.pages)
        if address in SITE_FILES:
            package, path = SITE_FILES[address]
            return (files(package) / path).read_bytes()
        if address in self._sources.pictures:
            return self._sources.pictures[address].read_bytes()
        name = address.removesuffix(".html")
        if name == address or name not in self._sources.pages:
            return None
        return rendered(self._sources.page(name), self._sources)


class DocumentationHandler:
    """The pages, for whoever may reach the service."""

    def __init__(self) -> None:
        self._site: Site | None = None
        self._answers: set[asyncio.Task[None]] = set()

    def knows(self, request: ServiceRequest) -> bool:
        """Whether a page of ours is wanted."""
        return request.path == PREFIX or request.path.startswith(PREFIX + b"/")

    def answer(self, request: ServiceRequest) -> None:
        """Answer it a little later."""
        if request.method not in (b"GET", b"HEAD"):
            _text(request, 405, "The pages are only read.")
            return
        task = asyncio.get_running_loop().create_task(self._answer(request))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def serve(self) -> None:
        """Run until the service ends; what is under way then ends, too."""
        try:
            await asyncio.Event().wait()
        finally:
            for task in self._answers:
                task.cancel()
            await asyncio.gather(*self._answers, return_exceptions=True)

    async def _answer(self, request: ServiceRequest) -> None:
        address = request.path.removeprefix(PREFIX).removeprefix(b"/").decode("latin-1")
        try:
            if self._site is None:
                self._site = Site(await asyncio.to_thread(Sources.installed))
            body = await asyncio.to_thread(self._site.content, address)
        except JacklineError as error:
            _text(request, 404, f"{error.message}: {error.hint}")
            return
        if body is None:
            moved = self._site.moved(address)
            if moved is None:
                _text(request, 404, "There is no such page. All pages: /docs/")
            else:
                place = PREFIX + b"/" + moved.encode()
                query = b"?" + request.query if request.query else b""
                request.respond(308, [(b"location", place + query), *_HEADERS])
            return
        kind = TYPES[address.rpartition(".")[2]]
        request.respond(200, [(b"content-type", kind), *_HEADERS], body)


_HEADERS = (
    # A newer service has newer pages: browsers ask each time.
    (b"cache-control", b"no-cache"),
    (b"content-security-policy", POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


def _text(request: ServiceRequest, status: int, text: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *_HEADERS]
    request.respond(status, headers, f"{text}\n".encode())
