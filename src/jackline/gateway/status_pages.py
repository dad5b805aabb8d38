"""Fetch vendors' status pages while something is wrong there, and find incidents that explain it.

Rules: (1) a page is fetched only while a lane of its upstream is in trouble, about once a minute,
and less often while it does not answer; (2) a page that is down, slow, wrong or huge changes
nothing: its last content counts for a while, then there is none; (3) incidents are evidence for
people: no lane is opened or closed by them; (4) parsing is pure and never raises; whether an
incident is trouble is decided by failures/; (5) an incident that names models is about those only,
and by their versions where it has them; (6) a vendor's words are shown on one line, and not at
length.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit

import msgspec

from jackline import __version__
from jackline.clock import Clock
from jackline.failures import Kind, Scope, classify
from jackline.failures.observation import Json, Observation, Where
from jackline.lane_id import LaneId
from jackline.upstream.bounded_answers import fetch
from jackline.upstream.http_upstream import HttpUpstream
from jackline.upstream.interface import UpstreamRequest
from jackline.upstream.origin import Origin, proxy_from_environment

_FAMILY = r"opus|sonnet|haiku|fable|mythos|gpt|gemini|o\d"
_NAMED = re.compile(
    rf"\b({_FAMILY})\b((?:[\s,/&+-]|and|v|models?)*\d+(?:\.\d+)?\b)*", re.IGNORECASE
)
_VERSION = re.compile(r"\d+(?:\.\d+)?")
_EVERY_MODEL = re.compile(r"\b(?:many|multiple|all|several) (?:claude )?models", re.IGNORECASE)
_IN_AN_ID = re.compile(rf"(?:^|[^a-z])({_FAMILY})(?:[^a-z0-9]+(\d+)(?:[-.](\d{{1,2}}))?(?!\d))?")
_BEFORE_FAMILY = re.compile(rf"(\d+)(?:[-.](\d{{1,2}}))?-(?:{_FAMILY})")
_UNPRINTABLE = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
_LONGEST_NAME = 120
_MOST_INCIDENTS = 50


@dataclass(frozen=True, slots=True)
class IncidentReport:
    """One open incident; `models` is empty where it is about all of them.

    Each model is a family and a version, "" where the incident gives none: `("opus", "4.8")`.
    """

    name: str
    since: datetime | None
    models: frozenset[tuple[str, str]] = frozenset()

    def is_about(self, model: str) -> bool:
        """Whether calls to this model, or to any when none is named, may fail for this reason."""
        if not self.models or not model:
            return True
        family, version = family_and_version(model)
        return any(
            family == named and named_version in ("", version) if version else family == named
            for named, named_version in self.models
        )


@dataclass(frozen=True, slots=True)
class StatusPage:
    """What a status page says now."""

    title: str
    reports: tuple[IncidentReport, ...]

    def about(self, model: str) -> IncidentReport | None:
        """The incident that explains failures of this model best: one that names it, the latest."""
        fitting = [report for report in self.reports if report.is_about(model)]
        return max(
            fitting,
            key=lambda one: (bool(one.models), one.since.timestamp() if one.since else 0.0),
            default=None,
        )


def parse_status_page(body: bytes, now: datetime) -> StatusPage | None:
    """The page, or None when this is none."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(document, dict) or not isinstance(document.get("incidents"), list):
        return None
    about = document.get("page")
    title = about.get("name") if isinstance(about, dict) else None
    return StatusPage(_one_line(title), tuple(_reports(document["incidents"], now)))


def incident_sentence(report: IncidentReport, vendor: str, now: datetime) -> str:
    """`Anthropic reports: Elevated errors on Opus, since 12:45`."""
    if report.since is None:
        return f"{vendor} reports: {report.name}"
    since = report.since.astimezone(now.tzinfo)
    day = "" if since.date() == now.date() else f" on {since.day} {since:%B}"
    return f"{vendor} reports: {report.name}, since {since:%H:%M}{day}"


def family_and_version(model: str) -> tuple[str, str]:
    """`claude-opus-4-8-20260701` as `("opus", "4.8")`; empty where an id has none."""
    plain = model.lower()
    found = _IN_AN_ID.search(plain)
    if found is None:
        return "", ""
    major, minor = found[2], found[3]
    if major is None or len(major) > 3:
        # Older ids have the version before the family: claude-3-5-sonnet-20241022.
        before = _BEFORE_FAMILY.search(plain)
        major, minor = (before[1], before[2]) if before else (None, None)
    if not major:
        return found[1], ""
    return found[1], f"{major}.{minor}" if minor and minor != "0" else major


