"""Write the headers that an upstream is to get in place of those that the client sent.

Rules: (1) unless credentials are passed through, only those headers leave that are known to say
nothing of who the client is: a vendor's next name for a key is not among them; (2) an upstream's
own headers win over the client's; (3) no secret in an error or `repr`.
Not here: bodies (sent_body.py), hop-by-hop headers and lengths (upstream/).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from jackline.errors import UsageError
from jackline.providers.settings import Credential, UpstreamSettings
from jackline.upstream.port import Headers

# What a request means, how it is packed, which client and conversation it comes from.
_ALLOWED = frozenset(
    {
        b"accept",
        b"accept-encoding",
        b"accept-language",
        b"anthropic-beta",
        b"anthropic-version",
        b"content-encoding",
        b"content-language",
        b"content-type",
        b"conversation_id",
        b"idempotency-key",
        b"if-match",
        b"if-none-match",
        b"openai-beta",
        b"originator",
        b"range",
        b"session-id",
        b"session_id",
        b"thread-id",
        b"traceparent",
        b"tracestate",
        b"user-agent",
        b"x-app",
        b"x-claude-code-agent-id",
        b"x-claude-code-parent-agent-id",
        b"x-claude-code-session-id",
        b"x-client-request-id",
        b"x-stainless-arch",
        b"x-stainless-async",
        b"x-stainless-helper",
        b"x-stainless-helper-method",
        b"x-stainless-lang",
        b"x-stainless-os",
        b"x-stainless-package-version",
        b"x-stainless-raw-response",
        b"x-stainless-read-timeout",
        b"x-stainless-retry-count",
        b"x-stainless-runtime",
        b"x-stainless-runtime-version",
        b"x-stainless-stream-helper",
        b"x-stainless-timeout",
    }
)
BETA = b"anthropic-beta"
# Says that the credential is a login's token; with any other credential the vendor refuses it.
_BETA_OF_LOGINS = b"oauth-2025-04-20"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


def allowed(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The headers that any upstream may see: none of them says who the client is."""
    kept = []
    for name, value in headers:
        plain = name.lower()
        if plain not in _ALLOWED:
            continue
        if plain == BETA and _BETA_OF_LOGINS in value:
            betas = [beta for beta in _listed(value) if beta != _BETA_OF_LOGINS]
            if not betas:
                continue
            kept.append((name, b",".join(betas)))
        else:
            kept.append((name, value))
    return kept


def betas_of(headers: Headers) -> list[str]:
    """What `anthropic-beta` names, in its order."""
    betas = [b for name, value in headers if name.lower() == BETA for b in _listed(value)]
    return list(dict.fromkeys(beta.decode("latin-1") for beta in betas))


def without(headers: Headers, names: frozenset[bytes]) -> list[tuple[bytes, bytes]]:
    """The headers but those with these names, which are given in lower case."""
    return [(name, value) for name, value in headers if name.lower() not in names]


def with_own(headers: Headers, own: Headers) -> list[tuple[bytes, bytes]]:
    """The headers with an upstream's own ones in place of those with the same names."""
    return [*without(headers, frozenset(name.lower() for name, _ in own)), *own]


def own_headers(settings: UpstreamSettings) -> list[tuple[bytes, bytes]]:
    """The upstream's credential and whatever else its user wants sent along."""
    own = []
    secret = own_secret(settings)
    if secret is not None:
        if settings.credential is Credential.API_KEY:
            own.append((b"x-api-key", secret))
        else:
            own.append((b"Authorization", b"Bearer " + secret))
    return with_own(own, given_headers(settings))


def bearer_of(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The client's credential, whichever way it was sent, as the other dialects want it."""
    sent = {name.lower(): value for name, value in headers}
    if b"authorization" in sent:
        return [(b"Authorization", sent[b"authorization"])]
    if b"x-api-key" in sent:
        return [(b"Authorization", b"Bearer " + sent[b"x-api-key"])]
    return []


def given_headers(settings: UpstreamSettings) -> list[tuple[bytes, bytes]]:
    """The headers that the settings name, as they go on the wire."""
    for name, value in settings.headers.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise UsageError(
                f"Upstream {settings.name} has a header that cannot be sent.",
                next="Look at its headers: names are plain words, values plain text on one line.",
            )
    return [(name.encode(), value.encode()) for name, value in settings.headers.items()]


def own_secret(settings: UpstreamSettings) -> bytes | None:
    """The key or token that the settings hold; None when they name another sort of credential."""
    if settings.credential not in (Credential.API_KEY, Credential.BEARER):
        return None
    secret = (settings.secret or "").strip()
    if not secret:
        raise UsageError(
            f"Upstream {settings.name} needs a credential of its own and has none.",
            next="Name where its key stands, or let the client's own pass through.",
        )
    if not _VALUE.fullmatch(secret):
        raise UsageError(
            f"The credential of upstream {settings.name} holds letters that no header can carry.",
            next="Look at where it is kept: it should be one line of plain letters.",
        )
    return secret.encode()


def _listed(value: bytes) -> Iterable[bytes]:
    return (word for word in (part.strip() for part in value.split(b",")) if word)
