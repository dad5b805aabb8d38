"""Recognise whose credential a request has, by its form, and do not send it to other vendors.

Rules: (1) a key or login that has one vendor's form is sent to no other vendor, in whatever header,
path or query it is; (2) an upstream whose host is not a known vendor's (a proxy, a bridge) is
judged by its dialect, and only by the headers that clients log in with; (3) a credential of an
unknown form goes where its user lets credentials pass through; (4) no error has any part of it.
"""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from itertools import islice
from urllib.parse import unquote_to_bytes

from jackline.http1.headers import Headers, request_lines
from jackline.providers.settings import ANTHROPIC, OPENAI, UpstreamSettings
from jackline.upstream.interface import UpstreamRequest
from jackline.upstream.origin import Origin

# Some prefixes also begin names that are no credentials (`hf_model`, `xai-grok`): only long ones
# count.
_LONG = rb"[A-Za-z0-9_.\-]{16}"
_PREFIXES: tuple[tuple[str, bytes, bytes], ...] = (
    (ANTHROPIC, b"sk-ant-", b""),
    (OPENAI, b"sk-proj-", b""),
    (OPENAI, b"sk-svcacct-", b""),
    (OPENAI, b"sk-admin-", b""),
    ("OpenRouter", b"sk-or-", b""),
    ("Google", b"AIza", _LONG),
    ("Google", b"ya29.", _LONG),
    ("AWS", b"ABSK", _LONG),
    ("AWS", b"bedrock-api-key-", _LONG),
    ("Groq", b"gsk_", _LONG),
    ("xAI", b"xai-", _LONG),
    ("Perplexity", b"pplx-", _LONG),
    ("Hugging Face", b"hf_", _LONG),
    ("NVIDIA", b"nvapi-", _LONG),
    ("Cerebras", b"csk-", _LONG),
    ("GitHub", b"ghp_", _LONG),
    ("GitHub", b"gho_", _LONG),
    ("GitHub", b"ghu_", _LONG),
    ("GitHub", b"github_pat_", _LONG),
)
# The prefix is searched first: most are in no request, and a plain search is much faster.
_FORMS = tuple(
    (vendor, prefix, re.compile(rb"(?<![A-Za-z0-9_\-])" + re.escape(prefix) + rest))
    for vendor, prefix, rest in _PREFIXES
)
# The middle part of a JWT.
_JWT_PART = re.compile(rb"\.(eyJ[\w\-]{4,}=*)(?=\.)")
_BASIC = re.compile(rb"\bbasic +([A-Za-z0-9+/=]{8,})", re.IGNORECASE)
# Of either: a request has one or two, and each costs as much as searching a thousand bytes.
_MOST_DECODED = 64
_LOGIN_HEADERS = frozenset(
    {b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key", b"anthropic-auth-token"}
)
# Matched against lower-case header lines.
_BEARER = re.compile(rb"\r\nauthorization: *bearer ")
_CLAUDE_LOGIN = re.compile(rb"\r\nanthropic-beta:[^\r\n]*\boauth-\d")
_CHATGPT_LOGIN = b"\r\nchatgpt-account-id:"
_HOSTS = {
    "anthropic.com": ANTHROPIC,
    "claude.com": ANTHROPIC,
    "claude.ai": ANTHROPIC,
    "openai.com": OPENAI,
    "chatgpt.com": OPENAI,
    "azure.com": "Azure",
    "openrouter.ai": "OpenRouter",
    "googleapis.com": "Google",
    "amazonaws.com": "AWS",
    "api.aws": "AWS",
    "groq.com": "Groq",
    "x.ai": "xAI",
    "perplexity.ai": "Perplexity",
    "huggingface.co": "Hugging Face",
    "nvidia.com": "NVIDIA",
    "cerebras.ai": "Cerebras",
    "githubcopilot.com": "GitHub",
    "github.ai": "GitHub",
    "deepseek.com": "DeepSeek",
    "mistral.ai": "Mistral",
    "moonshot.ai": "Moonshot",
    "moonshot.cn": "Moonshot",
    "minimax.io": "MiniMax",
    "z.ai": "Z.ai",
    "bigmodel.cn": "Z.ai",
    "aliyuncs.com": "Alibaba",
    "together.ai": "Together",
    "together.xyz": "Together",
    "fireworks.ai": "Fireworks",
}
# What names a credential in a query, and what only looks like it: cursors of a list.
_SECRET_NAME = re.compile(
    rb"(?:.*[\-_.]|)(?:key|api-?key|token|secret|auth|authorization|password|passwd|pwd|sig|"
    rb"signature|credential|credentials|code|jwt|session)|.*(?:apikey|accesstoken|authtoken)",
    re.IGNORECASE | re.DOTALL,
)
_CURSOR_NAME = re.compile(
    rb"(?:next|previous|page|continuation|cursor|start|sync)[\-_.]?(?:page[\-_.]?)?token",
    re.IGNORECASE,
)
_MOST_REMEMBERED = 256
# A client's own headers are a few thousand bytes; longer ones are checked each time.
_LONGEST_REMEMBERED = 8 * 1024


class WrongVendorError(ValueError):
    """The client's credential is another vendor's: nothing may be sent."""


class PassThroughGuard:
    """Lets a client's credential through to one upstream, unless it is another vendor's."""

    __slots__ = ("_is_vendors_own", "_name", "_passed", "_vendor")

    def __init__(self, settings: UpstreamSettings, origin: Origin) -> None:
        vendor = vendor_at(origin.address.host)
        self._name = settings.name
        self._is_vendors_own = vendor is not None
        self._vendor = vendor or settings.kind.facts.client_vendor
        # The same headers come again and again, and are checked once.
        self._passed: set[tuple[bytes, bytes]] = set()

    def check(self, request: UpstreamRequest) -> None:
        """WrongVendorError when the request has another vendor's credential."""
        lines = request.lines
        if lines is None:
            lines = request_lines(request.headers)
        seen = (lines, request.target)
        if seen in self._passed:
            return
        if self._is_vendors_own:
            found = vendors_in(lines, request.target)
        else:
            # Other hosts may forward anything except the logins of these two.
            found = vendors_of_login(lines) & {ANTHROPIC, OPENAI}
        others = sorted(found - {self._vendor})
        if others:
            raise WrongVendorError(
                f"the client's credential is {others[0]}'s, and upstream {self._name} is not: it"
                " was not sent there. Configure a key for that upstream (credential ="
                ' "env:NAME"), or give the client one of the right vendor'
            )
        if len(lines) + len(request.target) > _LONGEST_REMEMBERED:
            return
        if len(self._passed) >= _MOST_REMEMBERED:
            self._passed.clear()
        self._passed.add(seen)


def vendor_at(host: str) -> str | None:
    """Whose host this is, where that is known."""
    name = host.lower().rstrip(".")
    while name:
        if name in _HOSTS:
            return _HOSTS[name]
        name = name.partition(".")[2]
    return None


def login_vendor(headers: Headers) -> str | None:
    """The one vendor that a client's login is for, where its form shows it."""
    found = vendors_of_login(request_lines(headers))
    return found.pop() if len(found) == 1 else None


def vendors_of_login(lines: bytes) -> set[str]:
    """Whose keys and logins are in the headers that clients log in with."""
    logins = [
        line for line in lines.split(b"\r\n") if line.partition(b":")[0].lower() in _LOGIN_HEADERS
    ]
    found = _forms_in(b"\r\n".join(logins))
    # The clients of these two send headers of their own together with a bearer token.
    lowered = b"\r\n" + lines.lower()
    if _BEARER.search(lowered):
        if _CLAUDE_LOGIN.search(lowered):
            found.add(ANTHROPIC)
        if _CHATGPT_LOGIN in lowered:
            found.add(OPENAI)
    return found


def vendors_in(lines: bytes, target: bytes = b"") -> set[str]:
    """Whose keys and logins are anywhere in the headers and the target, also URL-quoted."""
    text = _with_unquoted(lines, 1) + b"\n" + _with_unquoted(target)
    return _forms_in(text) | vendors_of_login(lines)


def without_secrets(target: bytes) -> bytes:
    """The target without credentials in its query."""
    path, mark, query = target.partition(b"?")
    if not mark:
        return target
    parts = query.split(b"&")
    rest = []
    for part in parts:
        name = unquote_to_bytes(part.partition(b"=")[0].replace(b"+", b" ")).strip()
        is_named = _SECRET_NAME.fullmatch(name) and not _CURSOR_NAME.fullmatch(name)
        if not is_named and not _forms_in(_with_unquoted(part)):
            rest.append(part)
    if len(rest) == len(parts):
        return target
    return path + b"?" + b"&".join(rest) if rest else path


def _with_unquoted(text: bytes, most: int = 4) -> bytes:
    """The text, followed by what it is after removing one or more levels of URL quoting."""
    found = [text]
    while b"%" in found[-1] and len(found) <= most:
        found.append(unquote_to_bytes(found[-1]))
    return b"\n".join(found)


def _forms_in(text: bytes) -> set[str]:
    """The vendors whose forms of credentials are in the text."""
    if b"basic " in text.lower():
        text = b"\n".join((text, *_decoded(_BASIC, text)))
    found = {vendor for vendor, prefix, form in _FORMS if prefix in text and form.search(text)}
    if b".eyJ" in text and any(b"openai.com" in claims for claims in _decoded(_JWT_PART, text)):
        found.add(OPENAI)
    return found


def _decoded(form: re.Pattern[bytes], text: bytes) -> Iterator[bytes]:
    """What has this form, decoded, without the dots or words around it."""
    return (_base64_decoded(each[1]) for each in islice(form.finditer(text), _MOST_DECODED))


def _base64_decoded(part: bytes) -> bytes:
    """The bytes of base64 in either alphabet; none where it is no base64."""
    try:
        return urlsafe_b64decode(part.rstrip(b"=") + b"=" * (-len(part.rstrip(b"=")) % 4))
    except binascii.Error:
        return b""
