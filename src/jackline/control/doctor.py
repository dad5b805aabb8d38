"""Judge what was seen of the way to the upstreams: names, certificates, clocks, keys, answers.

Laws: (1) pure: what was seen comes in, findings go out, each in one sentence with its fix; (2) what
an answer or an error means is failures/' word; (3) no key, and no address that holds one, is told.
Not here: looking (assembly/probing.py), this machine and its clients (host_findings.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from jackline.failures import Failure, Kind, classify
from jackline.failures.observation import Observation
from jackline.failures.sentences import duration_in_words
from jackline.failures.wording import redact

# Signatures of clouds are refused when they are five minutes old.
_SKEW_FAILS = 240.0
_SKEW_WARNS = 30.0
_NETWORK = "check this machine's network, VPN and firewall"
_BUSY = frozenset({Kind.SERVER_THROTTLE, Kind.RATE_LIMIT, Kind.ACCOUNT_QUOTA, Kind.BILLING})
_DOWN = frozenset({Kind.OVERLOADED, Kind.UPSTREAM_5XX, Kind.NETWORK_EDGE, Kind.TIMEOUT})
_LONGEST = 160


class Mark(StrEnum):
    """How a finding stands."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was checked, how it stands, and what to do about it."""

    check: str
    mark: Mark
    says: str
    fix: str = ""

    def to_json(self) -> dict[str, str]:
        """The same for programs."""
        return {"check": self.check, "mark": self.mark, "says": self.says, "fix": self.fix}


def nothing_fails(findings: Sequence[Finding]) -> bool:
    """Whether work can go on as things stand."""
    return all(finding.mark is not Mark.FAIL for finding in findings)


@dataclass(frozen=True, slots=True)
class Reached:
    """What came of asking one upstream for its models, or for anything that costs nothing.

    `addresses` is None where no name had to be looked up. `shows_key` tells that a credential of
    the upstream's own went along. `skew` is how far its clock is ahead of ours, in seconds.
    """

    name: str
    authority: str
    secure: bool
    on_this_machine: bool = False
    proxy: str | None = None
    addresses: int | None = None
    lookup_error: str | None = None
    error: OSError | None = None
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    shows_key: bool = False
    skew: float | None = None

    @property
    def host(self) -> str:
        """The name without the port."""
        return self.authority.rpartition(":")[0]


def upstream_findings(reached: Reached, now: datetime) -> list[Finding]:
    """The name, the certificate and the answer of one upstream."""
    if reached.lookup_error is not None:
        return [
            Finding(
                f"dns {reached.host}",
                Mark.FAIL,
                f"cannot be looked up: {reached.lookup_error}",
                f"{_NETWORK}, and its DNS server",
            )
        ]
    found = []
    if reached.addresses is not None:
        counted = f"{reached.addresses} address{'' if reached.addresses == 1 else 'es'}"
        found.append(Finding(f"dns {reached.host}", Mark.OK, counted))
    failure = _failure(reached, now)
    tls = _certificate(reached, failure)
    if tls is not None:
        found.append(tls)
        if tls.mark is Mark.FAIL:
            return found
    return [*found, _answer(reached, failure)]


def clock_finding(reached: Sequence[Reached]) -> Finding:
    """Whether this machine's clock is right, by the clocks of the others.

    The one that differs least speaks: a single server that agrees shows that ours is right.
    """
    skews = [one.skew for one in reached if one.skew is not None]
    if not skews:
        return Finding("clock", Mark.OK, "not compared: nobody told the time")
    skew = min(skews, key=abs)
    if abs(skew) <= _SKEW_WARNS:
        return Finding("clock", Mark.OK, "agrees with the upstreams")
    off = duration_in_words(timedelta(seconds=abs(round(skew))))
    way = "behind" if skew > 0 else "ahead"
    mark = Mark.FAIL if abs(skew) > _SKEW_FAILS else Mark.WARN
    says = f"this machine is {off} {way}: resets and signatures go wrong"
    return Finding("clock", mark, says, "turn on time synchronisation (NTP)")


def status_page_finding(
    name: str, host: str, reports: Sequence[str] | None, vendor: str
) -> Finding:
    """What the status page of an upstream says; `reports` is None when it cannot be read."""
    check = f"status page {name}"
    if reports is None:
        says = f"{host} has no status page that can be read now; calls do not depend on it"
        return Finding(check, Mark.WARN, says, "check status_page of the upstream, or leave it out")
    if not reports:
        return Finding(check, Mark.OK, f"{host} answers: {vendor} reports no incident")
    more = f" (and {len(reports) - 1} more)" if len(reports) > 1 else ""
    fix = "if your calls fail: jackline upstream use NAME sends them elsewhere"
    return Finding(check, Mark.WARN, f"{reports[0]}{more}", fix)


