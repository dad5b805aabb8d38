"""What passes between a client and the simulated provider: requests, events and refusals.

Rules: (1) values only; (2) every exchange ends in at most one of completed, rejected or broken;
one that hangs ends in none of them until its client cancels; (3) the texts of refusals are exactly
those of real providers; only numbers, dates and ids are filled in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, Self, TypeAlias

from jackline.simulator.prompt_cache import Hit, Prompt

_HTML = {"content-type": "text/html; charset=UTF-8"}
_CLOUDFLARE = {**_HTML, "server": "cloudflare", "cf-ray": "a09ddee54e2fbedb-FRA"}
_ENVOY = {"content-type": "text/plain", "server": "envoy"}

NO_HEADERS: Mapping[str, str] = {}
QUOTA_MESSAGE = "This request would exceed your account's rate limit. Please try again later."


class OverRate(NamedTuple):
    """The limit per minute that a refusal names."""

    limit: int
    unit: str


@dataclass(frozen=True, slots=True)
class ProviderRefusal:
    """A whole refusing answer; `wall` marks an exhausted window, `over` names the limit."""

    status: int
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)
    wall: bool = False
    over: OverRate | None = None

    @classmethod
    def of_api(
        cls,
        status: int,
        kind: str,
        message: str,
        headers: Mapping[str, str] = NO_HEADERS,
        *,
        wall: bool = False,
        over: OverRate | None = None,
    ) -> Self:
        """The refusal with the API's error document."""
        return cls(status, error_body(kind, message), headers, wall=wall, over=over)


def error_body(kind: str, message: str) -> str:
    """The JSON document in which the API wraps an error."""
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}})


def read_error(body: str) -> tuple[str, str] | None:
    """Kind and message of the API's error document; None for any other body."""
    try:
        document = json.loads(body)
    except ValueError:
        return None
    if not isinstance(document, dict) or document.get("type") != "error":
        return None
    error = document.get("error")
    if not isinstance(error, dict):
        return None
    return str(error.get("type", "")), str(error.get("message", ""))


THROTTLED = ProviderRefusal.of_api(429, "rate_limit_error", "Rate limited")
OVERLOADED = ProviderRefusal.of_api(529, "overloaded_error", "Overloaded")
TOO_MANY_CONNECTIONS = ProviderRefusal.of_api(
    429,
    "rate_limit_error",
    "Number of concurrent connections has exceeded your rate limit. Please try again later or"
    " contact sales at https://www.anthropic.com/contact-sales to discuss your options for a"
    " rate limit increase.",
)
SERVER_ERROR = ProviderRefusal.of_api(500, "api_error", "Internal server error")
BAD_GATEWAY = ProviderRefusal(
    502,
    "<html>\n<head><title>502 Bad Gateway</title></head>\n<body>\n<center><h1>502 Bad Gateway</h1>"
    "</center>\n<hr><center>cloudflare</center>\n</body>\n</html>\n",
    _CLOUDFLARE,
)
ENVOY_UNAVAILABLE = ProviderRefusal(
    503,
    "upstream connect error or disconnect/reset before headers. reset reason: remote connection"
    " failure, transport failure reason: delayed connect error: Connection refused",
    _ENVOY,
)
ENVOY_OVERFLOW = ProviderRefusal(
    503,
    "upstream connect error or disconnect/reset before headers. reset reason: overflow",
    _ENVOY,
)
CAPTIVE_PORTAL = ProviderRefusal(
    200,
    "<html><head><title>Sign in to network</title></head>"
    "<body><h1>Internet Access Denied</h1></body></html>",
    _HTML,
)
NO_CREDENTIAL = ProviderRefusal.of_api(401, "authentication_error", "x-api-key header is required")
UNKNOWN_ENCRYPTED_CONTENT = ProviderRefusal.of_api(
    400,
    "invalid_encrypted_content",
    "The encrypted content could not be verified. Reason: Encrypted content could not be"
    " decrypted or parsed.",
)


@lru_cache(maxsize=256)
def over_rate(limit: int, unit: str, model: str) -> ProviderRefusal:
    """The refusal of a request above a per-minute limit, which names the limit."""
    message = (
        f"This request would exceed your organization's rate limit of {limit:,} {unit} per minute"
        f" (org: 9d50ef40-6cc8-4ca6-9d35-1dc9cf26235c, model: {model}). For details, refer to:"
        " https://docs.claude.com/en/api/rate-limits. You can see the response headers for current"
        " usage. Please reduce the prompt length or the maximum tokens requested, or try again"
        " later. You may also contact sales at https://claude.com/contact-sales to discuss"
        " your options for a rate limit increase."
    )
    over = OverRate(limit, unit)
    return ProviderRefusal.of_api(429, "rate_limit_error", message, over=over)


@dataclass(frozen=True, slots=True)
class SimRequest:
    """One request as the model sees it; without output tokens its length is drawn.

    `service`: seconds from arrival to the last byte, for workloads that bring their own.
    `dialect`: its wire format, noted only. `is_side_request`: not a model call; faults apply to it,
    but limits and the ledger do not count it. `delay`: seconds by which the whole answer comes
    later. `prompt`: what prompt caches see of it; `input_tokens` are then the prompt's. `hit`: what
    the prompt caches have of it; the provider looks when it arrives.
    """

    model: str = "claude-sonnet-4-6"
    input_tokens: int = 3000
    output_tokens: int = 0
    stream: bool = True
    session: str = ""
    agent: str = ""
    body_hash: str = ""
    service: float | None = None
    dialect: str = "anthropic"
    is_side_request: bool = False
    delay: float = 0.0
    prompt: Prompt | None = None
    hit: Hit | None = None

    @property
    def read_tokens(self) -> int:
        """The part of the input that is read from a prompt cache."""
        return 0 if self.hit is None else self.hit.read


class How(StrEnum):
    """How an exchange breaks without an HTTP error."""

    REFUSED = "refused"
    RESET = "reset"
    CUT = "cut"
    CLEAN_END = "clean_end"
    ERROR_EVENT = "error_event"


class Accepted(NamedTuple):
    """The first byte: status 200 and its headers."""

    id: int
    at: float
    headers: Mapping[str, str]


class Bytes(NamedTuple):
    """The stream is alive; `share` of the answer is written by now."""

    id: int
    at: float
    share: float


class Completed(NamedTuple):
    """The last byte of a whole answer."""

    id: int
    at: float
    input_tokens: int
    output_tokens: int


class Rejected(NamedTuple):
    """An HTTP answer that is not a message; a captive portal has status 200.

    `wall` and `over` are the cause, for dialects with texts of their own.
    """

    id: int
    at: float
    status: int
    headers: Mapping[str, str]
    body: str
    wall: bool = False
    over: OverRate | None = None


class ConnectionBroken(NamedTuple):
    """The connection failed, or the answer ended early.

    `share` of the answer was written before, or exactly `at_byte` bytes if that is not None;
    an error event has its `body`.
    """

    id: int
    at: float
    how: How
    share: float
    body: str
    at_byte: int | None


ProviderEvent: TypeAlias = Accepted | Bytes | Completed | Rejected | ConnectionBroken
