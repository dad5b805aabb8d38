"""Change the headers and body of a client's request for the upstream that gets it.

Rules: (1) unless credentials are passed through, only headers are sent that are known not to
identify the client: a vendor's next name for a key is not among them; (2) an upstream's own headers
override the client's; (3) no secret in an error or `repr`; (4) all other members of a body remain
as they are; (5) a body that cannot be parsed is not changed: the vendor reports what is wrong; (6)
cache marks are changed from five minutes to an hour in all places or in none, since the vendor
refuses one of an hour after one of five minutes; none is added or removed, and a `cache_control` in
a text, or in the input or result of a tool, is no mark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from jackline import __version__
from jackline.dialects.json_bounds import UNREADABLE
from jackline.errors import UsageError
from jackline.http1.headers import Headers
from jackline.providers.settings import Credential, UpstreamSettings
from jackline.upstream.interface import UpstreamRequest

# What a request means, how it is compressed, which client and conversation it comes from.
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
# Of requests that are not the client's own words: translated, or made here.
JSON_HEADERS = (
    (b"Content-Type", b"application/json"),
    (b"User-Agent", f"jackline/{__version__}".encode()),
)
BETA = b"anthropic-beta"
# Marks the credential as a login's token; with any other credential the vendor refuses it.
_BETA_OF_LOGINS = b"oauth-2025-04-20"
COMPRESSION = frozenset({b"content-encoding"})
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
# As dialects/request_facts.py argues: nothing has been opened before a first key, so that it is
# one of the top-level object; its value is used only when no backslash is in it.
_FIRST_IS_MODEL = re.compile(rb'\{\s*"model"\s*:\s*"([^"\\]*)"')
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class UnsupportedRequestError(ValueError):
    """This upstream cannot serve this request; another one may."""


def allowed(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The headers that any upstream may see: none of them identifies the client."""
    found = []
    for name, value in headers:
        lowered = name.lower()
        if lowered not in _ALLOWED:
            continue
        if lowered == BETA and _BETA_OF_LOGINS in value:
            betas = [beta.strip() for beta in value.split(b",")]
            betas = [beta for beta in betas if beta and beta != _BETA_OF_LOGINS]
            if betas:
                found.append((name, b",".join(betas)))
        else:
            found.append((name, value))
    return found


def without(headers: Headers, names: frozenset[bytes]) -> list[tuple[bytes, bytes]]:
    """The headers except those with these lower-case names."""
    return [(name, value) for name, value in headers if name.lower() not in names]


def with_own(headers: Headers, own: Headers) -> list[tuple[bytes, bytes]]:
    """The headers with an upstream's own ones in place of those with the same names."""
    return [*without(headers, frozenset(name.lower() for name, _ in own)), *own]


