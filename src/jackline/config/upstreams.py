"""Complete and check the upstreams of a configuration, and turn them into settings.

Rules: (1) what is written wins over the preset, the preset over the kind's defaults; (2) by
default, clients' own credentials go only to the first upstream of Anthropic's dialect; (3) an
upstream that cannot work is a fault; (4) a warning says where calls and credentials go if their
owner may not expect it: what is sent, where to, and which line says so, never a secret; what the
user wrote on purpose is not warned of, except in a project's file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from jackline.config.declaration import DEFAULTS
from jackline.config.faults import ConfigFault, config_error
from jackline.config.files import is_file
from jackline.config.keys import dotted
from jackline.config.layers import Layer
from jackline.config.references import is_reference, resolve
from jackline.lanes import CacheTtl
from jackline.local_address import is_loopback
from jackline.providers.settings import (
    ANTHROPIC_HOST,
    KIND_FACTS,
    PRESETS,
    Credential,
    KindFacts,
    Preset,
    UpstreamKind,
    UpstreamSettings,
)

# A pattern that is for Claude fits one of these names.
_CLAUDES = ("claude-opus-4-8", "claude-sonnet-4-6", "claude-haiku-4-5")


_PLAIN = {key[1:]: value for key, value in DEFAULTS.items() if key[0] == "upstream"}


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


class _Draft:
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

    @property
    def credential(self) -> Credential:
        # Only a reference has one, and where it led to may read like one of the words.
        return Credential(self.get("auth") or self.get("credential") or Credential.NONE)

    @property
    def where(self) -> str:
        """Where its address is written, or else the upstream."""
        return self.merged.place(self.key("url"))

    def is_of(self, project: Path | None) -> bool:
        """Whether this project's file lists it."""
        return project is not None and self.where.startswith(str(project))

    def get_table(self, name: str) -> dict[str, Any]:
        return self.merged.table("upstream", self.place, name)

    def complete_address(self) -> None:
        preset, region, cloud = self.preset, self.get("region"), self.facts.cloud
        if preset is not None and preset.url is not None:
            self.fill("url", preset.url, f"preset {preset.name}")
        elif self.kind is UpstreamKind.ANTHROPIC and preset is None:
            self.fill("url", _PLAIN["url",])
        elif cloud is not None and region is not None and self.get("url") is None:
            try:
                self.fill("url", cloud.url(region))
            except ValueError as error:
                self.fault("region", str(error))
                self.merged.wrong_upstreams.add(self.place)

    def complete_credential(self, *, passes_through: bool) -> None:
        preset, credential, auth = self.preset, self.get("credential"), self.get("auth")
        if credential is None and auth is None:
            if preset is not None and preset.credential is not None:
                self.fill("credential", preset.credential, f"preset {preset.name}")
            elif self.facts.cloud is not None:
                self.fill("auth", Credential.VENDOR.value)
            else:
                word = Credential.PASS_THROUGH if passes_through else Credential.NONE
                self.fill("credential", word.value)
            credential = self.get("credential")
        if credential is not None and is_reference(credential):
            if preset is not None and preset.auth not in (None, Credential.VENDOR):
                self.fill("auth", preset.auth, f"preset {preset.name}")
            self.fill("auth", self.facts.key_sent_as.value)

    def _check_address(self, port: int) -> None:
        cloud = self.facts.cloud
        if cloud is not None and self.get("region") is None:
            example = cloud.example_region
            self.fault("region", f'kind {self.kind} needs one, such as region = "{example}"')
        if cloud is not None and cloud.needs_project and self.get("project") is None:
            self.fault("project", f'kind {self.kind} needs one, such as project = "my-project-123"')
        url = self.get("url")
        if url is not None:
            target = urlsplit(url)
            its_port = target.port or (443 if target.scheme == "https" else 80)
            if its_port == port and is_loopback(target.hostname or ""):
                self.fault("url", "is the gateway's own address: it would call itself")
        elif cloud is None:
            preset = self.preset
            example = self.facts.url_example if preset is None else preset.url_example
            whose = f"kind {self.kind}" if preset is None else f"preset {preset.name}"
            self.fault("url", f'{whose} needs one, such as url = "{example}"')
        ca_file = self.get("ca_file")
        if ca_file is not None and not is_file(Path(ca_file)):
            self.fault("ca_file", f"there is no file {ca_file}")

    def _check_credential(self) -> None:
        credential, auth = self.get("credential"), self.get("auth")
        if auth == Credential.VENDOR:
            if self.facts.cloud is None:
                clouds = " and ".join(kind for kind, facts in KIND_FACTS.items() if facts.cloud)
                self.fault("auth", f"only kinds {clouds} have a vendor's library that finds it")
            elif credential is not None:
                self.fault("auth", "vendor finds the credential itself: leave credential out")
        elif auth is not None and (credential is None or not is_reference(credential)):
            self.fault("auth", "says how a key is sent, and credential names none")
        elif credential == Credential.PASS_THROUGH and self.facts.cloud is not None:
            what = "what clients send is of no use to a cloud: leave credential out"
            self.fault("credential", what)

    def _check_admin_key(self) -> None:
        if self.get("admin_key") is None:
            if self.get("workspace") is not None:
                self.fault("workspace", "says whose rate limits admin_key reads, and there is none")
            return
        target = urlsplit(self.get("url") or "")
        if self.facts.limits_of is None:
            what = f"kind {self.kind} has no API that reports rate limits: leave it out"
            self.fault("admin_key", what)
        elif not is_reference(self.get("credential") or ""):
            self.fault(
                "admin_key",
                "reads the limits of the organization that a key of your own belongs to, and"
                ' clients\' own may belong to others: set credential = "env:NAME" too',
            )
        elif target.scheme != "https" and not is_loopback(target.hostname or ""):
            self.fault("admin_key", f"would go to {target.hostname} unencrypted: use https")
        elif self.facts.limits_of == "project" and self.get("project") is None:
            what = 'admin_key needs the project of the key, such as project = "proj_1"'
            self.fault("project", what)
        elif self.facts.limits_of != "workspace" and self.get("workspace") is not None:
            vendor = self.facts.client_vendor
            what = f"is Anthropic's; {vendor}'s limits go by {self.facts.limits_of}"
            self.fault("workspace", what)

    def _check_models(self) -> None:
        claude_alone = self.facts.cloud is not None or (
            self.kind is UpstreamKind.ANTHROPIC
            and urlsplit(self.get("url") or "").hostname == ANTHROPIC_HOST
        )
        for pattern, model in self.get_table("models").items():
            if claude_alone and "claude" not in model.lower() and not model.startswith("arn:"):
                self.merged.fault(
                    self.key("models", pattern),
                    f"{model} is no Claude model, and nothing else is served there; it needs an"
                    " upstream of another kind",
                )

    def settings(self) -> UpstreamSettings:
        credential = self.credential
        has_key = credential in (Credential.API_KEY, Credential.BEARER)
        secret = {"secret": self.get("credential")} if has_key else {}
        table = self.merged.table("upstream", self.place)
        return msgspec.convert({**table, **secret, "credential": credential}, UpstreamSettings)

    def check(self, port: int) -> None:
        """Note what no single value can be blamed for; `port` is the gateway's own."""
        self._check_address(port)
        self._check_credential()
        self._check_admin_key()
        self._check_models()
        if self.facts.hour_cache is None and self.get("cache_ttl") not in (None, CacheTtl.CLIENT):
            self.fault("cache_ttl", f"kind {self.kind} caches on its own: nothing can be requested")

    def warnings(self, project: Path | None) -> Iterator[str]:
        """Where calls and credentials go, where that could surprise; `project` is a file."""
        models = self.get_table("models")
        credential_warning = self._credential_warning(tuple(models), project)
        if credential_warning is not None:
            yield credential_warning
        passes_through = self.get("credential") == Credential.PASS_THROUGH
        if not self.facts.serves_claude and not models and not passes_through:
            vendor = self.facts.client_vendor
            yield (
                f"upstream {self.name}: only clients that speak {vendor}'s dialect are sent there;"
                " for Claude's clients, too, write which model they get:"
                ' models = { "claude-*" = "gpt-5.5" }'
            )

    def _credential_warning(self, patterns: tuple[str, ...], project: Path | None) -> str | None:
        url, credential, facts = self.get("url"), self.credential, self.facts
        target = urlsplit(url or "")
        host = target.hostname or ""
        if not url or is_loopback(host):
            return None
        passes_through = credential is Credential.PASS_THROUGH
        takes_claude = not facts.serves_claude and any(
            pattern.startswith("claude") or any(fnmatchcase(name, pattern) for name in _CLAUDES)
            for pattern in patterns
        )
        is_expected = passes_through and host in facts.own_hosts and not takes_claude
        if self.is_of(project) and not is_expected:
            what = "calls go"
            if passes_through:
                what = "calls and credentials go"
            elif credential in (Credential.API_KEY, Credential.BEARER):
                what = f"calls and what {self.get('credential')} holds go"
            return f"{what} to {url}, as {self.where} says"
        about = f"upstream {self.name}:"
        if target.scheme == "http" and credential is not Credential.NONE:
            return f"{about} credentials go to {host} unencrypted, as {self.where} says; use https"
        if passes_through and not is_expected and self.merged.is_filled_in(self.key("credential")):
            return (
                f"{about} whatever key or login a client sends is passed through to {host}, as"
                f' {self.where} says; if you want that, write credential = "pass-through"'
            )
        if passes_through and not is_expected and not facts.serves_claude:
            return (
                f"{about} keys and logins for Anthropic, too, are passed through to {host}, since"
                " its models replace Claude; give it a credential of its own"
            )
        return None


