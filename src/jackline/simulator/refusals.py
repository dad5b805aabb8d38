"""Hold the answers with which real providers refuse, word for word.

Laws: (1) texts come from the collected facts; only numbers, dates and ids are filled in; (2) an
answer that an edge gave (HTML, Envoy) is marked, since it carries no request id.
Not here: when to refuse (limits.py, faults.py), adding request ids (wire.py), the words of other
vendors (openai_refusals.py, cloud_refusals.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

_HTML = {"content-type": "text/html; charset=UTF-8"}
_CLOUDFLARE = {**_HTML, "server": "cloudflare", "cf-ray": "a09ddee54e2fbedb-FRA"}
_ENVOY = {"content-type": "text/plain", "server": "envoy"}

QUOTA_MESSAGE = "This request would exceed your account's rate limit. Please try again later."


class OverRate(NamedTuple):
    """The limit per minute that a refusal names."""

    limit: int
    unit: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """A whole refusing answer; `wall` marks an exhausted window, `edge` one not from the API."""

    status: int
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)
    wall: bool = False
    edge: bool = False
    over: OverRate | None = None


def error_body(kind: str, message: str) -> str:
    """The JSON document in which the API wraps an error."""
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}})


def error_words(body: str) -> tuple[str, str] | None:
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


THROTTLED = Refusal(429, error_body("rate_limit_error", "Rate limited"))
OVERLOADED = Refusal(529, error_body("overloaded_error", "Overloaded"))
TOO_MANY_CONNECTIONS = Refusal(
    429,
    error_body(
        "rate_limit_error",
        "Number of concurrent connections has exceeded your rate limit. Please try again later or"
        " contact sales at https://www.anthropic.com/contact-sales to discuss your options for a"
        " rate limit increase.",
    ),
)
SERVER_ERROR = Refusal(500, error_body("api_error", "Internal server error"))
BAD_GATEWAY = Refusal(
    502,
    "<html>\n<head><title>502 Bad Gateway</title></head>\n<body>\n<center><h1>502 Bad Gateway</h1>"
    "</center>\n<hr><center>cloudflare</center>\n</body>\n</html>\n",
    _CLOUDFLARE,
    edge=True,
)
ENVOY_UNAVAILABLE = Refusal(
    503,
    "upstream connect error or disconnect/reset before headers. reset reason: remote connection"
    " failure, transport failure reason: delayed connect error: Connection refused",
    _ENVOY,
    edge=True,
)
ENVOY_OVERFLOW = Refusal(
    503,
    "upstream connect error or disconnect/reset before headers. reset reason: overflow",
    _ENVOY,
    edge=True,
)
CAPTIVE_PORTAL = Refusal(
    200,
    "<html><head><title>Sign in to network</title></head>"
    "<body><h1>Internet Access Denied</h1></body></html>",
    _HTML,
    edge=True,
)
NO_CREDENTIAL = Refusal(401, error_body("authentication_error", "x-api-key header is required"))
STRANGE_SEAL = Refusal(
    400,
    error_body(
        "invalid_encrypted_content",
        "The encrypted content could not be verified. Reason: Encrypted content could not be"
        " decrypted or parsed.",
    ),
)


@lru_cache(maxsize=256)
def over_rate(limit: int, unit: str, model: str) -> Refusal:
    """The answer to a request above a per-minute limit that names itself."""
    message = (
        f"This request would exceed your organization's rate limit of {limit:,} {unit} per minute"
        f" (org: 9d50ef40-6cc8-4ca6-9d35-1dc9cf26235c, model: {model}). For details, refer to:"
        " https://docs.claude.com/en/api/rate-limits. You can see the response headers for current"
        " usage. Please reduce the prompt length or the maximum tokens requested, or try again"
        " later. You may also contact sales at https://claude.com/contact-sales to discuss"
        " your options for a rate limit increase."
    )
    over = OverRate(limit, unit)
    return Refusal(429, error_body("rate_limit_error", message), over=over)


def quota_wall(message: str, headers: Mapping[str, str]) -> Refusal:
    """The answer of a subscription whose window is used up."""
    return Refusal(429, error_body("rate_limit_error", message), headers, wall=True)
