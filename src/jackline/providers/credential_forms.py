"""Know whose credential a request carries, by its form, and keep it from other vendors.

Rules: (1) a key or login that by its form is one vendor's is sent to no other vendor, whatever
header, path or query it stands in; (2) an upstream whose host is no vendor's that is known here (a
proxy, a bridge) is judged by its dialect, and only by what a client logs in with; (3) a credential
of an unknown form goes where its user lets credentials pass through; (4) no error holds any of it.
Not here: which headers go to upstreams with a key of their own (sent_headers.py).
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, urlsafe_b64decode
from urllib.parse import unquote_to_bytes

from jackline.providers.provider import WrongVendorError
from jackline.providers.settings import UpstreamKind, UpstreamSettings
from jackline.upstream.head import header_lines
from jackline.upstream.origin import Origin
from jackline.upstream.port import Headers, Message

ANTHROPIC, OPENAI = "Anthropic", "OpenAI"
# Behind some prefixes a name may stand that is no credential (`hf_model`, `xai-grok`): a long one
# only counts there.
_LONG = rb"[A-Za-z0-9_.\-]{16}"
_FORMS = (
    (ANTHROPIC, rb"sk-ant-"),
    (OPENAI, rb"sk-(?:proj|svcacct|admin)-"),
    ("OpenRouter", rb"sk-or-"),
    ("Google", rb"(?:AIza|ya29\.)" + _LONG),
    ("AWS", rb"(?:ABSK|bedrock-api-key-)" + _LONG),
    ("Groq", rb"gsk_" + _LONG),
    ("xAI", rb"xai-" + _LONG),
    ("Perplexity", rb"pplx-" + _LONG),
    ("Hugging Face", rb"hf_" + _LONG),
    ("NVIDIA", rb"nvapi-" + _LONG),
    ("Cerebras", rb"csk-" + _LONG),
    ("GitHub", rb"(?:gh[pousr]_|github_pat_)" + _LONG),
)
_KEYS = re.compile(
    rb"(?<![A-Za-z0-9_\-])(?:" + b"|".join(rb"(%b)" % form for _, form in _FORMS) + rb")"
)
_VENDORS = tuple(vendor for vendor, _ in _FORMS)
_JWT = re.compile(rb"eyJ[\w\-]{4,}\.(eyJ[\w\-]{4,})\.")
_BASIC = re.compile(rb"\bbasic +([A-Za-z0-9+/=]{8,})", re.IGNORECASE)
_OPENAIS = b"openai.com"
_LOGIN_HEADERS = re.compile(
    rb"\r\n(?:authorization|x-api-key|api-key|x-goog-api-key|anthropic-auth-token):[^\r\n]*",
    re.IGNORECASE,
)
_BEARER = re.compile(rb"\r\nauthorization: *bearer ", re.IGNORECASE)
_CLAUDE_LOGIN = re.compile(rb"\r\nanthropic-beta:[^\r\n]*\boauth-\d", re.IGNORECASE)
_CHATGPT_LOGIN = re.compile(rb"\r\nchatgpt-account-id:", re.IGNORECASE)
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
_BY_KIND = {
    UpstreamKind.ANTHROPIC: ANTHROPIC,
    UpstreamKind.OPENAI_CHAT: OPENAI,
    UpstreamKind.OPENAI_RESPONSES: OPENAI,
}
_REMEMBERED = 256


class PassThroughGuard:
    """Lets a client's credential through to one upstream, unless it is another vendor's."""

    __slots__ = ("_is_vendors_own", "_name", "_passed", "_vendor")

    def __init__(self, settings: UpstreamSettings, origin: Origin) -> None:
        vendor = vendor_at(origin.address.host)
        self._name = settings.name
        self._is_vendors_own = vendor is not None
        self._vendor = vendor or _BY_KIND.get(settings.kind)
        # Heads come again and again, and are looked at once.
        self._passed: set[tuple[bytes, bytes]] = set()

    def check(self, message: Message) -> None:
        """WrongVendorError when the message carries what another vendor gave."""
        lines = message.lines
        if lines is None:
            lines = header_lines(message.headers)
        query = message.target.partition(b"?")[2]
        if (lines, query) in self._passed:
            return
        found = vendors_in(lines, query) if self._is_vendors_own else vendors_of_login(lines)
        # Where the host is no vendor's, anything may be forwarded but the two that have logins.
        if not self._is_vendors_own:
            found &= {ANTHROPIC, OPENAI}
        others = sorted(found - {self._vendor})
        if others:
            raise WrongVendorError(
                f"the client's credential is {others[0]}'s, and upstream {self._name} is not: it"
                " was not sent there. Give that upstream a key of its own (credential ="
                ' "env:NAME"), or the client one that is meant for it'
            )
        if len(self._passed) >= _REMEMBERED:
            self._passed.clear()
        self._passed.add((lines, query))


def vendor_at(host: str) -> str | None:
    """Whose host this is, where that is known."""
    name = host.lower().rstrip(".")
    while name:
        if name in _HOSTS:
            return _HOSTS[name]
        name = name.partition(".")[2]
    return None


def login_vendor(headers: Headers) -> str | None:
    """The one vendor that a client's login is for, where its form says so."""
    found = vendors_of_login(header_lines(headers))
    return found.pop() if len(found) == 1 else None