def limits_finding(name: str, models: int | None, problem: str = "", fix: str = "") -> Finding:
    """What a vendor's rate-limits API tells; `models` is None when it cannot be read."""
    check = f"limits {name}"
    if models is None:
        says = f"cannot be read from its vendor: {problem}; lanes learn them from headers"
        return Finding(check, Mark.WARN, says, fix)
    if not models:
        says = "its vendor's rate-limits API tells of no model; lanes learn them from headers"
        return Finding(check, Mark.WARN, says, "check workspace and project of the upstream")
    many = "1 model" if models == 1 else f"{models} models"
    return Finding(check, Mark.OK, f"its vendor's rate-limits API tells those of {many}")


def no_status_page(hosts: Mapping[str, str]) -> Finding:
    """That none is configured; `hosts` are well-known pages by the hosts of upstreams in use."""
    if not hosts:
        return Finding("status pages", Mark.OK, "none is configured")
    page = next(iter(hosts.values()))
    says = f'none is configured; status_page = "{page}" would be looked at in times of trouble'
    return Finding("status pages", Mark.OK, says)


def _failure(reached: Reached, now: datetime) -> Failure | None:
    """What went wrong, or None when an API has answered with a document."""
    if reached.error is not None:
        return classify(Observation.of_exception(reached.error), now=now)
    if reached.status is None or (reached.status < 300 and _document(reached.body) is not None):
        return None
    seen = Observation.of_response(reached.status, reached.headers, reached.body)
    return classify(seen, now=now)


def _certificate(reached: Reached, failure: Failure | None) -> Finding | None:
    check = f"tls {reached.authority}"
    if not reached.secure:
        if reached.on_this_machine:
            return None
        says = "calls and keys travel without encryption"
        return Finding(check, Mark.WARN, says, "write its address as https://")
    if failure is not None and failure.sub == "tls":
        says = f"the certificate is not trusted: {_words(reached)}"
        fix = (
            "if your company inspects traffic, name its certificates as ca_file of the upstream or"
            " in SSL_CERT_FILE; else do not go on: somebody stands in between"
        )
        return Finding(check, Mark.FAIL, says, fix)
    return Finding(check, Mark.OK, "trusted") if reached.error is None else None


def _answer(reached: Reached, failure: Failure | None) -> Finding:
    check = f"upstream {reached.name}"
    way = f" through the proxy {reached.proxy}" if reached.proxy else ""
    where = f"{reached.authority}{way}"
    if failure is None:
        models = _models(reached.body)
        told = f", {models} model{'' if models == 1 else 's'}" if models else ""
        return Finding(check, Mark.OK, f"{where} answers{told}")
    kind = failure.kind
    if failure.sub in ("captive_portal", "malformed_200") or _leads_elsewhere(reached):
        says = f"a web page answers in place of {where}"
        return Finding(
            check, Mark.FAIL, says, "log in to this network in a browser, then try again"
        )
    if reached.error is not None or kind in _DOWN:
        says = f"{where} cannot be used now: {_words(reached)}"
        fix = "wait, or send calls elsewhere: jackline upstream use NAME"
        if reached.error is not None:
            fix = "check the proxy's address and password" if failure.sub == "proxy" else _NETWORK
        return Finding(check, Mark.FAIL, says, fix)
    if kind is Kind.AUTH and reached.shows_key:
        says = f"{where} refuses the credential that is configured"
        return Finding(check, Mark.FAIL, says, "put a valid one where its reference points to")
    if kind in _BUSY:
        says = f"{where} answers, but limits this account now: {_words(reached)}"
        return Finding(check, Mark.WARN, says, "jackline status tells until when")
    wants = ", and wants a credential, as it should" if kind is Kind.AUTH else ""
    return Finding(check, Mark.OK, f"{where} answers{wants}")


def _leads_elsewhere(reached: Reached) -> bool:
    """Whether a redirect answers: APIs have none, log-in pages begin with one."""
    return reached.status is not None and 300 <= reached.status < 400


def _words(reached: Reached) -> str:
    if reached.error is not None:
        text = str(reached.error) or type(reached.error).__name__
    else:
        text = f"status {reached.status}"
    return redact(" ".join(text.split()))[:_LONGEST]


def _document(body: bytes) -> object | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict | list) else None


def _models(body: bytes) -> int:
    document = _document(body)
    data = document.get("data") if isinstance(document, dict) else document
    return len(data) if isinstance(data, list) else 0
