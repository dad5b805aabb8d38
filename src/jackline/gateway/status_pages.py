"""Look at vendors' status pages while something is wrong with them, and keep what they say.

Laws: (1) a page is asked only while a lane of its upstream is in trouble, about once a minute, and
less often while it does not answer; (2) a page that is down, slow, wrong or huge changes nothing:
what it said before holds for a while, then it has said nothing; (3) what is told is evidence for
people: no lane is opened or closed by it.
Not here: reading a page (status_reports.py), what a lane does (lanes/).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from jackline import __version__
from jackline.clock import Clock
from jackline.gateway.status_reports import Page, read_page, told
from jackline.upstream.documents import fetch
from jackline.upstream.http_upstream import HttpUpstream
from jackline.upstream.origin import Origin
from jackline.upstream.port import Message
from jackline.upstream.proxying import proxy_from_environment

PRESETS = {
    "api.anthropic.com": "https://status.claude.com",
    "api.openai.com": "https://status.openai.com",
}
"""The pages of the hosts that most people send to, for whoever wants them."""

_VENDORS = {
    "status.claude.com": "Anthropic",
    "status.anthropic.com": "Anthropic",
    "status.openai.com": "OpenAI",
}
_SUMMARY = "/api/v2/summary.json"
_EVERY = 60.0
_JITTER = 0.25
# Trouble is often over in seconds; and many gateways see the same trouble at once.
_FIRST_AFTER = 10.0
_LOOK_EVERY = 2.0
_LONGEST_PAUSE = 600.0
_HOLDS_FOR = 600.0
_MOST_BYTES = 2 * 1024 * 1024
_PATIENCE = 10.0


@dataclass(slots=True)
class _Watched:
    """One upstream's page; `due` is when it is looked at next, None while all is well."""

    vendor: str
    due: float | None = None
    failures: int = 0
    page: Page | None = None
    seen_at: float = 0.0


class StatusPages:
    """The pages of all upstreams that have one; `watch` runs beside the gateway.

    `pages` are addresses by upstream name, `troubled` tells whether an upstream has a lane that is
    broken or limited, `draw` gives numbers in [0, 1).
    """

    def __init__(
        self,
        pages: Mapping[str, str],
        troubled: Callable[[str], bool],
        clock: Clock,
        draw: Callable[[], float],
        environ: Mapping[str, str],
        *,
        patience: float = _PATIENCE,
    ) -> None:
        self._environ = environ
        self._upstream = HttpUpstream({})
        self.addresses: dict[str, str] = {}
        self._watched: dict[str, _Watched] = {}
        self.use(pages)
        self._troubled = troubled
        self._clock = clock
        self._draw = draw
        self._patience = patience

    def use(self, pages: Mapping[str, str]) -> None:
        """Look at these pages from now on; what others said is forgotten."""
        addresses = {name: url.removesuffix(_SUMMARY) for name, url in pages.items()}
        for name, url in addresses.items():
            if self.addresses.get(name) != url:
                origin = Origin(url, proxy=proxy_from_environment(url, self._environ))
                self._upstream.use(name, origin)
                self._watched[name] = _Watched(vendor_of(url))
        for name in self._watched.keys() - addresses.keys():
            del self._watched[name]
        self.addresses = addresses

    def note(self, upstream: str, model: str = "") -> str | None:
        """What the vendor says about this model now, while something is wrong there."""
        watched = self._watched.get(upstream)
        if watched is None or watched.page is None or not self._troubled(upstream):
            return None
        if self._clock.monotonic() - watched.seen_at > _HOLDS_FOR:
            return None
        report = watched.page.about(model)
        if report is None:
            return None
        return told(report, watched.vendor or watched.page.title or upstream, self._clock.now())

    async def reports(self, upstream: str) -> list[str] | None:
        """What a page says now, whether or not something is wrong; None when it cannot be read."""
        watched, now = self._watched[upstream], self._clock.now()
        body = await self._fetch(upstream)
        page = None if body is None else read_page(body, now)
        if page is None:
            return None
        vendor = watched.vendor or page.title or upstream
        return [told(report, vendor, now) for report in page.reports]

    async def watch(self) -> None:
        """Look at pages whenever there is a reason to, until cancelled."""
        while True:
            await asyncio.gather(*map(self._look, [*self._watched]))
            await self._clock.sleep(_LOOK_EVERY)

    async def close(self) -> None:
        """Leave no connection."""
        await self._upstream.close()

    async def _look(self, name: str) -> None:
        watched, now = self._watched[name], self._clock.monotonic()
        if not self._troubled(name):
            watched.due, watched.page, watched.failures = None, None, 0
            return
        if watched.due is None:
            watched.due = now + _FIRST_AFTER * self._draw()
        if now < watched.due:
            return
        # Set before asking, so that a slow page is not asked twice.
        watched.due = now + self._pause(watched.failures)
        body = await self._fetch(name)
        page = None if body is None else read_page(body, self._clock.now())
        if page is None:
            watched.failures += 1
            watched.due = now + self._pause(watched.failures)
            return
        watched.failures, watched.page, watched.seen_at = 0, page, now

    def _pause(self, failures: int) -> float:
        pause = min(_LONGEST_PAUSE, _EVERY * 2.0 ** min(failures, 10))
        return pause * (1.0 + _JITTER * (2.0 * self._draw() - 1.0))

    async def _fetch(self, name: str) -> bytes | None:
        """The page's document, or None when it is not to be had in time and size."""
        headers = (
            (b"Accept", b"application/json"),
            (b"User-Agent", f"jackline/{__version__}".encode()),
        )
        message = Message(b"GET", _SUMMARY.encode(), headers)
        told = await fetch(
            self._upstream, message, f"{name}/", most_bytes=_MOST_BYTES, seconds=self._patience
        )
        return told.document


def vendor_of(url: str) -> str:
    """Whose page this is, for the well-known ones; else "", and the page's own title is told."""
    return _VENDORS.get(urlsplit(url).hostname or "", "")
