"""Judge the probes of the upstreams and of this machine: one finding per check, with its fix.

Rules: (1) pure: results of probes come in, findings go out, each in one sentence with its fix; (2)
the meaning of an answer or an error is decided by failures/; (3) no key, and no address that holds
one, is shown; a variable's value only where it is an address without credentials.
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
from jackline.local_address import HOSTS

_NETWORK = "check this machine's network, VPN and firewall"
_BUSY = frozenset({Kind.SERVER_THROTTLE, Kind.RATE_LIMIT, Kind.ACCOUNT_QUOTA, Kind.BILLING})
_DOWN = frozenset({Kind.OVERLOADED, Kind.UPSTREAM_5XX, Kind.NETWORK_EDGE, Kind.TIMEOUT})
_BASE_URL = "ANTHROPIC_BASE_URL"
_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
_APPLY = 'eval "$(jackline env)", or start clients with: jackline claude'
_MEGABYTE = 1024 * 1024


class FindingLevel(StrEnum):
    """Whether a finding needs something to be done."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


OK, WARN, FAIL = FindingLevel


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was checked, the result, and what to do about it."""

    check: str
    mark: FindingLevel
    says: str
    fix: str = ""

    def to_json(self) -> dict[str, str]:
        """The same for programs."""
        return {"check": self.check, "mark": self.mark, "says": self.says, "fix": self.fix}


def nothing_fails(findings: Sequence[Finding]) -> bool:
    """Whether no check failed."""
    return all(finding.mark is not FAIL for finding in findings)


@dataclass(frozen=True, slots=True)
class Reached:
    """The result of a request to one upstream that costs nothing.

    `addresses` is None where no name had to be looked up. `shows_key`: the upstream's own
    credential was sent. `skew` is how far its clock is ahead of ours, in seconds.
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

    @property
    def where(self) -> str:
        """Its address, and the proxy before it."""
        return f"{self.authority}{f' through the proxy {self.proxy}' if self.proxy else ''}"

    def findings(self, now: datetime) -> list[Finding]:
        """The name, the certificate and the answer of one upstream."""
        if self.lookup_error is not None:
            says = f"cannot be looked up: {self.lookup_error}"
            return [Finding(f"dns {self.host}", FAIL, says, f"{_NETWORK}, and its DNS server")]
        found = []
        if self.addresses is not None:
            addresses = f"{self.addresses} address{'' if self.addresses == 1 else 'es'}"
            found.append(Finding(f"dns {self.host}", OK, addresses))
        document: object = None
        try:
            document = json.loads(self.body)
        except (ValueError, RecursionError):
            document = None  # a web page, or nothing: not the API
        failure: Failure | None = None
        if self.error is not None:
            failure = classify(Observation.of_exception(self.error), now=now)
            text = str(self.error) or type(self.error).__name__
        else:
            is_document = isinstance(document, dict | list)
            if self.status is not None and (self.status >= 300 or not is_document):
                seen = Observation.of_response(self.status, self.headers, self.body)
                failure = classify(seen, now=now)
            text = f"status {self.status}"
        error = redact(" ".join(text.split()), 160)
        check = f"tls {self.authority}"
        if not self.secure:
            if not self.on_this_machine:
                says = "calls and keys travel without encryption"
                found.append(Finding(check, WARN, says, "write its address as https://"))
        elif failure is not None and failure.sub == "tls":
            fix = (
                "if your company inspects traffic, name its certificates as ca_file of the upstream"
                " or in SSL_CERT_FILE; else do not go on: somebody intercepts the connection"
            )
            return [*found, Finding(check, FAIL, f"the certificate is not trusted: {error}", fix)]
        elif self.error is None:
            found.append(Finding(check, OK, "trusted"))
        if failure is not None:
            return [*found, self._failed_answer(failure, error)]
        models = document.get("data") if isinstance(document, dict) else document
        listed = ""
        if isinstance(models, list) and models:
            listed = f", {len(models)} model{'' if len(models) == 1 else 's'}"
        return [*found, Finding(f"upstream {self.name}", OK, f"{self.where} answers{listed}")]

    def _failed_answer(self, failure: Failure, error: str) -> Finding:
        check, kind, where = f"upstream {self.name}", failure.kind, self.where
        # APIs do not redirect; log-in pages do.
        redirects = self.status is not None and 300 <= self.status < 400
        if failure.sub in ("captive_portal", "malformed_200") or redirects:
            says = f"a web page answers in place of {where}"
            return Finding(check, FAIL, says, "log in to this network in a browser, then try again")
        if self.error is not None or kind in _DOWN:
            fix = "wait, or send calls elsewhere: jackline upstream use NAME"
            if self.error is not None:
                fix = (
                    "check the proxy's address and password" if failure.sub == "proxy" else _NETWORK
                )
            return Finding(check, FAIL, f"{where} cannot be used now: {error}", fix)
        if kind is Kind.AUTH and self.shows_key:
            says = f"{where} refuses the credential that is configured"
            return Finding(check, FAIL, says, "put a valid one where its reference points to")
        if kind in _BUSY:
            says = f"{where} answers, but limits this account now: {error}"
            return Finding(check, WARN, says, "jackline status shows until when")
        wants = ", and wants a credential, as it should" if kind is Kind.AUTH else ""
        return Finding(check, OK, f"{where} answers{wants}")


