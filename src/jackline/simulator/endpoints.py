"""Find the endpoint of a request by its path, and answer those that are no model call.

Rules: (1) any prefix before an endpoint is allowed, as proxies and tenants have one; clouds have
model and streaming in the path, everybody else in the body; (2) the vendors' rate-limits APIs
require the admin key of the settings, in the vendor's own header; without one in the settings there
is no such API; models with the same limits are one group; no workspace has limits of its own; (3)
the control endpoint changes faults, starts again and shows the ledger: it accepts what scenarios
contain, checked the same way, and names of packaged scenarios only: files are named on the command
line; (4) a request for it must name this machine as its Host, so that a page whose name was bound
to 127.0.0.1 gets nothing; what a browser sends for another site's page is refused; the port in Host
is ignored, because behind a tunnel it is another than ours. The gateway's own check (gateway/) has
the same rules for more names; this package may not import it, because it is in a higher layer.
Not here: what the orders do (live_provider.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from hmac import compare_digest
from typing import Any, NamedTuple, Self
from urllib.parse import unquote

from jackline.errors import BadArgumentError, JacklineError, RefusedError, UnreadableError
from jackline.simulator.anthropic_wire import (
    AnthropicMessages,
    BedrockAnthropic,
    Dialect,
    VertexAnthropic,
)
from jackline.simulator.exchange import error_body
from jackline.simulator.faults import Fault
from jackline.simulator.limits import Counts
from jackline.simulator.live_provider import LiveProvider
from jackline.simulator.openai_wire import OpenAIChat, OpenAIResponses
from jackline.simulator.provider import ProviderSettings
from jackline.simulator.scenario import Scenario, read_table

_ANTHROPIC = AnthropicMessages()
_VERTEX = VertexAnthropic()
_BEDROCK = BedrockAnthropic()
_CHAT = OpenAIChat()
_BY_END: dict[str, Dialect] = {
    "/messages": _ANTHROPIC,
    "/chat/completions": _CHAT,
    "/responses": OpenAIResponses(),
}
_INVOKE = re.compile(r"/model/([^/]+)/invoke(-with-response-stream)?$")
_PREDICT = re.compile(r"/publishers/anthropic/models/([^/]+):(stream)?[rR]awPredict$")
_COUNTING = ("/messages/count_tokens", "/models/count-tokens:rawPredict")


class Route(NamedTuple):
    """An endpoint, the fields in its path, and whether tokens are only counted."""

    dialect: Dialect
    path_fields: Mapping[str, Any]
    counts_only: bool = False

    def has_credential(self, headers: Mapping[str, str]) -> bool:
        """Whether the request has a credential that this endpoint accepts."""
        if self.dialect.name in ("bedrock", "vertex"):
            return bool(headers.get("authorization"))
        return any(headers.get(name) for name in ("authorization", "x-api-key", "api-key"))

    @classmethod
    def to_models(cls, headers: Mapping[str, str]) -> Self:
        """The endpoint that lists models; OpenAI's clients do not send a version."""
        openai = "authorization" in headers and "anthropic-version" not in headers
        return cls(_CHAT if openai else _ANTHROPIC, {})

    @classmethod
    def of_post(cls, path: str) -> Self | None:
        """The endpoint of a POST to this path, or None."""
        if path.endswith(_COUNTING):
            counting = _VERTEX if path.endswith("rawPredict") else _ANTHROPIC
            return cls(counting, {}, counts_only=True)
        for end, dialect in _BY_END.items():
            if path.endswith(end):
                return cls(dialect, {})
        for pattern, cloud in ((_INVOKE, _BEDROCK), (_PREDICT, _VERTEX)):
            if found := pattern.search(path):
                return cls(cloud, {"model": unquote(found[1]), "stream": found[2] is not None})
        return None


_ORGANIZATION = "/v1/organizations/rate_limits"
_WORKSPACE = re.compile(r"/v1/organizations/workspaces/[^/]+/rate_limits$")
_PROJECT = re.compile(r"/v1/organization/projects/[^/]+/rate_limits$")
_LIMITERS = {
    Counts.REQUESTS: "requests_per_minute",
    Counts.INPUT_TOKENS: "input_tokens_per_minute",
    Counts.OUTPUT_TOKENS: "output_tokens_per_minute",
}


def answer_rate_limits(
    settings: ProviderSettings, path: str, headers: Mapping[str, str]
) -> tuple[int, bytes] | None:
    """The status and the body; None when this path belongs to no such API."""
    path = path.partition("?")[0]
    of_openai = _PROJECT.search(path) is not None
    of_workspace = _WORKSPACE.search(path) is not None
    if not settings.admin_key or not (of_openai or of_workspace or path.endswith(_ORGANIZATION)):
        return None
    sent = headers.get("authorization", "").removeprefix("Bearer ")
    sent = sent if of_openai else headers.get("x-api-key", "")
    if not compare_digest(sent.encode(), settings.admin_key.encode()):
        return 401, error_body("authentication_error", "invalid admin key").encode()
    # The smallest limit of each kind that counts a model.
    limits: dict[str, dict[str, int]] = {model: {} for model in settings.models}
    for model, known in limits.items():
        for bucket in settings.buckets:
            if bucket.model in model:
                name, value = _LIMITERS[bucket.counts], round(bucket.per_minute)
                known[name] = min(value, known.get(name, value))
    if of_openai:
        data = [
            {
                "object": "project.rate_limit",
                "id": f"rl-{model}",
                "model": model,
                "max_requests_per_1_minute": known.get("requests_per_minute", 0),
                "max_tokens_per_1_minute": known.get("input_tokens_per_minute", 0),
            }
            for model, known in limits.items()
        ]
        ids = [each["id"] for each in data] or [None]
        ends = {"first_id": ids[0], "last_id": ids[-1], "has_more": False}
        return 200, json.dumps({"object": "list", "data": data, **ends}).encode()
    groups: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for model, known in limits.items():
        if known and not of_workspace:
            groups.setdefault(tuple(known.items()), []).append(model)
    data = [
        {
            "type": "rate_limit",
            "group_type": "model_group",
            "models": models,
            "limits": [{"type": name, "value": value} for name, value in known],
        }
        for known, models in groups.items()
    ]
    return 200, json.dumps({"data": data, "next_page": None}).encode()


