"""`jackline doctor`: check everything between clients and upstreams, and say what to fix.

Rules: (1) one line per check: glyph, word, what was checked, what was found, and below it the fix;
(2) nothing is changed, no paid call is made, no credential is shown; (3) what cannot be checked
because of another fault is left out, not guessed.
Not here: looking (control/probes.py), judging (control/doctor.py).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import click

from jackline import __version__, event_loop
from jackline.agents.claude_code.environment import CLIENT_VARIABLES
from jackline.assembly import StateDir, local_url
from jackline.assembly.gateway_process import find
from jackline.cli.gateway_flags import configured, gateway_flags
from jackline.cli.port_holder import port_holder
from jackline.clients.claude_code import settings_file
from jackline.clock import Clock, SystemClock
from jackline.config import Config
from jackline.config.references import resolve
from jackline.control.doctor import (
    Finding,
    FindingLevel,
    GatewaySeen,
    Reached,
    client_findings,
    clock_finding,
    gateway_finding,
    limits_finding,
    no_status_page,
    nothing_fails,
    plugin_finding,
    proxy_finding,
    state_findings,
    status_page_finding,
    upstream_findings,
)
from jackline.control.probes import credential_problem, is_port_taken, look_at_state, reach
from jackline.errors import BadConfigError, UnsafeFileError, UntrustedGatewayError, UsageError
from jackline.foreign_files import object_in
from jackline.gateway.status_pages import PRESETS as WELL_KNOWN
from jackline.gateway.status_pages import StatusPages, vendor_of
from jackline.gateway.vendor_limits import UnreadLimitsError, VendorLimits
from jackline.private_files import NotPrivateError, installation_key
from jackline.providers.settings import Credential, UpstreamSettings

_GLYPHS = {FindingLevel.OK: "✓", FindingLevel.WARN: "!", FindingLevel.FAIL: "✗"}
_PLAIN_GLYPHS = {FindingLevel.OK: "+", FindingLevel.WARN: "!", FindingLevel.FAIL: "x"}
_HELD = {
    Credential.PASS_THROUGH: "each client brings its own",
    Credential.NONE: "none is needed",
    Credential.VENDOR: "the vendor's library has one",
}


@click.command()
@gateway_flags
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def doctor(
    port: int | None, upstream: str | None, state: str | None, config: str | None, as_json: bool
) -> int:
    """Check the way from your clients to the upstreams, and say what to fix.

    Names, certificates, clock, proxy, credentials, each upstream, its limits where an admin key
    is named, status pages, the clients' environment and plugin, the gateway, its port, disk and
    journal. No paid call is made and no credential is shown.

    Exit codes: 0 nothing fails, 1 something does.
    """
    flags = {"port": port, "upstream": upstream, "state": state, "config": config}
    clock = SystemClock()
    findings, settings = _configuration(flags)
    if settings is not None:
        whole = nothing_fails(findings)
        findings += event_loop.run(_upstreams(settings, clock, has_secrets=whole))
        findings += _host(settings, clock)
    if as_json:
        document = {
            "schema": "jackline.doctor/1",
            "ok": nothing_fails(findings),
            "findings": [finding.to_json() for finding in findings],
        }
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        _print(findings)
    return 0 if nothing_fails(findings) else 1


def _configuration(flags: Mapping[str, object]) -> tuple[list[Finding], Config | None]:
    """The settings; where a secret cannot be had, the others are still looked at."""
    try:
        settings = configured(flags)
    except BadConfigError as error:
        fault = Finding("configuration", FindingLevel.FAIL, error.message, error.next)
    else:
        files = ", ".join(str(file) for file in settings.files) or "no file, defaults"
        return [Finding("configuration", FindingLevel.OK, files)], settings
    try:
        return [fault], configured(flags, with_secrets=False)
    except BadConfigError:
        return [fault], None  # the same fault again: it is in the file itself


async def _upstreams(config: Config, clock: Clock, *, has_secrets: bool) -> list[Finding]:
    settings = config.gateway.upstreams
    if not has_secrets:
        settings = tuple(_without_secret(each) for each in settings)
    looks = await asyncio.gather(*(_one_upstream(each, clock) for each in settings))
    found = [finding for findings, _ in looks for finding in findings]
    reached = [one for _, one in looks if one is not None]
    pages = await _status_pages(config.gateway.upstreams, clock)
    limits = await _limits(config.gateway.upstreams, clock)
    others = [clock_finding(reached), proxy_finding(os.environ)]
    return [*dict.fromkeys(found), *limits, *pages, *others]


async def _limits(upstreams: Sequence[UpstreamSettings], clock: Clock) -> list[Finding]:
    """What the rate-limits API tells of each upstream that has an admin key."""
    asked = [each.name for each in upstreams if each.admin_key is not None]
    limits = VendorLimits(
        upstreams, lambda text: resolve(text, os.environ), {}, clock, lambda: 0.5, os.environ
    )

    async def one(name: str) -> Finding:
        try:
            return limits_finding(name, len((await limits.read(name)).limits))
        except UnreadLimitsError as error:
            return limits_finding(name, None, str(error), error.fix)

    try:
        return list(await asyncio.gather(*map(one, asked)))
    finally:
        await limits.close()


async def _status_pages(upstreams: Sequence[UpstreamSettings], clock: Clock) -> list[Finding]:
    """What each configured page says; without any, that there could be one."""
    wanted = {each.name: each.status_page for each in upstreams if each.status_page}
    if not wanted:
        hosts = [urlsplit(each.url).hostname or "" for each in upstreams]
        return [no_status_page({host: WELL_KNOWN[host] for host in hosts if host in WELL_KNOWN})]
    pages = StatusPages(wanted, lambda _: True, clock, lambda: 0.0, os.environ)
    try:
        told = await asyncio.gather(*(pages.reports(name) for name in wanted))
    finally:
        await pages.close()
    found = zip(wanted.items(), told, strict=True)
    return [
        status_page_finding(name, urlsplit(url).netloc, reports, vendor_of(url) or name)
        for (name, url), reports in found
    ]


def _without_secret(settings: UpstreamSettings) -> UpstreamSettings:
    """The same, asked without a key: where its value should be stands a reference to it."""
    if settings.secret is None:
        return settings
    return replace(settings, credential=Credential.NONE, secret=None)


async def _one_upstream(
    settings: UpstreamSettings, clock: Clock
) -> tuple[list[Finding], Reached | None]:
    problem = await credential_problem(settings, os.environ)
    credential = _credential(settings, problem)
    try:
        reached = await reach(settings, os.environ, clock)
    except UsageError as error:
        # It cannot even be spoken to; the same words stand in the line before.
        fault = Finding(f"upstream {settings.name}", FindingLevel.FAIL, error.message, error.next)
        return [fault] if credential.mark is not FindingLevel.FAIL else [credential], None
    return [credential, *upstream_findings(reached, clock.now())], reached


def _credential(settings: UpstreamSettings, problem: UsageError | OSError | None) -> Finding:
    check = f"credential {settings.name}"
    if isinstance(problem, UsageError):
        return Finding(check, FindingLevel.FAIL, problem.message, problem.next)
    if problem is not None:
        fix = "log in with the vendor's own tool (aws, gcloud), or name a key"
        return Finding(check, FindingLevel.FAIL, f"cannot be had: {problem}", fix)
    return Finding(check, FindingLevel.OK, _HELD.get(settings.credential, "there, and not shown"))


def _host(config: Config, clock: Clock) -> list[Finding]:
    listen = config.gateway.listen
    unproven: list[Finding] = []
    try:
        running = find(StateDir(config.state_dir), listen)
    except (UntrustedGatewayError, UnsafeFileError) as error:
        running = None
        unproven = [Finding("trust", FindingLevel.FAIL, error.message, error.next)]
    url = local_url(listen.host, listen.port) if running is None else running.url
    taken = running is None and is_port_taken(listen.host, listen.port)
    gateway = GatewaySeen(
        url,
        runs=running is not None,
        version="" if running is None else running.version,
        our_version=__version__,
        port_taken=taken,
        holder=port_holder(listen.port) if taken else None,
    )
    wanted = {variable.name: variable.reason for variable in CLIENT_VARIABLES}
    theirs, place = _claude_settings()
    environ = {**os.environ, **theirs}
    return [
        *client_findings(environ, url, wanted, dict.fromkeys(theirs, place)),
        plugin_finding(_claude_plugins()),
        gateway_finding(gateway),
        *unproven,
        *_key_findings(),
        *state_findings(look_at_state(config.state_dir, clock.wall())),
    ]


def _key_findings() -> list[Finding]:
    """Why no gateway can prove that it is this user's; nothing while it can."""
    try:
        installation_key(make=False)
    except FileNotFoundError:
        return []  # the first gateway makes it
    except OSError as error:
        fix = error.fix if isinstance(error, NotPrivateError) else "make it readable for you"
        says = f"{error.filename} {error.strerror}, so that no gateway can prove to be yours"
        return [Finding("installation key", FindingLevel.FAIL, says, fix)]
    return []