@dataclass(frozen=True, slots=True)
class StateSeen:
    """The state folder; `problem` is why it cannot be used, `journal` why its journal cannot."""

    folder: str
    problem: str | None = None
    readable_by_others: bool = False
    free_bytes: int | None = None
    journal: str | None = None
    journal_fix: str = ""
    calls: int | None = None
    """Calls of the last day; None without a journal."""

    def findings(self) -> list[Finding]:
        """The folder, its disk and its journal."""
        folder = Finding("state folder", OK, f"{self.folder} can be written to")
        if self.problem is not None:
            says = f"{self.folder} cannot be used: {self.problem}"
            fix = "name another folder with --state or JACKLINE_STATE"
            folder = Finding("state folder", FAIL, says, fix)
        elif self.readable_by_others:
            says = f"{self.folder} can be read by other users of this machine"
            folder = Finding("state folder", WARN, says, f"chmod 700 {self.folder}")
        free = f"{(self.free_bytes or 0) // _MEGABYTE:,} MB free"
        disk = Finding("disk", OK, free)
        if self.free_bytes is None:
            disk = Finding("disk", WARN, "its free space is not known")
        elif self.free_bytes < 100 * _MEGABYTE:
            disk = Finding("disk", FAIL, f"only {free}: nothing can be saved", "free some space")
        elif self.free_bytes < 1024 * _MEGABYTE:
            disk = Finding("disk", WARN, f"only {free}", "free some space")
        journal = Finding("journal", OK, "none yet: the first gateway begins one")
        if self.journal is not None:
            journal = Finding("journal", FAIL, self.journal, self.journal_fix)
        elif self.calls is not None:
            calls = f"{self.calls} call{'' if self.calls == 1 else 's'} in the last day"
            journal = Finding("journal", OK, f"can be read, {calls}")
        return [folder, disk, journal]


def gateway_finding(
    url: str, version: str | None, our_version: str, holder: str | None = None
) -> Finding:
    """Whether the gateway of this state folder runs, or could.

    `version` is None if it does not run; `holder` is the program that has its port then, if any.
    """
    if version is not None and version != our_version:
        says = f"answers at {url}, but is version {version}, not {our_version}"
        return Finding("gateway", WARN, says, "jackline down, then: jackline up")
    if version is not None:
        return Finding("gateway", OK, f"answers at {url}")
    if holder is not None:
        says = f"does not run, and {holder} has its port ({url})"
        return Finding("gateway", FAIL, says, "end that program, or choose: jackline up --port")
    return Finding("gateway", WARN, "does not run; its port is free", "jackline up")


def clock_finding(reached: Sequence[Reached]) -> Finding:
    """Whether this machine's clock is right, by the clocks of the others.

    The one that differs least counts: a single server that agrees shows that ours is right.
    """
    skews = [one.skew for one in reached if one.skew is not None]
    if not skews:
        return Finding("clock", OK, "not compared: no upstream sent its time")
    skew = min(skews, key=abs)
    if abs(skew) <= 30.0:
        return Finding("clock", OK, "agrees with the upstreams")
    off = duration_in_words(timedelta(seconds=abs(round(skew))))
    way = "behind" if skew > 0 else "ahead"
    # Clouds refuse signatures that are five minutes old.
    mark = FAIL if abs(skew) > 240.0 else WARN
    says = f"this machine is {off} {way}: resets and signatures go wrong"
    return Finding("clock", mark, says, "turn on time synchronisation (NTP)")


def status_page_finding(
    name: str, host: str, reports: Sequence[str] | None, vendor: str
) -> Finding:
    """The reports of an upstream's status page; None when it cannot be read."""
    check = f"status page {name}"
    if reports is None:
        says = f"{host} has no status page that can be read now; calls do not depend on it"
        return Finding(check, WARN, says, "check status_page of the upstream, or leave it out")
    if not reports:
        return Finding(check, OK, f"{host} answers: {vendor} reports no incident")
    more = f" (and {len(reports) - 1} more)" if len(reports) > 1 else ""
    fix = "if your calls fail: jackline upstream use NAME sends them elsewhere"
    return Finding(check, WARN, f"{reports[0]}{more}", fix)


