"""Complete and check the upstreams of a configuration, and turn them into settings.

Rules: (1) what is written wins over the preset, the preset over the kind's defaults; (2) by
default, clients' own credentials go only to the first upstream of Anthropic's dialect; (3) an
upstream that cannot work is a fault; (4) a warning says where calls and credentials go if their
owner may not expect it: what is sent, where to, and which line says so, never a secret; what the
user wrote on purpose is not warned of, except in a project's file.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from jackline.config.declaration import DEFAULTS
from jackline.config.document import ConfigFault, config_error
from jackline.config.files import is_file
from jackline.config.keys import dotted
from jackline.config.layers import Layer
from jackline.config.references import is_reference, resolve
from jackline.lanes import CacheTtl
from jackline.providers.presets import PRESETS, Preset
from jackline.providers.settings import (
    ANTHROPIC_HOST,
    KIND_FACTS,
    Credential,
    KindFacts,
    UpstreamKind,
    UpstreamSettings,
)

# Names that any pattern fits which is meant for Claude.
_CLAUDES = ("claude-opus-4-8", "claude-sonnet-4-6", "claude-haiku-4-5")


def credential_warning(  # noqa: PLR0913 -- all that a warning is made of
    name: str,
    credential: Credential,
    *,
    kind: UpstreamKind,
    url: str | None,
    reference: str | None,
    patterns: tuple[str, ...],
    is_meant: bool,
    where: str,
    of_project: bool,
) -> str | None:
    """The sentence for one upstream, or None where nothing can surprise."""
    target = urlsplit(url or "")
    host = target.hostname or ""
    if not url or is_loopback(host):
        return None
    passes_through = credential is Credential.PASS_THROUGH
    is_expected = (
        passes_through and host in kind.facts.own_hosts and not _takes_claude(kind, patterns)
    )
    if of_project and not is_expected:
        return f"{_what_goes(credential, reference)} to {url}, as {where} says"
    if target.scheme == "http" and credential is not Credential.NONE:
        return f"upstream {name}: credentials go to {host} unencrypted, as {where} says; use https"
    if passes_through and not is_expected and not is_meant:
        return (
            f"upstream {name}: whatever key or login a client sends is passed through to {host},"
            f' as {where} says; if that is meant, write credential = "pass-through"'
        )
    if passes_through and not is_expected and not kind.facts.serves_claude:
        return (
            f"upstream {name}: keys and logins for Anthropic, too, are passed through to {host},"
            " since its models stand in for Claude; give it a credential of its own"
        )
    return None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on this host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _takes_claude(kind: UpstreamKind, patterns: tuple[str, ...]) -> bool:
    if kind.facts.serves_claude:
        return False
    return any(
        pattern.startswith("claude") or any(fnmatchcase(name, pattern) for name in _CLAUDES)
        for pattern in patterns
    )


def _what_goes(credential: Credential, reference: str | None) -> str:
    if credential is Credential.PASS_THROUGH:
        return "calls and credentials go"
    if credential in (Credential.API_KEY, Credential.BEARER):
        return f"calls and what {reference} holds go"
    return "calls go"


_PLAIN = {key[1:]: value for key, value in DEFAULTS.items() if key[0] == "upstream"}


def complete(merged: Layer) -> None:
    """Fill in what presets, kinds and the order of upstreams say."""
    if not merged.upstreams:
        merged.upstreams = ["default"]
    for place in range(len(merged.upstreams)):
        one = _One(merged, place)
        preset = one.preset
        if preset is not None:
            one.fill("kind", preset.kind.value, f"preset {preset.name}")
            if preset.local:
                one.fill("local", True, f"preset {preset.name}")
        one.fill("kind", _PLAIN["kind",])
        one.fill("name", one.kind.value if preset is None else preset.name)
        _complete_address(one)
    passing = [each.place for each in _each(merged) if each.kind is UpstreamKind.ANTHROPIC][:1]
    for one in _each(merged):
        _complete_credential(one, passes_through=one.place in passing)
        for key, value in _PLAIN.items():
            # Filled in above where there is anything to say.
            merged.fill(one.key(*key), None if key in (("url",), ("credential",)) else value)


def check(merged: Layer, port: int) -> None:
    """Note what no single value can be blamed for; `port` is the gateway's own."""
    names: set[str] = set()
    for one in _each(merged):
        is_right = one.place not in merged.wrong_upstreams
        has_name = is_right or merged.origins[one.key("name")] != "default"
        if has_name and one.name in names:
            one.fault("name", f"another upstream is called {one.name} already; names must differ")
        names.add(one.name)
        if is_right:
            _check_address(one, port)
            _check_credential(one)
            _check_admin_key(one)
            _check_models(one)
            _check_caches(one)


