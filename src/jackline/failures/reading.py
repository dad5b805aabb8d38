"""Turn an observation into the evidence that rules look at.

Laws: (1) everything is folded once, here, and of a long text only the beginning and the end are
read: every rule searches all of it, and what matters stands at either end; (2) the status is the
innermost that is known, because bridges and shims wrap a 429 in a 400 or a 200; (3) nothing is
decided here.
Not here: what the evidence means (rules/), where payload words come from (payload.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from jackline.failures.exceptions import describe
from jackline.failures.observation import Observation, Where
from jackline.failures.payload import Payload, collect
from jackline.failures.wording import fold

_STATUS_IN_TEXT = re.compile(
    r"api error:? \(?(?P<a>[45]\d\d)\b"
    r"|\brequest rejected \((?P<b>[45]\d\d)\)"
    r"|\b(?:http|https)(?:[ _/]?(?:error|status|code|1\.1|2|3))?:? ?\(?(?P<c>[45]\d\d)\b"
    r"|\bstatus(?:[ _]?code)?(?: of)?[:= ]{1,3}(?P<d>[45]\d\d)\b"
    r"|\b(?:error code|code|unexpected status|last status):? ?(?P<e>[45]\d\d)\b"
    r"|^[^a-z0-9]{0,4}(?P<f>[45]\d\d)(?=[ :,·({<-]|$)"
    r"|\berror:? \(?(?P<g>[45]\d\d)\b"
    r"|\b(?P<h>[45]\d\d) (?:too many requests|internal server error|bad gateway|bad request"
    r"|forbidden|service (?:temporarily )?unavailable|gateway time-?out|unauthorized|not found"
    r"|payment required|overloaded|status code|request entity too large|proxy authentication"
    r"|resource_exhausted)"
    r"|\((?P<i>[45]\d\d)\)"
)
_EXCEPTION_NAME = re.compile(r"\b[a-z]{4,50}exception\b")
_STATUS_KEYS = (
    "api_error_status",
    "apierrorstatus",
    "error_status",
    "httpstatuscode",
    "statuscode",
    "status_code",
    "http_status",
    "status",
    "code",
)
# Statuses that bridges use for "something inside failed": a more telling inner one wins.
_WRAPPERS = frozenset({None, 200, 400, 500, 502})
# Characters of a text that are read at its beginning and at its end.
_EITHER_END = 8192
# Any other number of digits names no status, and int() raises at thousands of them.
_STATUS_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Reading:
    """One observation, folded. `text` is lower case, `prose` keeps its case for zone names."""

    where: Where
    provider: str
    status: int | None
    outer_status: int | None
    headers: dict[str, str]
    payload: Payload
    words: frozenset[str]
    text: str
    prose: str
    body_seen: bool

    @property
    def failed_status(self) -> bool:
        """Whether the status itself says that the request failed."""
        return self.status is not None and self.status >= 400


def read(observation: Observation) -> Reading:
    """The evidence in `observation`."""
    headers = {str(k).lower(): str(v).strip() for k, v in observation.headers.items()}
    thrown = describe(observation.exception) if observation.exception is not None else None
    payload = collect(observation.text, thrown, observation.body)
    prose = _ends(fold(" · ".join(_unrepeated(payload.messages))))
    text = prose.lower()
    words = {word for word in payload.words if word}
    words.update(_EXCEPTION_NAME.findall(text[:4000]))
    if "x-amzn-errortype" in headers:
        words.add(headers["x-amzn-errortype"].split(":", 1)[0].lower())
    outer = observation.status
    return Reading(
        where=observation.where,
        provider=(observation.provider or "").lower(),
        status=_status(outer, payload, text),
        outer_status=outer,
        headers=headers,
        payload=payload,
        words=frozenset(words),
        text=text,
        prose=prose,
        body_seen=observation.body is not None,
    )


def _ends(text: str) -> str:
    return text if len(text) <= 2 * _EITHER_END else f"{text[:_EITHER_END]} {text[-_EITHER_END:]}"


def _unrepeated(messages: list[str]) -> list[str]:
    return list(dict.fromkeys(messages))


def _status(outer: int | None, payload: Payload, text: str) -> int | None:
    if outer not in _WRAPPERS:
        return outer
    for key in _STATUS_KEYS:
        value = payload.numbers.get(key, "").split(".", 1)[0]
        if len(value) != _STATUS_DIGITS or not value.isdecimal():
            continue
        status = int(value)
        if 400 <= status <= 599 and status not in (400, 500):
            return status
    if outer is not None:
        return outer
    match = _STATUS_IN_TEXT.search(text[:4000])
    return int(match[match.lastgroup]) if match is not None and match.lastgroup else None
