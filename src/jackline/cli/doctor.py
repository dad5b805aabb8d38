"""`jackline doctor`: check everything between clients and upstreams, and show what to fix.

Rules: (1) one line per check: glyph, level, what was checked, what was found, and below it the fix;
(2) nothing is changed, no paid call is made, no credential is shown; (3) what cannot be checked
because of another fault is left out, not guessed; (4) channels for messages are tested by sending
one that says so.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import click

from jackline import __version__, event_loop
from jackline.agents.claude_code.environment import CLIENT_VARIABLES
from jackline.assembly import StateDir
from jackline.assembly.gateway_process import find
from jackline.cli.gateway_flags import configured, gateway_flags
from jackline.cli.terminal import say
from jackline.clients.claude_code import settings_file
from jackline.clock import Clock, SystemClock
from jackline.config import Config
from jackline.config.references import resolve
from jackline.control.doctor import (
    Finding,
    FindingLevel,
    Reached,
    client_findings,
    clock_finding,
    gateway_finding,
    limits_finding,
    message_findings,
    no_status_page,
    nothing_fails,
    plugin_finding,
    proxy_finding,
    status_page_finding,
)
from jackline.control.probes import (
    credential_problem,
    is_port_taken,
    look_at_state,
    port_holder,
    reach,
)
from jackline.errors import BadConfigError, UnsafeFileError, UntrustedGatewayError, UsageError
from jackline.foreign_files import object_in
from jackline.gateway.status_pages import PRESETS as WELL_KNOWN
from jackline.gateway.status_pages import StatusPages, vendor_of
from jackline.gateway.vendor_limits import UnreadLimitsError, VendorLimits
from jackline.local_address import local_url
from jackline.notifications.delivery import send
from jackline.notifications.incidents import IncidentMessage
from jackline.notifications.settings import IncidentKind
from jackline.private_files import NotPrivateError, installation_key
from jackline.providers.settings import Credential, UpstreamSettings

_GLYPHS = {FindingLevel.OK: "✓", FindingLevel.WARN: "!", FindingLevel.FAIL: "✗"}
_PLAIN_GLYPHS = {FindingLevel.OK: "+", FindingLevel.WARN: "!", FindingLevel.FAIL: "x"}
_CREDENTIAL_WORDS = {
    Credential.PASS_THROUGH: "each client brings its own",
    Credential.NONE: "none is needed",
    Credential.VENDOR: "the vendor's library has one",
}


@click.command()
@gateway_flags
@click.option("--no-notify", is_flag=True, help="Send no test message.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def doctor(flags: Mapping[str, object], no_notify: bool, as_json: bool) -> int:
    """Check the way from your clients to the upstreams, and show what to fix.

    It checks names, certificates, clock, proxy, credentials, each upstream, its limits if there is
    an admin key, status pages, the clients' environment and plugin, the gateway, its port, disk and
    journal. It makes no paid call and shows no credential. By every channel that is set under
    [notify] it sends one test message.

    Exit codes: 0 no check fails, 1 one does.
    """
    clock = SystemClock()
    settings: Config | None = None
    try:
        settings = configured(flags)
    except BadConfigError as error:
        findings = [Finding("configuration", FindingLevel.FAIL, error.message, error.hint)]
        with suppress(BadConfigError):  # the same fault again, unless it is in a secret
            settings = configured(flags, with_secrets=False)
    else:
        files = ", ".join(str(file) for file in settings.files) or "no file, defaults"
        findings = [Finding("configuration", FindingLevel.OK, files)]
    if settings is not None:
        has_secrets = nothing_fails(findings)
        findings += event_loop.run(_check_upstreams(settings, clock, has_secrets=has_secrets))
        findings += _check_host(settings, clock)
        if has_secrets and not no_notify:
            sent = send(_test_message(clock), settings.notify)
            findings += message_findings([(each.way, each.trouble) for each in sent])
    ok = nothing_fails(findings)
    if as_json:
        document = {
            "schema": "jackline.doctor/1",
            "ok": ok,
            "findings": [finding.to_json() for finding in findings],
        }
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return 0 if ok else 1
    glyphs = _GLYPHS
    try:
        "".join(glyphs.values()).encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        glyphs = _PLAIN_GLYPHS
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        mark = finding.mark
        indent = width + 10
        line = f"{glyphs[mark]} {mark:<4}  {finding.check:<{width}}  {finding.says}"
        say(line, indent=indent)
        if finding.fix:
            say(f"{'fix:':>{indent - 2}}  {finding.fix}", indent=6)
    return 0 if ok else 1


async def _check_upstreams(config: Config, clock: Clock, *, has_secrets: bool) -> list[Finding]:
    upstreams = config.gateway.upstreams
    if not has_secrets:
        # Without its value a secret is only a reference, which must not be sent as a key.
        upstreams = tuple(
            each if each.secret is None else replace(each, credential=Credential.NONE, secret=None)
            for each in upstreams
        )
    results = await asyncio.gather(*(_check_upstream(each, clock) for each in upstreams))
    found = [finding for findings, _ in results for finding in findings]
    reached = [one for _, one in results if one is not None]
    pages = await _check_status_pages(config.gateway.upstreams, clock)
    vendors = VendorLimits(
        config.gateway.upstreams,
        lambda text: resolve(text, os.environ),
        {},
        clock,
        lambda: 0.5,
        os.environ,
    )

    async def check_limits(name: str) -> Finding:
        try:
            return limits_finding(name, len((await vendors.read(name)).limits))
        except UnreadLimitsError as error:
            return limits_finding(name, None, str(error), error.fix)

    names = [each.name for each in config.gateway.upstreams if each.admin_key is not None]
    try:
        limits = await asyncio.gather(*map(check_limits, names))
    finally:
        await vendors.close()
    others = [clock_finding(reached), proxy_finding(os.environ)]
    return [*dict.fromkeys(found), *limits, *pages, *others]


async def _check_upstream(
    settings: UpstreamSettings, clock: Clock
) -> tuple[list[Finding], Reached | None]:
    problem = await credential_problem(settings, os.environ)
    if problem is None:
        words = _CREDENTIAL_WORDS.get(settings.credential, "there, and not shown")
        credential = Finding(f"credential {settings.name}", FindingLevel.OK, words)
    else:
        says = f"cannot be read: {problem}"
        fix = "log in with the vendor's own tool (aws, gcloud), or name a key"
        if isinstance(problem, UsageError):
            says, fix = problem.message, problem.hint
        credential = Finding(f"credential {settings.name}", FindingLevel.FAIL, says, fix)
    try:
        reached = await reach(settings, os.environ, clock)
    except UsageError as error:
        # It cannot even be called; a failed credential has the same text.
        fault = Finding(f"upstream {settings.name}", FindingLevel.FAIL, error.message, error.hint)
        return [fault] if credential.mark is not FindingLevel.FAIL else [credential], None
    return [credential, *reached.findings(clock.now())], reached


async def _check_status_pages(upstreams: Sequence[UpstreamSettings], clock: Clock) -> list[Finding]:
    """What each configured page reports; without any, that there could be one."""
    wanted = {each.name: each.status_page for each in upstreams if each.status_page}
    if not wanted:
        hosts = [urlsplit(each.url).hostname or "" for each in upstreams]
        return [no_status_page({host: WELL_KNOWN[host] for host in hosts if host in WELL_KNOWN})]
    pages = StatusPages(wanted, lambda _: True, clock, lambda: 0.0, os.environ)
    try:
        reports = await asyncio.gather(*(pages.reports(name) for name in wanted))
    finally:
        await pages.close()
    return [
        status_page_finding(name, urlsplit(url).netloc, each, vendor_of(url) or name)
        for (name, url), each in zip(wanted.items(), reports, strict=True)
    ]


def _test_message(clock: Clock) -> IncidentMessage:
    text = "This is a test message of `jackline doctor`. Nothing is wrong."
    return IncidentMessage(IncidentKind.NEEDS_YOU, "Jackline: a test", text, clock.wall())


def _check_host(config: Config, clock: Clock) -> list[Finding]:
    listen = config.gateway.listen
    trust: list[Finding] = []
    try:
        running = find(StateDir(config.state_dir), listen)
    except (UntrustedGatewayError, UnsafeFileError) as error:
        running = None
        trust.append(Finding("trust", FindingLevel.FAIL, error.message, error.hint))
    try:
        installation_key(make=False)
    except FileNotFoundError:
        pass  # the first gateway creates it
    except OSError as error:
        fix = error.fix if isinstance(error, NotPrivateError) else "make it readable for you"
        says = f"{error.filename} {error.strerror}, so that no gateway can prove to be yours"
        trust.append(Finding("installation key", FindingLevel.FAIL, says, fix))
    url = local_url(listen.host, listen.port) if running is None else running.url
    version, holder = None if running is None else running.version, None
    if running is None and is_port_taken(listen.host, listen.port):
        holder = port_holder(listen.port) or "another program"
    reasons = {variable.name: variable.reason for variable in CLIENT_VARIABLES}
    user, project = settings_file(os.environ), Path.cwd() / ".claude"
    # Claude Code's own settings go over the shell's variables, and nearer files over farther ones.
    env = object_in(user).get("env")
    variables = {str(n): str(v) for n, v in env.items()} if isinstance(env, dict) else {}
    plugins: dict[str, bool] = {}
    for file in (user, project / "settings.json", project / "settings.local.json"):
        enabled = object_in(file).get("enabledPlugins")
        if isinstance(enabled, dict):
            plugins |= {str(name): bool(on) for name, on in enabled.items()}
    origins = dict.fromkeys(variables, str(user))
    return [
        *client_findings({**os.environ, **variables}, url, reasons, origins),
        plugin_finding(plugins),
        gateway_finding(url, version, __version__, holder),
        *trust,
        *look_at_state(config.state_dir, clock.wall()).findings(),
    ]