def warn(merged: Layer, project: Path | None) -> None:
    """Say which credentials go where, where that could surprise; `project` is the file of one."""
    for one in _each(merged):
        where = merged.place(one.key("url"))
        told = credential_warning(
            one.name,
            one.settings_of_credential(),
            kind=one.kind,
            url=one.get("url"),
            reference=one.get("credential"),
            patterns=tuple(one.merged.table("upstream", one.place, "models")),
            is_meant=not merged.is_filled_in(one.key("credential")),
            where=where,
            of_project=project is not None and where.startswith(str(project)),
        )
        if told is not None:
            merged.warnings.append(told)
        models = merged.table("upstream", one.place, "models")
        passes_through = one.get("credential") == Credential.PASS_THROUGH
        if not one.facts.serves_claude and not models and not passes_through:
            vendor = one.facts.client_vendor
            merged.warnings.append(
                f"upstream {one.name}: only clients that speak {vendor}'s dialect are sent there;"
                " for Claude's clients, too, say what stands in:"
                ' models = { "claude-*" = "gpt-5.5" }'
            )


def withhold_admin_keys(merged: Layer, project: Path | None) -> None:
    """Send no admin key to an upstream of a project's file, whoever has set one beside it."""
    for one in _each(merged):
        where = merged.place(one.key("url"))
        if project is None or not where.startswith(str(project)) or one.get("admin_key") is None:
            continue
        merged.warnings.append(
            f"upstream {one.name}: {merged.origins[one.key('admin_key')]} is ignored, since"
            f" {where} names the upstream: an admin key goes to upstreams of your own file alone"
        )
        merged.values[one.key("admin_key")] = merged.values[one.key("workspace")] = None


def settings(merged: Layer) -> tuple[UpstreamSettings, ...]:
    """All upstreams, once nothing is wrong with them."""
    return tuple(_settings(one) for one in _each(merged))


def with_secrets(upstream: UpstreamSettings, environ: Mapping[str, str]) -> UpstreamSettings:
    """An upstream that was loaded without secrets, with its own looked up."""
    faults: list[ConfigFault] = []

    def looked_up(name: str, value: str | None) -> str | None:
        if value is None or not is_reference(value):
            return value
        try:
            return resolve(value, environ)
        except ValueError as error:
            faults.append(ConfigFault(f"upstream {upstream.name}", name, str(error)))
            return None

    found = replace(
        upstream,
        secret=looked_up("credential", upstream.secret),
        proxy=looked_up("proxy", upstream.proxy),
        headers={
            name: looked_up(dotted(("headers", name)), value) or ""
            for name, value in upstream.headers.items()
        },
    )
    if faults:
        raise config_error(faults)
    return found


class _One:
    """One upstream of a configuration."""

    def __init__(self, merged: Layer, place: int) -> None:
        self.merged = merged
        self.place = place

    def key(self, *names: str) -> tuple[str | int, ...]:
        return ("upstream", self.place, *names)

    def get(self, *names: str) -> Any:
        return self.merged.values.get(self.key(*names))

    def fill(self, name: str, value: object, origin: str = "default") -> None:
        self.merged.fill(self.key(name), value, origin)

    def fault(self, name: str, what: str) -> None:
        self.merged.fault(self.key(name), what)

    @property
    def name(self) -> str:
        return str(self.get("name"))

    @property
    def kind(self) -> UpstreamKind:
        return UpstreamKind(self.get("kind"))

    @property
    def facts(self) -> KindFacts:
        return self.kind.facts

    @property
    def preset(self) -> Preset | None:
        return PRESETS.get(self.get("preset"))

    def settings_of_credential(self) -> Credential:
        # Only a reference has one, and where it led to may read like one of the words.
        return Credential(self.get("auth") or self.get("credential") or Credential.NONE)


def _each(merged: Layer) -> Iterator[_One]:
    return (_One(merged, place) for place in range(len(merged.upstreams)))


def _complete_address(one: _One) -> None:
    preset, region, cloud = one.preset, one.get("region"), one.facts.cloud
    if preset is not None and preset.url is not None:
        one.fill("url", preset.url, f"preset {preset.name}")
    elif one.kind is UpstreamKind.ANTHROPIC and preset is None:
        one.fill("url", _PLAIN["url",])
    elif cloud is not None and region is not None and one.get("url") is None:
        try:
            one.fill("url", cloud.url(region))
        except ValueError as error:
            one.fault("region", str(error))
            one.merged.wrong_upstreams.add(one.place)


