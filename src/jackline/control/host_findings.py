"""Judge what was seen of this machine: its clients' environment, the gateway, ports, disk, journal.

Laws: as in doctor.py; a variable's value is told only where it is an address without credentials.
Not here: looking (assembly/probing.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from jackline.control.doctor import Finding, Mark

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
            return Finding("gateway", Mark.WARN, says, "jackline down, then: jackline up")
        return Finding("gateway", Mark.OK, f"answers at {seen.url}")
    if seen.port_taken:
        who = seen.holder or "another program"
        says = f"does not run, and {who} has its port ({seen.url})"
        return Finding(
            "gateway", Mark.FAIL, says, "end that program, or choose: jackline up --port"
        )
    return Finding("gateway", Mark.WARN, "does not run; its port is free", "jackline up")


def state_findings(seen: StateSeen) -> list[Finding]:
    """The folder, its disk and its journal."""
    folder = Finding("state folder", Mark.OK, f"{seen.folder} can be written to")
    if seen.problem is not None:
        says = f"{seen.folder} cannot be used: {seen.problem}"
        fix = "name another folder with --state or JACKLINE_STATE"
        folder = Finding("state folder", Mark.FAIL, says, fix)
    elif seen.readable_by_others:
        says = f"{seen.folder} can be read by other users of this machine"
        folder = Finding("state folder", Mark.WARN, says, f"chmod 700 {seen.folder}")
    return [folder, _disk(seen.free_bytes), _journal(seen)]


def _disk(free: int | None) -> Finding:
    if free is None:
        return Finding("disk", Mark.WARN, "its free space cannot be told")
    told = f"{free // _MEGABYTE:,} MB free"
    if free < 100 * _MEGABYTE:
        return Finding("disk", Mark.FAIL, f"only {told}: nothing can be kept", "free some space")
    if free < 1024 * _MEGABYTE:
        return Finding("disk", Mark.WARN, f"only {told}", "free some space")
    return Finding("disk", Mark.OK, told)


def _journal(seen: StateSeen) -> Finding:
    if seen.journal is not None:
        return Finding("journal", Mark.FAIL, seen.journal, seen.journal_fix)
    if seen.calls is None:
        return Finding("journal", Mark.OK, "none yet: the first gateway begins one")
    calls = f"{seen.calls} call{'' if seen.calls == 1 else 's'} in the last day"
    return Finding("journal", Mark.OK, f"can be read, {calls}")


def proxy_finding(environ: Mapping[str, str]) -> Finding:
    """The proxy that the environment names, and whether it stands before this machine itself."""
    named = next((name for name in _PROXIES if _value(environ, name)), None)
    if named is None:
        return Finding("proxy", Mark.OK, "none in the environment")
    where = _host_and_port(_value(environ, named))
    exempt = {part.strip().lower() for part in _value(environ, "NO_PROXY").split(",")}
    if not exempt & {*_HERE, "*"}:
        says = f"{named} ({where}) would also take calls to the gateway on this machine"
        return Finding("proxy", Mark.WARN, says, "add 127.0.0.1,localhost to NO_PROXY")
    return Finding("proxy", Mark.OK, f"{where}, by {named}")


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
        found = [Finding("client", Mark.WARN, says, _APPLY)]
    elif _same_place(address, gateway_url):
        found = [Finding("client", Mark.OK, f"{_BASE_URL} points to the gateway{from_file}")]
        found += _missing(environ, wanted)
    else:
        where = _host_and_port(address)
        says = f"{_BASE_URL} points to {where}{from_file}, not to the gateway at {gateway_url}"
        found = [Finding("client", Mark.WARN, says, _APPLY)]
    return found + list(_conflicts(environ))


def plugin_finding(enabled: Mapping[str, bool]) -> Finding:
    """Whether Claude Code has our plugin; `enabled` are the plugins that its settings name."""
    ours = [name for name in enabled if name.partition("@")[0] == "jackline"]
    turned_on = [name for name in ours if enabled[name]]
    if turned_on:
        return Finding("plugin", Mark.OK, f"{turned_on[0]} is on in Claude Code's settings")
    if ours:
        says = f"{ours[0]} is turned off in Claude Code's settings"
        return Finding("plugin", Mark.WARN, says, "turn it on with /plugin in Claude Code")
    says = "Claude Code's settings name none of ours; calls are carried without it, too"
    return Finding("plugin", Mark.OK, says, "to have it: jackline plugin install")


def _missing(environ: Mapping[str, str], wanted: Mapping[str, str]) -> list[Finding]:
    missing = [name for name in wanted if not _value(environ, name)]
    if not missing:
        return []
    more = f" (and {len(missing) - 1} more like it)" if len(missing) > 1 else ""
    says = f"{missing[0]} is not set: {wanted[missing[0]]}{more}"
    return [Finding("client waiting", Mark.WARN, says, _APPLY)]


def _conflicts(environ: Mapping[str, str]) -> Sequence[Finding]:
    found = []
    for name in _PAST_THE_GATEWAY:
        if _value(environ, name).lower() not in _OFF:
            says = f"{name} is set: Claude Code then does not look at {_BASE_URL}"
            fix = f"unset {name}, and add that cloud as an upstream: jackline upstream add"
            found.append(Finding("client conflict", Mark.WARN, says, fix))
    if all(_value(environ, name) for name in _KEYS):
        says = f"{' and '.join(_KEYS)} are both set: which one is sent is the client's choice"
        found.append(Finding("client conflict", Mark.WARN, says, "unset one of them"))
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