def limits_finding(name: str, models: int | None, problem: str = "", fix: str = "") -> Finding:
    """The models that a vendor's rate-limits API lists; None when it cannot be read."""
    check = f"limits {name}"
    if models is None:
        says = f"cannot be read from its vendor: {problem}; lanes learn them from headers"
        return Finding(check, WARN, says, fix)
    if not models:
        says = "its vendor's rate-limits API lists no model; lanes learn them from headers"
        return Finding(check, WARN, says, "check workspace and project of the upstream")
    many = "1 model" if models == 1 else f"{models} models"
    return Finding(check, OK, f"its vendor's rate-limits API lists {many}")


def message_findings(results: Sequence[tuple[str, str]]) -> list[Finding]:
    """The result of a test message by each channel, with its trouble if any."""
    if not results:
        return [Finding("notifications", OK, "no channel is set under [notify]")]
    fix = "mend it under [notify] in your own jackline.toml: jackline config path"
    return [
        Finding(f"notify {way}", FAIL, f"the test message was not sent: {trouble}", fix)
        if trouble
        else Finding(f"notify {way}", OK, "a test message was sent")
        for way, trouble in results
    ]


def no_status_page(hosts: Mapping[str, str]) -> Finding:
    """That none is configured; `hosts` are well-known pages by the hosts of upstreams in use."""
    if not hosts:
        return Finding("status pages", OK, "none is configured")
    page = next(iter(hosts.values()))
    says = f'none is configured; status_page = "{page}" would be read during trouble'
    return Finding("status pages", OK, says)


def proxy_finding(environ: Mapping[str, str]) -> Finding:
    """The proxy that the environment names, and whether it takes calls to this machine itself."""
    proxies = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
    named = next((name for name in proxies if _value(environ, name)), None)
    if named is None:
        return Finding("proxy", OK, "none in the environment")
    where = _host_and_port(_value(environ, named))
    exempt = {part.strip().lower() for part in _value(environ, "NO_PROXY").split(",")}
    if not exempt & {*HOSTS, "*"}:
        says = f"{named} ({where}) would also take calls to the gateway on this machine"
        return Finding("proxy", WARN, says, "add 127.0.0.1,localhost to NO_PROXY")
    return Finding("proxy", OK, f"{where}, by {named}")


def client_findings(
    environ: Mapping[str, str],
    gateway_url: str,
    wanted: Mapping[str, str],
    origins: Mapping[str, str],
) -> list[Finding]:
    """Whether clients started here go through the gateway, and can wait there.

    `wanted` are the variables that waiting needs, with what happens without each; `origins` names
    the files of variables that come from a client's own settings.
    """
    address = _value(environ, _BASE_URL)
    from_file = f" (from {origins[_BASE_URL]})" if _BASE_URL in origins else ""
    if not address:
        says = f"{_BASE_URL} is not set: clients started here go past the gateway"
        found = [Finding("client", WARN, says, _APPLY)]
    elif _same_place(address, gateway_url):
        found = [Finding("client", OK, f"{_BASE_URL} points to the gateway{from_file}")]
        missing = [name for name in wanted if not _value(environ, name)]
        if missing:
            more = f" (and {len(missing) - 1} more like it)" if len(missing) > 1 else ""
            says = f"{missing[0]} is not set: {wanted[missing[0]]}{more}"
            found.append(Finding("client waiting", WARN, says, _APPLY))
    else:
        where = _host_and_port(address)
        says = f"{_BASE_URL} points to {where}{from_file}, not to the gateway at {gateway_url}"
        found = [Finding("client", WARN, says, _APPLY)]
    for name in ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"):
        if _value(environ, name).lower() not in ("", "0", "false", "no", "off"):
            says = f"{name} is set: Claude Code then ignores {_BASE_URL}"
            fix = f"unset {name}, and add that cloud as an upstream: jackline upstream add"
            found.append(Finding("client conflict", WARN, says, fix))
    if all(_value(environ, name) for name in _KEYS):
        says = f"{' and '.join(_KEYS)} are both set: which one is sent is the client's choice"
        found.append(Finding("client conflict", WARN, says, "unset one of them"))
    return found


def plugin_finding(enabled: Mapping[str, bool]) -> Finding:
    """Whether Claude Code has our plugin; `enabled` are the plugins that its settings name."""
    ours = [name for name in enabled if name.partition("@")[0] == "jackline"]
    turned_on = [name for name in ours if enabled[name]]
    if turned_on:
        return Finding("plugin", OK, f"{turned_on[0]} is on in Claude Code's settings")
    if ours:
        says = f"{ours[0]} is turned off in Claude Code's settings"
        return Finding("plugin", WARN, says, "turn it on with /plugin in Claude Code")
    says = "Claude Code's settings name none of ours; calls work without it, too"
    return Finding("plugin", OK, says, "to have it: jackline plugin install")


def _value(environ: Mapping[str, str], name: str) -> str:
    return (environ.get(name) or environ.get(name.lower()) or "").strip()


def _host_and_port(url: str) -> str:
    """The address alone, above all without a password."""
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
    hosts = {"here" if p.hostname in HOSTS else p.hostname for p in (first, second)}
    return ports[0] == ports[1] and len(hosts) == 1