def vendors_of_login(lines: bytes) -> set[str]:
    """Whose keys and logins stand in the headers that clients log in with."""
    return _forms_in(b"".join(_LOGIN_HEADERS.findall(lines))) | _marked_logins(lines)


def vendors_in(lines: bytes, query: bytes = b"") -> set[str]:
    """Whose keys and logins stand anywhere in a head."""
    return _forms_in(lines + b"\n" + unquote_to_bytes(query)) | _marked_logins(lines)


def _marked_logins(lines: bytes) -> set[str]:
    """Whose login a bearer is by the headers that its vendor's clients send with one."""
    if not _BEARER.search(lines):
        return set()
    marks = ((ANTHROPIC, _CLAUDE_LOGIN), (OPENAI, _CHATGPT_LOGIN))
    return {vendor for vendor, mark in marks if mark.search(lines)}


def _forms_in(text: bytes) -> set[str]:
    for encoded in _BASIC.findall(text):
        try:
            text += b"\n" + b64decode(encoded, validate=True)
        except binascii.Error:
            continue
    found = {_VENDORS[(match.lastindex or 1) - 1] for match in _KEYS.finditer(text)}
    if any(_OPENAIS in _decoded(payload) for payload in _JWT.findall(text)):
        found.add(OPENAI)
    return found


# What names a credential in a query, and what only sounds like it: places in a list.
_SECRET_NAME = re.compile(
    rb"(?:.*[\-_.]|)(?:key|api-?key|token|secret|auth|authorization|password|passwd|pwd|sig|"
    rb"signature|credential|credentials|code|jwt|session)|.*(?:apikey|accesstoken|authtoken)",
    re.IGNORECASE,
)
_PLACE_NAME = re.compile(
    rb"(?:next|previous|page|continuation|cursor|start|sync)[\-_.]?(?:page[\-_.]?)?token",
    re.IGNORECASE,
)


def without_secrets(target: bytes) -> bytes:
    """The target without what a client shows of itself in the query."""
    path, mark, query = target.partition(b"?")
    if not mark:
        return target
    parts = query.split(b"&")
    kept = [part for part in parts if not _is_secret(part)]
    if len(kept) == len(parts):
        return target
    return path + b"?" + b"&".join(kept) if kept else path


def _is_secret(part: bytes) -> bool:
    name = unquote_to_bytes(part.partition(b"=")[0].replace(b"+", b" ")).strip()
    if _SECRET_NAME.fullmatch(name) and not _PLACE_NAME.fullmatch(name):
        return True
    return bool(_forms_in(unquote_to_bytes(part)))


def _decoded(part: bytes) -> bytes:
    try:
        return urlsafe_b64decode(part + b"=" * (-len(part) % 4))
    except binascii.Error:
        return b""