def bearer_of(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The client's credential, in whichever header it came, in the form of other dialects."""
    sent = {name.lower(): value for name, value in headers}
    if b"authorization" in sent:
        return [(b"Authorization", sent[b"authorization"])]
    if b"x-api-key" in sent:
        return [(b"Authorization", b"Bearer " + sent[b"x-api-key"])]
    return []


def configured_headers(settings: UpstreamSettings) -> list[tuple[bytes, bytes]]:
    """The headers that the settings name, as they are sent."""
    for name, value in settings.headers.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise UsageError(
                f"Upstream {settings.name} has a header that cannot be sent.",
                hint="Check its headers: names are plain words, values plain text on one line.",
            )
    return [(name.encode(), value.encode()) for name, value in settings.headers.items()]


def own_secret(settings: UpstreamSettings) -> bytes | None:
    """The configured key or token; None when another sort of credential is configured."""
    if settings.credential not in (Credential.API_KEY, Credential.BEARER):
        return None
    secret = (settings.secret or "").strip()
    if not secret:
        raise UsageError(
            f"Upstream {settings.name} needs a credential of its own and has none.",
            hint="Configure where its key is, or let the client's own pass through.",
        )
    if not _VALUE.fullmatch(secret):
        raise UsageError(
            f"The credential of upstream {settings.name} has characters that no header can have.",
            hint="Check the place where it is stored: it should be one line of plain text.",
        )
    return secret.encode()


def own_headers(settings: UpstreamSettings, key_header: bytes | None) -> list[tuple[bytes, bytes]]:
    """The configured headers and credential; an API key is in `key_header`, if there is one."""
    secret, own = own_secret(settings), configured_headers(settings)
    if secret is None:
        return own
    if key_header is not None and settings.credential is Credential.API_KEY:
        return with_own([(key_header, secret)], own)
    return with_own([(b"Authorization", b"Bearer " + secret)], own)


def with_model(body: bytes | bytearray, model: str) -> bytes | bytearray:
    """The body with this model; the same object when it has it already.

    Without a name it is not changed: such calls are not for a model, like a count of tokens.
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
    if members is None:
        return body
    try:
        if msgspec.json.decode(members.get("model", b""), type=str) == model:
            return body
    except UNREADABLE:
        return body
    return msgspec.json.encode({**members, "model": msgspec.Raw(name)})


def members_of(body: bytes | bytearray) -> dict[str, msgspec.Raw] | None:
    """The unparsed members of the request; None when it is no JSON object."""
    try:
        return _fields.decode(body)
    except UNREADABLE:
        return None


def raw(value: object) -> msgspec.Raw:
    """A value as JSON."""
    return msgspec.Raw(msgspec.json.encode(value))


def uncompressed(request: UpstreamRequest) -> bytes | bytearray | None:
    """The body without its compression; None when that is not known."""
    # Decompressing here would block everybody, once for each attempt: the call's intake did it.
    coding = next((v for n, v in request.headers if n.lower() in COMPRESSION), b"")
    return request.body if coding.strip().lower() in (b"", b"identity") else request.plain


def plain_body(request: UpstreamRequest) -> bytes | bytearray:
    """The body without its compression; UnsupportedRequestError when that is not known."""
    body = uncompressed(request)
    if body is None:
        raise UnsupportedRequestError("The request is compressed in a way that is not supported.")
    return body


def with_hours(request: UpstreamRequest) -> UpstreamRequest:
    """The request with cache marks for an hour; the same one where nothing changes.

    One that came compressed is sent plain, unless nobody could decompress it.
    """
    body = uncompressed(request)
    marked = body if body is None else with_hour_marks(body)
    if marked is None or marked is body:
        return request
    if body is request.body:
        return request._replace(body=marked)
    return request._replace(
        headers=without(request.headers, COMPRESSION), body=marked, lines=None, plain=None
    )


# Inside a JSON string a quote has a backslash before it, so these are keys and never text.
_KEY = re.compile(rb'"cache_control"\s*:\s*')
_MARK_NAME = b'"cache_control"'
_FLAT_OBJECT = re.compile(rb"\{[^{}]*\}")
_TTL = re.compile(rb'"ttl"\s*:\s*("5m")')
# Text of the model or the user, where the same key means nothing.
_FOREIGN = frozenset({"input", "input_schema", "input_examples", "metadata"})
# Tool results and documents contain blocks.
_HOLDS_BLOCKS = frozenset({"content", "source"})
_LISTS = frozenset({"tools", "system", "messages"})
# Blocks in blocks: a document in a tool result is the deepest that vendors accept.
_DEEPEST = 8

_items = msgspec.json.Decoder(list[msgspec.Raw])
_mark = msgspec.json.Decoder(dict[str, object])


def with_hour_marks(body: bytes | bytearray) -> bytes | bytearray:
    """The body with cache marks of one hour; the same object when nothing changes."""
    keys = _keys(body)
    if not keys:
        return body
    try:
        is_mark = _marks(_fields.decode(body), 0)
        changes = [
            change
            # Not as many: a key is written twice, or with escapes.
            for key, counts in zip(keys, is_mark, strict=True)
            if counts and (change := _change(body, key)) is not None
        ]
    except UNREADABLE:
        return body
    if not changes:
        return body
    pieces: list[bytes | bytearray] = []
    at = 0
    for start, end, text in changes:
        pieces += (body[at:start], text)
        at = end
    return b"".join((*pieces, body[at:]))


def _keys(body: bytes | bytearray) -> list[int]:
    """Where the value of each `cache_control` begins."""
    found = []
    at = body.find(_MARK_NAME)
    while at >= 0:
        key = _KEY.match(body, at)
        if key is not None:
            found.append(key.end())
        at = body.find(_MARK_NAME, at + len(_MARK_NAME))
    return found


def _marks(members: Mapping[str, msgspec.Raw], depth: int) -> Iterator[bool]:
    """For each `cache_control` in an object, in order: whether it is a mark.

    ValueError for one at an unknown place.
    """
    for name, value in members.items():
        if name == "cache_control":
            yield True
            continue
        text = bytes(value)
        if _MARK_NAME not in text:
            continue  # a plain search is many times faster than a pattern
        found = len(_keys(text))
        if not found:
            continue
        if name in _FOREIGN:
            yield from [False] * found
        elif name in (_LISTS if depth == 0 else _HOLDS_BLOCKS) and depth < _DEEPEST:
            for block in (value,) if text.startswith(b"{") else _items.decode(value):
                if bytes(block).startswith(b"{"):
                    yield from _marks(_fields.decode(block), depth + 1)
        else:
            raise ValueError


def _change(body: bytes | bytearray, start: int) -> tuple[int, int, bytes] | None:
    """Start, end and new text for the mark at a place; None when it needs no change."""
    if body.startswith(b"null", start):
        return None
    written = _FLAT_OBJECT.match(body, start)
    if written is None:
        raise ValueError
    mark = _mark.decode(written[0])
    if mark.get("type") != "ephemeral" or mark.get("ttl", "5m") not in ("5m", "1h"):
        raise ValueError
    if "ttl" not in mark:
        end = written.start() + len(written[0].rstrip(b"} \t\r\n"))
        return end, end, b',"ttl":"1h"'
    if mark["ttl"] == "1h":
        return None
    ttl = _TTL.search(written[0])
    if ttl is None:
        raise ValueError
    return start + ttl.start(1), start + ttl.end(1), b'"1h"'
