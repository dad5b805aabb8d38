"""Judge what was seen of the upstreams and of this machine: one finding per check, with its fix.

Rules: (1) pure: what was seen comes in, findings go out, each in one sentence with its fix; (2) the
meaning of an answer or an error is decided by failures/; (3) no key, and no address that holds one,
is shown; a variable's value only where it is an address without credentials.
Not here: looking (control/probes.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from urllib.parse import urlsplit

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


class FindingLevel(StrEnum):
    """How a finding stands."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was checked, how it stands, and what to do about it."""

    check: str
    mark: FindingLevel
    says: str
    fix: str = ""

    def to_json(self) -> dict[str, str]:
        """The same for programs."""
        return {"check": self.check, "mark": self.mark, "says": self.says, "fix": self.fix}


def nothing_fails(findings: Sequence[Finding]) -> bool:
    """Whether work can go on as things stand."""
    return all(finding.mark is not FindingLevel.FAIL for finding in findings)


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
                FindingLevel.FAIL,
                f"cannot be looked up: {reached.lookup_error}",
                f"{_NETWORK}, and its DNS server",
            )
        ]
    found = []
    if reached.addresses is not None:
        counted = f"{reached.addresses} address{'' if reached.addresses == 1 else 'es'}"
        found.append(Finding(f"dns {reached.host}", FindingLevel.OK, counted))
    failure = _failure(reached, now)
    tls = _certificate(reached, failure)
    if tls is not None:
        found.append(tls)
        if tls.mark is FindingLevel.FAIL:
            return found
    return [*found, _answer(reached, failure)]


def clock_finding(reached: Sequence[Reached]) -> Finding:
    """Whether this machine's clock is right, by the clocks of the others.

    The one that differs least speaks: a single server that agrees shows that ours is right.
    """
    skews = [one.skew for one in reached if one.skew is not None]
    if not skews:
        return Finding("clock", FindingLevel.OK, "not compared: nobody told the time")
    skew = min(skews, key=abs)
    if abs(skew) <= _SKEW_WARNS:
        return Finding("clock", FindingLevel.OK, "agrees with the upstreams")
    off = duration_in_words(timedelta(seconds=abs(round(skew))))
    way = "behind" if skew > 0 else "ahead"
    mark = FindingLevel.FAIL if abs(skew) > _SKEW_FAILS else FindingLevel.WARN
    says = f"this machine is {off} {way}: resets and signatures go wrong"
    return Finding("clock", mark, says, "turn on time synchronisation (NTP)")


def status_page_finding(
    name: str, host: str, reports: Sequence[str] | None, vendor: str
) -> Finding:
    """What the status page of an upstream says; `reports` is None when it cannot be read."""
    check = f"status page {name}"
    if reports is None:
        says = f"{host} has no status page that can be read now; calls do not depend on it"
        return Finding(
            check, FindingLevel.WARN, says, "check status_page of the upstream, or leave it out"
        )
    if not reports:
        return Finding(check, FindingLevel.OK, f"{host} answers: {vendor} reports no incident")
    more = f" (and {len(reports) - 1} more)" if len(reports) > 1 else ""
    fix = "if your calls fail: jackline upstream use NAME sends them elsewhere"
    return Finding(check, FindingLevel.WARN, f"{reports[0]}{more}", fix)


def limits_finding(name: str, models: int | None, problem: str = "", fix: str = "") -> Finding:
    """What a vendor's rate-limits API tells; `models` is None when it cannot be read."""
    check = f"limits {name}"
    if models is None:
        says = f"cannot be read from its vendor: {problem}; lanes learn them from headers"
        return Finding(check, FindingLevel.WARN, says, fix)
    if not models:
        says = "its vendor's rate-limits API tells of no model; lanes learn them from headers"
        return Finding(
            check, FindingLevel.WARN, says, "check workspace and project of the upstream"
        )
    many = "1 model" if models == 1 else f"{models} models"
    return Finding(check, FindingLevel.OK, f"its vendor's rate-limits API tells those of {many}")


def no_status_page(hosts: Mapping[str, str]) -> Finding:
    """That none is configured; `hosts` are well-known pages by the hosts of upstreams in use."""
    if not hosts:
        return Finding("status pages", FindingLevel.OK, "none is configured")
    page = next(iter(hosts.values()))
    says = f'none is configured; status_page = "{page}" would be looked at in times of trouble'
    return Finding("status pages", FindingLevel.OK, says)


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
        return Finding(check, FindingLevel.WARN, says, "write its address as https://")
    if failure is not None and failure.sub == "tls":
        says = f"the certificate is not trusted: {_words(reached)}"
        fix = (
            "if your company inspects traffic, name its certificates as ca_file of the upstream or"
            " in SSL_CERT_FILE; else do not go on: somebody stands in between"
        )
        return Finding(check, FindingLevel.FAIL, says, fix)
    return Finding(check, FindingLevel.OK, "trusted") if reached.error is None else None


