"""Change the headers and body of a client's request for the upstream that gets it.

Rules: (1) unless credentials are passed through, only headers leave that are known to say nothing
about who the client is: a vendor's next name for a key is not among them; (2) an upstream's own
headers override the client's; (3) no secret in an error or `repr`; (4) all other members of a body
stay as they are; (5) a body that cannot be parsed is not changed: the vendor reports what is wrong.
Not here: other dialects (dialects/), hop-by-hop headers and lengths (upstream/).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from jackline.dialects import read_request
from jackline.dialects.cache_marks import with_hour_marks
from jackline.errors import UsageError
from jackline.providers.provider import UnsupportedRequestError
from jackline.providers.settings import Credential, UpstreamSettings
from jackline.upstream.interface import Headers, UpstreamRequest

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


# As dialects/request_facts.py argues: nothing has been opened before a first key, so that it is
# one of the top-level object; its value is taken only when no backslash is in it.
PACKED = frozenset({b"content-encoding"})
_PLAIN_CODINGS = frozenset((b"", b"identity"))
_FIRST_IS_MODEL = re.compile(rb'\{\s*"model"\s*:\s*"([^"\\]*)"')


class _Stops(msgspec.Struct):
    stop_sequences: list[str] | None = None


_stops = msgspec.json.Decoder(_Stops)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_text = msgspec.json.Decoder(str)
_UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)


def with_model(body: bytes | bytearray, model: str) -> bytes | bytearray:
    """The body that asks for this model; the same object when it does so already.

    No name stands for calls that are not for a model, such as a count of tokens: they stay.
    """
    if not model:
        return body
    name = msgspec.json.encode(model)
    first = _FIRST_IS_MODEL.match(body)
    if first is not None:
        start, end = first.span(1)
        if first[1] == name[1:-1]:
            return body
        return b"".join((body[:start], name[1:-1], body[end:]))
    members = members_of(body)
    if members is None or not _asks_for_another(members, model):
        return body
    return msgspec.json.encode({**members, "model": msgspec.Raw(name)})


def members_of(body: bytes | bytearray) -> dict[str, msgspec.Raw] | None:
    """The members of the request as they are written; None when it is no JSON object."""
    try:
        return _fields.decode(body)
    except _UNREADABLE:
        return None


def written(members: Mapping[str, msgspec.Raw]) -> bytes:
    """The request of these members."""
    return msgspec.json.encode(members)


def raw(value: object) -> msgspec.Raw:
    """A value as it is written."""
    return msgspec.Raw(msgspec.json.encode(value))


def is_true(value: msgspec.Raw | None) -> bool:
    """Whether a member is there and true."""
    return value is not None and bytes(value) == b"true"


def asked_model(body: bytes | bytearray) -> str | None:
    """The model that the body asks for."""
    return read_request(body).model


def stop_sequences_of(body: bytes | bytearray) -> tuple[str, ...]:
    """The words at which the answer shall stop."""
    try:
        return tuple(_stops.decode(body).stop_sequences or ())
    except _UNREADABLE:
        return ()


def unpacked(message: UpstreamRequest) -> bytes | bytearray | None:
    """The body without its compression; None when that was not undone."""
    # Unpacking here would hold everybody up, once for each attempt: whoever took the call in did.
    coding = next((v for n, v in message.headers if n.lower() == b"content-encoding"), b"")
    is_plain = coding.strip().lower() in _PLAIN_CODINGS
    return message.body if is_plain else message.plain


def plain(message: UpstreamRequest) -> bytes | bytearray:
    """The body without its compression; CannotCarryError when it cannot be undone."""
    body = unpacked(message)
    if body is None:
        raise UnsupportedRequestError("The request is packed in a way that cannot be undone here.")
    return body


def with_hours(message: UpstreamRequest) -> UpstreamRequest:
    """The message whose cache marks ask for an hour; the same one where nothing changes.

    One that came compressed is sent plain; what nobody could unpack stays as it is.
    """
    body = unpacked(message)
    asked = body if body is None else with_hour_marks(body)
    if asked is None or asked is body:
        return message
    if body is message.body:
        return message._replace(body=asked)
    return message._replace(
        headers=without(message.headers, PACKED), body=asked, lines=None, plain=None
    )


def _asks_for_another(members: Mapping[str, msgspec.Raw], model: str) -> bool:
    """Whether these members ask for a model that is not this one."""
    try:
        return _text.decode(members.get("model", b"")) != model
    except _UNREADABLE:
        return False