_THIS_MACHINE = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?")
# A browser sends `none` when its user typed the address or opened a bookmark.
_OWN_SITES = frozenset(("same-origin", "none"))


PREFIX = "/_control"
ROUTES = {
    "GET /_control/ledger": "every request, the counts and the costs",
    "GET /_control/summary": "the counts and the costs",
    "GET /_control/faults": "the active faults, with their handles; time zero is at `epoch`",
    "POST /_control/faults": "add a fault: the keys of a scenario's [[fault]], seconds from now",
    "DELETE /_control/faults": "end all faults",
    "DELETE /_control/faults/HANDLE": "end one fault",
    "POST /_control/reset": "an empty ledger, full buckets and empty prompt caches",
    "GET /_control/settings": "the current settings",
    "POST /_control/settings": "a scenario as JSON, or {'scenario': NAME}; starts again",
}


def refusal_reason(headers: Mapping[str, str]) -> str | None:
    """Why a request must be refused because of where it is addressed to or comes from, or None."""
    host = headers.get("host", "").lower()
    if _THIS_MACHINE.fullmatch(host) is None:
        return "requests for the control endpoint must name 127.0.0.1 or localhost as their host"
    origin = headers.get("origin")
    is_own_origin = origin is None or origin.lower() == f"http://{host}"
    if not is_own_origin or headers.get("sec-fetch-site", "none").lower() not in _OWN_SITES:
        return "requests from pages of other sites are refused"
    return None


def answer_control(
    playing: LiveProvider, method: str, path: str, headers: Mapping[str, str], raw: bytes
) -> tuple[int, bytes]:
    """The status and the JSON body for a request to the control endpoint."""
    why = refusal_reason(headers)
    path = path.partition(PREFIX)[2].strip("/")
    try:
        if why is not None:
            return 403, json.dumps({"error": RefusedError(why).to_json()}).encode()
        if method == "POST":
            document = _post(playing, path, raw)
        elif method == "GET":
            document = _get(playing, path)
        elif method == "DELETE":
            document = _delete(playing, path)
        else:
            document = None
        if document is None:
            raise UnreadableError(
                f"there is no {method} {PREFIX}/{path}",
                hint=f"GET {PREFIX}/ lists what there is",
            )
    except JacklineError as error:
        return error.http_status, json.dumps({"error": error.to_json()}).encode()
    return 200, json.dumps(document, default=str).encode()


def _get(playing: LiveProvider, path: str) -> object | None:
    provider = playing.provider
    if path == "ledger":
        return provider.ledger.to_json()
    if path == "summary":
        return provider.ledger.summary()
    if path == "faults":
        now = playing.now()
        active = [one for one in provider.faults if not one.over(now)]
        faults = [{"handle": one.handle, **_json_ready(one.fault)} for one in active]
        return {"now": now, "epoch": playing.calendar.epoch, "faults": faults}
    if path == "settings":
        return _json_ready(playing.settings)
    return {"routes": ROUTES} if path == "" else None


def _post(playing: LiveProvider, path: str, raw: bytes) -> object | None:
    try:
        document = json.loads(raw or b"{}")
    except ValueError as error:
        raise BadArgumentError(f"the body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise BadArgumentError("the body is not a JSON object")
    if path == "faults":
        return {"handle": playing.add_fault(read_table(Fault, document, "fault"))}
    if path == "reset":
        playing.restart()
        return {"reset": True}
    if path == "settings":
        named = document.get("scenario")
        if isinstance(named, str):
            scenario = Scenario.packaged(named)
        else:
            scenario = Scenario.from_document("settings", document)
        playing.restart(scenario.settings, scenario.script)
        return {"scenario": scenario.name, "description": scenario.description}
    return None


def _delete(playing: LiveProvider, path: str) -> object | None:
    what, _, handle = path.partition("/")
    if what != "faults":
        return None
    if handle and not handle.isdecimal():
        raise BadArgumentError(
            f"{handle!r} is not a handle", hint="GET /_control/faults lists them"
        )
    playing.clear_faults(int(handle) if handle else None)
    return {"cleared": handle or "all"}


def _json_ready(settings: Fault | ProviderSettings) -> dict[str, Any]:
    text = json.dumps(asdict(settings), default=str)
    # Null instead of infinite numbers, which JSON does not have.
    ready: dict[str, Any] = json.loads(text, parse_constant=lambda _name: None)
    return ready
