"""Find the endpoint of a request by its path, and answer the vendors' rate-limits APIs.

Rules: (1) pure; (2) any prefix before an endpoint is allowed, as proxies and tenants have one;
(3) clouds have model and streaming in the path, everybody else in the body; (4) the rate-limits
APIs require the admin key of the settings, in the vendor's own header; without one in the
settings there is no such API; (5) models with the same limits are one group; no workspace
has limits of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hmac import compare_digest
from typing import Any, NamedTuple, Self
from urllib.parse import unquote

from jackline.simulator.anthropic_wire import (
    AnthropicMessages,
    BedrockAnthropic,
    Dialect,
    VertexAnthropic,
)
from jackline.simulator.exchange import error_body
from jackline.simulator.limits import Counts
from jackline.simulator.openai_wire import OpenAIChat, OpenAIResponses
from jackline.simulator.provider import ProviderSettings

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
