"""Read a vendor's status page: which open incidents explain failed calls, and for which models.

Laws: (1) pure; a page that is not as expected reports nothing, and never raises; (2) whether an
incident is trouble is failures/' word; (3) an incident that names models is about those alone, and
by their versions where it gives them; (4) a vendor's words are told on one line, and not at length.
Not here: fetching the page (status_pages.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from jackline.failures import Kind, Scope, classify
from jackline.failures.observation import Json, Observation, Where

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
class Report:
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
            family == named and given in ("", version) if version else family == named
            for named, given in self.models
        )


@dataclass(frozen=True, slots=True)
class Page:
    """What a status page says now."""

    title: str
    reports: tuple[Report, ...]

    def about(self, model: str) -> Report | None:
        """The incident that explains failures of this model best: one that names it, the latest."""
        fitting = [report for report in self.reports if report.is_about(model)]
        return max(fitting, key=_weight, default=None)


def read_page(body: bytes, now: datetime) -> Page | None:
    """The page, or None when this is none."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(document, dict) or not isinstance(document.get("incidents"), list):
        return None
    about = document.get("page")
    title = about.get("name") if isinstance(about, dict) else None
    return Page(_one_line(title), tuple(_reports(document["incidents"], now)))


def told(report: Report, vendor: str, now: datetime) -> str:
    """`Anthropic reports: Elevated errors on Opus, since 12:45`."""
    if report.since is None:
        return f"{vendor} reports: {report.name}"
    since = report.since.astimezone(now.tzinfo)
    day = "" if since.date() == now.date() else f" on {since.day} {since:%B}"
    return f"{vendor} reports: {report.name}, since {since:%H:%M}{day}"


def family_and_version(model: str) -> tuple[str, str]:
    """`claude-opus-4-8-20260701` as `("opus", "4.8")`; empty where an id does not tell."""
    plain = model.lower()
    found = _IN_AN_ID.search(plain)
    if found is None:
        return "", ""
    major, minor = found[2], found[3]
    if major is None or len(major) > 3:
        # Older ids have the version before the family: claude-3-5-sonnet-20241022.
        before = _BEFORE_FAMILY.search(plain)
        major, minor = (before[1], before[2]) if before else (None, None)
    return found[1], _version(major, minor)


def _reports(incidents: Iterable[object], now: datetime) -> Iterable[Report]:
    for incident in list(incidents)[:_MOST_INCIDENTS]:
        if not isinstance(incident, dict):
            continue
        name, newest = _one_line(incident.get("name")), _newest(incident)
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
        begun = incident.get("started_at") or incident.get("created_at")
        yield Report(name, _moment(begun), models)


def _models(*texts: str) -> frozenset[tuple[str, str]]:
    """The models in the incident's name, or else in its newest update."""
    for text in texts:
        if _EVERY_MODEL.search(text):
            return frozenset()
        found = {named for match in _NAMED.finditer(text) for named in _named(match)}
        if found:
            return frozenset(found)
    return frozenset()


def _named(match: re.Match[str]) -> Iterable[tuple[str, str]]:
    family = match[1].lower()
    versions = _VERSION.findall(match[0][len(family) :])
    return [(family, version.removesuffix(".0")) for version in versions] or [(family, "")]


def _newest(incident: Mapping[str, object]) -> str:
    updates = incident.get("incident_updates")
    first = updates[0] if isinstance(updates, list) and updates else None
    return str(first.get("body", "")) if isinstance(first, dict) else ""


def _version(major: str | None, minor: str | None) -> str:
    if not major:
        return ""
    return f"{major}.{minor}" if minor and minor != "0" else major


def _weight(report: Report) -> tuple[bool, float]:
    return bool(report.models), report.since.timestamp() if report.since else 0.0


def _moment(value: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def _one_line(value: object) -> str:
    text = _UNPRINTABLE.sub(" ", value).strip() if isinstance(value, str) else ""
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"