def _answer(reached: Reached, failure: Failure | None) -> Finding:
    check = f"upstream {reached.name}"
    way = f" through the proxy {reached.proxy}" if reached.proxy else ""
    where = f"{reached.authority}{way}"
    if failure is None:
        models = _models(reached.body)
        told = f", {models} model{'' if models == 1 else 's'}" if models else ""
        return Finding(check, FindingLevel.OK, f"{where} answers{told}")
    kind = failure.kind
    if failure.sub in ("captive_portal", "malformed_200") or _leads_elsewhere(reached):
        says = f"a web page answers in place of {where}"
        return Finding(
            check, FindingLevel.FAIL, says, "log in to this network in a browser, then try again"
        )
    if reached.error is not None or kind in _DOWN:
        says = f"{where} cannot be used now: {_words(reached)}"
        fix = "wait, or send calls elsewhere: jackline upstream use NAME"
        if reached.error is not None:
            fix = "check the proxy's address and password" if failure.sub == "proxy" else _NETWORK
        return Finding(check, FindingLevel.FAIL, says, fix)
    if kind is Kind.AUTH and reached.shows_key:
        says = f"{where} refuses the credential that is configured"
        return Finding(
            check, FindingLevel.FAIL, says, "put a valid one where its reference points to"
        )
    if kind in _BUSY:
        says = f"{where} answers, but limits this account now: {_words(reached)}"
        return Finding(check, FindingLevel.WARN, says, "jackline status tells until when")
    wants = ", and wants a credential, as it should" if kind is Kind.AUTH else ""
    return Finding(check, FindingLevel.OK, f"{where} answers{wants}")


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


_BASE_URL = "ANTHROPIC_BASE_URL"
_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
_PAST_THE_GATEWAY = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX")
_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
_HERE = ("127.0.0.1", "localhost", "::1")
_APPLY = 'eval "$(jackline env)", or start clients with: jackline claude'
_OFF = ("", "0", "false", "no", "off")
_MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StateSeen:
    """The state folder; `problem` says why it cannot be used, `journal` why that cannot."""

    folder: str
    problem: str | None = None
    readable_by_others: bool = False
    free_bytes: int | None = None
    journal: str | None = None
    journal_fix: str = ""
    calls: int | None = None
    """Calls of the last day; None without a journal."""


@dataclass(frozen=True, slots=True)
class GatewaySeen:
    """The gateway of this state folder, if it runs, and who else has its port, if somebody does."""

    url: str
    runs: bool
    version: str = ""
    our_version: str = ""
    port_taken: bool = False
    holder: str | None = None


def gateway_finding(seen: GatewaySeen) -> Finding:
    """Whether it runs, or could."""
    if seen.runs:
        if seen.version != seen.our_version:
            says = f"answers at {seen.url}, but is version {seen.version}, not {seen.our_version}"
            return Finding("gateway", FindingLevel.WARN, says, "jackline down, then: jackline up")
        return Finding("gateway", FindingLevel.OK, f"answers at {seen.url}")
    if seen.port_taken:
        who = seen.holder or "another program"
        says = f"does not run, and {who} has its port ({seen.url})"
        return Finding(
            "gateway", FindingLevel.FAIL, says, "end that program, or choose: jackline up --port"
        )
    return Finding("gateway", FindingLevel.WARN, "does not run; its port is free", "jackline up")


def state_findings(seen: StateSeen) -> list[Finding]:
    """The folder, its disk and its journal."""
    folder = Finding("state folder", FindingLevel.OK, f"{seen.folder} can be written to")
    if seen.problem is not None:
        says = f"{seen.folder} cannot be used: {seen.problem}"
        fix = "name another folder with --state or JACKLINE_STATE"
        folder = Finding("state folder", FindingLevel.FAIL, says, fix)
    elif seen.readable_by_others:
        says = f"{seen.folder} can be read by other users of this machine"
        folder = Finding("state folder", FindingLevel.WARN, says, f"chmod 700 {seen.folder}")
    return [folder, _disk(seen.free_bytes), _journal(seen)]


def _disk(free: int | None) -> Finding:
    if free is None:
        return Finding("disk", FindingLevel.WARN, "its free space cannot be told")
    told = f"{free // _MEGABYTE:,} MB free"
    if free < 100 * _MEGABYTE:
        return Finding(
            "disk", FindingLevel.FAIL, f"only {told}: nothing can be kept", "free some space"
        )
    if free < 1024 * _MEGABYTE:
        return Finding("disk", FindingLevel.WARN, f"only {told}", "free some space")
    return Finding("disk", FindingLevel.OK, told)


