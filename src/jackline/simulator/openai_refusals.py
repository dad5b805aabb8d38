"""Say in OpenAI's words and headers what the model refuses.

Laws: (1) texts come from the collected facts where these have one; (2) the same refusal keeps its
meaning: a limit that names itself stays one, a wall becomes a used-up quota, an overload a 503; (3)
bodies that are not the API's (an edge's page, a script's own) stay as they are.
Not here: deciding to refuse (provider.py), answers (openai_chat.py, openai_responses.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

from jackline.simulator.conversation import JsonObject
from jackline.simulator.exchange import Rejected
from jackline.simulator.refusals import OverRate, error_words
from jackline.simulator.wire import Native, request_id

CREATED = 1_767_225_600
"""2026-01-01: replies are dated, and the same ones each time."""
_LIMITS = "anthropic-ratelimit-"
# The later one wins: OpenAI counts tokens together, and input is what a request is refused for.
_COUNTED = {"output-tokens": "tokens", "input-tokens": "tokens", "requests": "requests"}
_MORE = "Visit https://platform.openai.com/account/rate-limits to learn more."
_RETRY = (
    "You can retry your request, or contact us through our help center at help.openai.com if the"
    " error persists."
)
_QUOTA = (
    "You exceeded your current quota, please check your plan and billing details. For more"
    " information on this error, read the docs:"
    " https://platform.openai.com/docs/guides/error-codes/api-errors."
)
_OVERLOADED = f"That model is currently overloaded with other requests. {_RETRY}"
_FAILED = (
    f"The server experienced an error while processing your request. Sorry about that! {_RETRY}"
)
_EVENTS: dict[str, JsonObject] = {
    "overloaded_error": {
        "type": "service_unavailable_error",
        "code": "server_is_overloaded",
        "message": "Our servers are currently overloaded. Please try again later.",
    },
    "rate_limit_error": {
        "type": "requests",
        "code": "rate_limit_exceeded",
        "message": "Rate limit reached for requests",
    },
}


class OpenAIWords:
    """What all of OpenAI's endpoints say alike, refusals above all."""

    def models(self, names: Sequence[str]) -> bytes:
        """The reply of `/v1/models`."""
        dated = {"object": "model", "created": CREATED, "owned_by": "simulated"}
        data = [{"id": name, **dated} for name in names]
        return json.dumps({"object": "list", "data": data}).encode()

    def identity(self, serial: int) -> Mapping[str, str]:
        """`x-request-id`."""
        return {"x-request-id": request_id(serial)}

    def ping(self) -> bytes:
        """A comment, which event streams may hold anywhere."""
        return b": keepalive\n\n"

    def announced(self, headers: Mapping[str, str], epoch: float) -> Mapping[str, str]:
        """`x-ratelimit-*`, with resets as durations; a subscription's windows are not told."""
        told = {name: text for name, text in headers.items() if not name.startswith(_LIMITS)}
        for counted, unit in _COUNTED.items():
            limit = headers.get(f"{_LIMITS}{counted}-limit")
            if limit is None:
                continue
            resets = datetime.fromisoformat(headers[f"{_LIMITS}{counted}-reset"]).timestamp()
            told[f"x-ratelimit-limit-{unit}"] = limit
            told[f"x-ratelimit-remaining-{unit}"] = headers[f"{_LIMITS}{counted}-remaining"]
            told[f"x-ratelimit-reset-{unit}"] = go_duration(resets - epoch)
        return told

    def refused(self, refused: Rejected, model: str, epoch: float) -> Native:
        """The error document of OpenAI's API."""
        words = error_words(refused.body)
        if words is None:
            return Native(refused.status, refused.headers, refused.body)
        headers = dict(self.announced(refused.headers, epoch))
        if refused.wall:
            # A quota that money has used up comes back at no time that could be told.
            headers.pop("retry-after", None)
        status = 503 if refused.status == 529 else refused.status
        error = _error(refused, *words, model=model, wait=headers.get("retry-after"))
        return Native(status, headers, json.dumps({"error": error}))


def event_error(body: str) -> JsonObject:
    """The error that a stream tells."""
    kind = (error_words(body) or ("", ""))[0]
    failed = {"type": "server_error", "code": "server_error", "message": _FAILED}
    return {**_EVENTS.get(kind, failed), "param": None}


def go_duration(seconds: float) -> str:
    """`20ms`, `1s`, `6m0s` or `1h2m3s`."""
    if 0 < seconds < 1:
        return f"{max(1, round(seconds * 1000))}ms"
    whole = max(0, round(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours}h{minutes}m{whole % 60}s"
    return f"{minutes}m{whole % 60}s" if minutes else f"{whole}s"


def _error(
    refused: Rejected, kind: str, message: str, *, model: str, wait: str | None
) -> JsonObject:
    code: str | None = None
    if refused.wall:
        kind, code, message = "insufficient_quota", "insufficient_quota", _QUOTA
    elif refused.over is not None:
        kind = "requests" if refused.over.unit == "requests" else "tokens"
        code, message = "rate_limit_exceeded", _over(refused.over, model, wait)
    elif kind in _EVENTS and refused.status == 429:
        throttled = _EVENTS["rate_limit_error"]
        kind, code, message = throttled["type"], throttled["code"], throttled["message"]
    elif kind == "overloaded_error":
        kind, message = "server_error", _OVERLOADED
    elif kind == "api_error":
        kind, message = "server_error", _FAILED
    elif kind == "authentication_error":
        kind, code = "invalid_request_error", "invalid_api_key"
    elif kind == "invalid_encrypted_content":
        kind, code = "invalid_request_error", kind
    elif kind == "not_found_error":
        kind, code = "invalid_request_error", "model_not_found"
    return {"message": message, "type": kind, "param": None, "code": code}


def _over(over: OverRate, model: str, wait: str | None) -> str:
    unit, short = ("requests", "RPM") if over.unit == "requests" else ("tokens", "TPM")
    soon = f" Please try again in {go_duration(float(wait))}." if wait else ""
    return (
        f"Rate limit reached for {model} in organization org-simulated on {unit} per min"
        f" ({short}): Limit {over.limit}, Used {over.limit}, Requested 1.{soon} {_MORE}"
    )