class Upstreams:
    """All upstreams of a configuration, filled in with what presets, kinds and their order say."""

    def __init__(self, merged: Layer) -> None:
        merged.upstreams = merged.upstreams or ["default"]
        self._merged = merged
        self._drafts = [_Draft(merged, place) for place in range(len(merged.upstreams))]
        for one in self._drafts:
            preset = one.preset
            if preset is not None:
                one.fill("kind", preset.kind.value, f"preset {preset.name}")
                if preset.local:
                    one.fill("local", True, f"preset {preset.name}")
            one.fill("kind", _PLAIN["kind",])
            one.fill("name", one.kind.value if preset is None else preset.name)
            one.complete_address()
        passing = next((one for one in self._drafts if one.kind is UpstreamKind.ANTHROPIC), None)
        for one in self._drafts:
            one.complete_credential(passes_through=one is passing)
            for key, value in _PLAIN.items():
                # Filled in above where there is anything to say.
                merged.fill(one.key(*key), None if key in (("url",), ("credential",)) else value)

    def check(self, port: int) -> None:
        """Note what no single value can be blamed for; `port` is the gateway's own."""
        names: set[str] = set()
        for one in self._drafts:
            is_right = one.place not in self._merged.wrong_upstreams
            has_name = is_right or self._merged.origins[one.key("name")] != "default"
            if has_name and one.name in names:
                what = f"another upstream is called {one.name} already; names must differ"
                one.fault("name", what)
            names.add(one.name)
            if is_right:
                one.check(port)

    def warn(self, project: Path | None) -> None:
        """Warn of credentials that go where their owner may not expect it.

        `project` is a project's file: no admin key is sent to an upstream that it lists, whoever
        has set one beside it.
        """
        merged = self._merged
        for one in self._drafts:
            if one.get("admin_key") is not None and one.is_of(project):
                merged.warnings.append(
                    f"upstream {one.name}: {merged.origins[one.key('admin_key')]} is ignored, since"
                    f" {one.where} names the upstream: an admin key goes to upstreams of your own"
                    " file alone"
                )
                merged.values[one.key("admin_key")] = merged.values[one.key("workspace")] = None
        for one in self._drafts:
            merged.warnings += one.warnings(project)

    def settings(self) -> tuple[UpstreamSettings, ...]:
        """All of them, once nothing is wrong with them."""
        return tuple(one.settings() for one in self._drafts)