def _journal(seen: StateSeen) -> Finding:
    if seen.journal is not None:
        return Finding("journal", FindingLevel.FAIL, seen.journal, seen.journal_fix)
    if seen.calls is None:
        return Finding("journal", FindingLevel.OK, "none yet: the first gateway begins one")
    calls = f"{seen.calls} call{'' if seen.calls == 1 else 's'} in the last day"
    return Finding("journal", FindingLevel.OK, f"can be read, {calls}")


def proxy_finding(environ: Mapping[str, str]) -> Finding:
    """The proxy that the environment names, and whether it stands before this machine itself."""
    named = next((name for name in _PROXIES if _value(environ, name)), None)
    if named is None:
        return Finding("proxy", FindingLevel.OK, "none in the environment")
    where = _host_and_port(_value(environ, named))
    exempt = {part.strip().lower() for part in _value(environ, "NO_PROXY").split(",")}
    if not exempt & {*_HERE, "*"}:
        says = f"{named} ({where}) would also take calls to the gateway on this machine"
        return Finding("proxy", FindingLevel.WARN, says, "add 127.0.0.1,localhost to NO_PROXY")
    return Finding("proxy", FindingLevel.OK, f"{where}, by {named}")


def client_findings(
    environ: Mapping[str, str],
    gateway_url: str,
    wanted: Mapping[str, str],
    kept_in: Mapping[str, str],
) -> list[Finding]:
    """Whether clients started here go through the gateway, and can wait there.

    `wanted` are the variables that waiting needs, with what happens without each; `kept_in` tells
    of variables that a client's own settings hold which file that is.
    """
    address = _value(environ, _BASE_URL)
    from_file = f" (from {kept_in[_BASE_URL]})" if _BASE_URL in kept_in else ""
    if not address:
        says = f"{_BASE_URL} is not set: clients started here go past the gateway"
        found = [Finding("client", FindingLevel.WARN, says, _APPLY)]
    elif _same_place(address, gateway_url):
        found = [
            Finding("client", FindingLevel.OK, f"{_BASE_URL} points to the gateway{from_file}")
        ]
        found += _missing(environ, wanted)
    else:
        where = _host_and_port(address)
        says = f"{_BASE_URL} points to {where}{from_file}, not to the gateway at {gateway_url}"
        found = [Finding("client", FindingLevel.WARN, says, _APPLY)]
    return found + list(_conflicts(environ))


def plugin_finding(enabled: Mapping[str, bool]) -> Finding:
    """Whether Claude Code has our plugin; `enabled` are the plugins that its settings name."""
    ours = [name for name in enabled if name.partition("@")[0] == "jackline"]
    turned_on = [name for name in ours if enabled[name]]
    if turned_on:
        return Finding("plugin", FindingLevel.OK, f"{turned_on[0]} is on in Claude Code's settings")
    if ours:
        says = f"{ours[0]} is turned off in Claude Code's settings"
        return Finding("plugin", FindingLevel.WARN, says, "turn it on with /plugin in Claude Code")
    says = "Claude Code's settings name none of ours; calls are carried without it, too"
    return Finding("plugin", FindingLevel.OK, says, "to have it: jackline plugin install")


def _missing(environ: Mapping[str, str], wanted: Mapping[str, str]) -> list[Finding]:
    missing = [name for name in wanted if not _value(environ, name)]
    if not missing:
        return []
    more = f" (and {len(missing) - 1} more like it)" if len(missing) > 1 else ""
    says = f"{missing[0]} is not set: {wanted[missing[0]]}{more}"
    return [Finding("client waiting", FindingLevel.WARN, says, _APPLY)]


def _conflicts(environ: Mapping[str, str]) -> Sequence[Finding]:
    found = []
    for name in _PAST_THE_GATEWAY:
        if _value(environ, name).lower() not in _OFF:
            says = f"{name} is set: Claude Code then does not look at {_BASE_URL}"
            fix = f"unset {name}, and add that cloud as an upstream: jackline upstream add"
            found.append(Finding("client conflict", FindingLevel.WARN, says, fix))
    if all(_value(environ, name) for name in _KEYS):
        says = f"{' and '.join(_KEYS)} are both set: which one is sent is the client's choice"
        found.append(Finding("client conflict", FindingLevel.WARN, says, "unset one of them"))
    return found


def _value(environ: Mapping[str, str], name: str) -> str:
    return (environ.get(name) or environ.get(name.lower()) or "").strip()


def _host_and_port(url: str) -> str:
    """The address without whatever else stands in it, a password above all."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return "an address that cannot be read"
    return f"{host}:{port}" if port else str(host)


def _same_place(one: str, other: str) -> bool:
    try:
        first, second = urlsplit(one), urlsplit(other)
        ports = (first.port or 80, second.port or 80)
    except ValueError:
        return False
    hosts = {"here" if p.hostname in _HERE else p.hostname for p in (first, second)}
    return ports[0] == ports[1] and len(hosts) == 1
