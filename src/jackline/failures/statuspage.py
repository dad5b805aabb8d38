"""Read a status page: does an incident explain failed calls, and how far does it reach.

Laws: (1) incidents count, not the page's traffic light, which lags and can be green beside an open
incident; (2) a status page only confirms: it never makes a failure of calls that succeed; (3) only
an incident's name or text tells the model, because components are surfaces.
Not here: fetching the page.
"""

from __future__ import annotations

import re

from jackline.failures.failure import Kind, Scope
from jackline.failures.observation import Json, Observation
from jackline.failures.reading import Reading
from jackline.failures.rules.rule import Verdict

_TROUBLE = re.compile(
    r"elevated|error|outage|degraded|unavailable|failing|failures?|latency|slow|disruption|down\b|timeouts?"
    r"|increased|interruption"
)
_OVER = re.compile(
    r"^(?:this incident has been )?resolved|has been resolved|all systems operational|completed"
)
_MODEL = re.compile(
    r"\b(?:opus|sonnet|haiku|fable|mythos|gpt|gemini|o\d)\b|\b(?:many|multiple|all) models"
)
_LOGIN = re.compile(
    r"authentication errors|auth(?:entication)? (?:issue|fail|outage)|(?:logging|signing) in"
)
_BROKEN_COMPONENT = frozenset({"partial_outage", "major_outage", "degraded_performance"})
_CLOSED = frozenset({"resolved", "postmortem", "completed"})


def judge_page(observation: Observation, reading: Reading) -> Verdict:
    """What the page says about calls made now."""
    body = observation.body
    if isinstance(body, dict) and ("incidents" in body or "components" in body):
        return _judge_summary(body)
    if _OVER.search(reading.text) or not _TROUBLE.search(reading.text):
        return Verdict(Kind.NOT_A_FAILURE, "incident")
    return _incident(reading.text)


def _judge_summary(page: dict[str, Json]) -> Verdict:
    open_incidents = [
        i for i in _dicts(page.get("incidents")) if str(i.get("status")) not in _CLOSED
    ]
    broken = [
        c for c in _dicts(page.get("components")) if str(c.get("status")) in _BROKEN_COMPONENT
    ]
    texts = [_told(incident) for incident in open_incidents]
    failing = [text for text in texts if _TROUBLE.search(text)]
    if not failing and not broken:
        return Verdict(Kind.NOT_A_FAILURE, "incident")
    return _incident(" · ".join(failing))


def _incident(text: str) -> Verdict:
    if _LOGIN.search(text):
        return Verdict(Kind.AUTH, "outage", Scope.UPSTREAM, retry_same=True)
    scope = Scope.MODEL if _MODEL.search(text) else Scope.UPSTREAM
    return Verdict(Kind.UPSTREAM_5XX, "incident", scope)


def _told(incident: dict[str, Json]) -> str:
    updates = _dicts(incident.get("incident_updates"))
    newest = str(updates[0].get("body", "")) if updates else ""
    return f"{incident.get('name', '')} {newest}".lower()


def _dicts(value: Json) -> list[dict[str, Json]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
