"""Say when calls and credentials go where their owner may not expect it.

Laws: (1) a warning names what is sent, where to, and which line says so; (2) it holds references
and addresses, never a secret; (3) what the user has written down as meant is not warned of, except
where a project's file has: whoever cloned it did not write it.
Not here: deciding what is sent (upstreams.py).
"""

from __future__ import annotations

import ipaddress
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from jackline.providers.presets import own_hosts
from jackline.providers.settings import Credential, UpstreamKind

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
    is_expected = passes_through and host in own_hosts(kind) and not _takes_claude(kind, patterns)
    if of_project and not is_expected:
        return f"{_what_goes(credential, reference)} to {url}, as {where} says"
    if target.scheme == "http" and credential is not Credential.NONE:
        return f"upstream {name}: credentials go to {host} unencrypted, as {where} says; use https"
    if passes_through and not is_expected and not is_meant:
        return (
            f"upstream {name}: whatever key or login a client sends is passed through to {host},"
            f' as {where} says; if that is meant, write credential = "pass-through"'
        )
    if passes_through and not is_expected and kind is not UpstreamKind.ANTHROPIC:
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
    if kind is UpstreamKind.ANTHROPIC:
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