def _claude_settings() -> tuple[dict[str, str], str]:
    """What Claude Code's own settings put into its environment, over the shell's."""
    file = settings_file(os.environ, Path.home(), None)
    variables = object_in(file).get("env")
    kept = variables if isinstance(variables, dict) else {}
    return {str(name): str(value) for name, value in kept.items()}, str(file)


def _claude_plugins() -> dict[str, bool]:
    """The plugins that Claude Code's settings name here, the nearer over the farther ones."""
    user = settings_file(os.environ, Path.home(), None)
    project = Path.cwd() / ".claude"
    files = [user, project / "settings.json", project / "settings.local.json"]
    found: dict[str, bool] = {}
    for file in files:
        enabled = object_in(file).get("enabledPlugins")
        if isinstance(enabled, dict):
            found |= {str(name): bool(on) for name, on in enabled.items()}
    return found


def _print(findings: Sequence[Finding]) -> None:
    glyphs = _GLYPHS if _can_print("".join(_GLYPHS.values())) else _PLAIN_GLYPHS
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        mark = finding.mark
        click.echo(f"{glyphs[mark]} {mark:<4}  {finding.check:<{width}}  {finding.says}")
        if finding.fix:
            click.echo(f"{'fix:':>{width + 14}}  {finding.fix}"[6:])


def _can_print(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