def _reports(incidents: Iterable[object], now: datetime) -> Iterable[IncidentReport]:
    for incident in list(incidents)[:_MOST_INCIDENTS]:
        if not isinstance(incident, dict):
            continue
        name, updates = _one_line(incident.get("name")), incident.get("incident_updates")
        first = updates[0] if isinstance(updates, list) and updates else None
        newest = str(first.get("body", "")) if isinstance(first, dict) else ""
        # Only what is needed, and as texts: whatever else a page holds cannot matter then.
        plain: dict[str, Json] = {
            "name": name,
            "status": str(incident.get("status")),
            "incident_updates": [{"body": newest}],
        }
        verdict = classify(Observation(Where.STATUSPAGE, body={"incidents": [plain]}), now=now)
        if not name or verdict.kind is Kind.NOT_A_FAILURE:
            continue
        models = _models(name, newest) if verdict.scope is Scope.MODEL else frozenset()
        try:
            begun = incident.get("started_at") or incident.get("created_at")
            since: datetime | None = datetime.fromisoformat(str(begun))
        except ValueError:
            since = None
        if since is not None and since.tzinfo is None:
            since = None
        yield IncidentReport(name, since, models)


def _models(*texts: str) -> frozenset[tuple[str, str]]:
    """The models in the incident's name, or else in its newest update."""
    for text in texts:
        if _EVERY_MODEL.search(text):
            return frozenset()
        found: set[tuple[str, str]] = set()
        for match in _NAMED.finditer(text):
            family = match[1].lower()
            versions = _VERSION.findall(match[0][len(family) :]) or [""]
            found.update((family, version.removesuffix(".0")) for version in versions)
        if found:
            return frozenset(found)
    return frozenset()


def _one_line(value: object) -> str:
    text = _UNPRINTABLE.sub(" ", value).strip() if isinstance(value, str) else ""
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"


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
    page: StatusPage | None = None
    seen_at: float = 0.0


class StatusPages:
    """The pages of all upstreams that have one; `watch` runs beside the gateway.

    `pages` are addresses by upstream name, `troubled` is whether an upstream has a lane that is
    down or throttled, `draw` gives numbers in [0, 1).
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
        """Fetch these pages from now on; the content of others is dropped."""
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
        return incident_sentence(
            report, watched.vendor or watched.page.title or upstream, self._clock.now()
        )

    async def reports(self, upstream: str) -> list[str] | None:
        """What a page says now, whether or not something is wrong; None when it cannot be read."""
        watched, now = self._watched[upstream], self._clock.now()
        page = await self._fetch(upstream)
        if page is None:
            return None
        vendor = watched.vendor or page.title or upstream
        return [incident_sentence(report, vendor, now) for report in page.reports]

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
        # Set before fetching, so that a slow page is not fetched twice.
        watched.due = now + self._pause(watched.failures)
        page = await self._fetch(name)
        if page is None:
            watched.failures += 1
            watched.due = now + self._pause(watched.failures)
            return
        watched.failures, watched.page, watched.seen_at = 0, page, now

    def _pause(self, failures: int) -> float:
        pause = min(_LONGEST_PAUSE, _EVERY * 2.0 ** min(failures, 10))
        return pause * (1.0 + _JITTER * (2.0 * self._draw() - 1.0))

    async def _fetch(self, name: str) -> StatusPage | None:
        """The page, or None when it is not to be had in time and size."""
        headers = (
            (b"Accept", b"application/json"),
            (b"User-Agent", f"jackline/{__version__}".encode()),
        )
        message = UpstreamRequest(b"GET", _SUMMARY.encode(), headers)
        fetched = await fetch(
            self._upstream, message, LaneId(name), most_bytes=_MOST_BYTES, seconds=self._patience
        )
        body = fetched.document
        return None if body is None else parse_status_page(body, self._clock.now())


def vendor_of(url: str) -> str:
    """Whose page this is, for the well-known ones; else "", and the page's own title is shown."""
    return _VENDORS.get(urlsplit(url).hostname or "", "")