def _complete_credential(one: _One, *, passes_through: bool) -> None:
    preset, credential, auth = one.preset, one.get("credential"), one.get("auth")
    if credential is None and auth is None:
        if preset is not None and preset.credential is not None:
            one.fill("credential", preset.credential, f"preset {preset.name}")
        elif one.facts.cloud is not None:
            one.fill("auth", Credential.VENDOR.value)
        else:
            word = Credential.PASS_THROUGH if passes_through else Credential.NONE
            one.fill("credential", word.value)
        credential = one.get("credential")
    if credential is not None and is_reference(credential):
        if preset is not None and preset.auth not in (None, Credential.VENDOR):
            one.fill("auth", preset.auth, f"preset {preset.name}")
        one.fill("auth", one.facts.key_sent_as.value)


def _check_address(one: _One, port: int) -> None:
    cloud = one.facts.cloud
    if cloud is not None and one.get("region") is None:
        example = cloud.example_region
        one.fault("region", f'kind {one.kind} needs one, such as region = "{example}"')
    if cloud is not None and cloud.needs_project and one.get("project") is None:
        one.fault("project", f'kind {one.kind} needs one, such as project = "my-project-123"')
    url = one.get("url")
    if url is not None:
        target = urlsplit(url)
        its_port = target.port or (443 if target.scheme == "https" else 80)
        if its_port == port and is_loopback(target.hostname or ""):
            one.fault("url", "is the gateway's own address: it would call itself")
    elif cloud is None:
        preset = one.preset
        example = one.facts.url_example if preset is None else preset.url_example
        whose = f"kind {one.kind}" if preset is None else f"preset {preset.name}"
        one.fault("url", f'{whose} needs one, such as url = "{example}"')
    ca_file = one.get("ca_file")
    if ca_file is not None and not is_file(Path(ca_file)):
        one.fault("ca_file", f"there is no file {ca_file}")


def _check_credential(one: _One) -> None:
    credential, auth = one.get("credential"), one.get("auth")
    if auth == Credential.VENDOR:
        if one.facts.cloud is None:
            clouds = " and ".join(kind for kind, facts in KIND_FACTS.items() if facts.cloud)
            one.fault("auth", f"only kinds {clouds} have a vendor's library that finds it")
        elif credential is not None:
            one.fault("auth", "vendor finds the credential itself: leave credential out")
    elif auth is not None and (credential is None or not is_reference(credential)):
        one.fault("auth", "says how a key is sent, and credential names none")
    elif credential == Credential.PASS_THROUGH and one.facts.cloud is not None:
        one.fault("credential", "what clients send is of no use to a cloud: leave credential out")


def _check_admin_key(one: _One) -> None:
    if one.get("admin_key") is None:
        if one.get("workspace") is not None:
            one.fault("workspace", "says whose rate limits admin_key reads, and there is none")
        return
    target = urlsplit(one.get("url") or "")
    if one.facts.limits_of is None:
        one.fault("admin_key", f"kind {one.kind} has no API that tells rate limits: leave it out")
    elif not is_reference(one.get("credential") or ""):
        one.fault(
            "admin_key",
            "tells the limits of the organization that a key of your own belongs to, and clients'"
            ' own may belong to others: set credential = "env:NAME" too',
        )
    elif target.scheme != "https" and not is_loopback(target.hostname or ""):
        one.fault("admin_key", f"would go to {target.hostname} unencrypted: use https")
    elif one.facts.limits_of == "project" and one.get("project") is None:
        one.fault("project", 'admin_key needs the project of the key, such as project = "proj_1"')
    elif one.facts.limits_of != "workspace" and one.get("workspace") is not None:
        vendor = one.facts.client_vendor
        one.fault("workspace", f"is Anthropic's; {vendor}'s limits go by {one.facts.limits_of}")


def _check_models(one: _One) -> None:
    models = one.merged.table("upstream", one.place, "models")
    serves_claude_alone = one.facts.cloud is not None or (
        one.kind is UpstreamKind.ANTHROPIC
        and urlsplit(one.get("url") or "").hostname == ANTHROPIC_HOST
    )
    for pattern, model in models.items():
        if serves_claude_alone and "claude" not in model.lower() and not model.startswith("arn:"):
            one.merged.fault(
                one.key("models", pattern),
                f"{model} is no Claude model, and nothing else is served there; it needs an"
                " upstream of another kind",
            )


def _check_caches(one: _One) -> None:
    if one.facts.hour_cache is None and one.get("cache_ttl") not in (None, CacheTtl.CLIENT):
        one.fault("cache_ttl", f"kind {one.kind} caches on its own: there is nothing to ask for")


def _settings(one: _One) -> UpstreamSettings:
    credential = one.settings_of_credential()
    has_key = credential in (Credential.API_KEY, Credential.BEARER)
    secret = {"secret": one.get("credential")} if has_key else {}
    table = one.merged.table("upstream", one.place)
    return msgspec.convert({**table, **secret, "credential": credential}, UpstreamSettings)
