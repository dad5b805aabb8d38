"""Know by its address which endpoint a request is for, and what the address tells of it.

Laws: (1) pure; (2) any prefix before an endpoint is allowed, as proxies and tenants have one; (3)
clouds tell model and streaming in the address, everybody else in the body.
Not here: answering (connection.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from jackline.simulator.clouds import BedrockAnthropic, VertexAnthropic
from jackline.simulator.openai_chat import OpenAIChat
from jackline.simulator.openai_responses import OpenAIResponses
from jackline.simulator.wire import AnthropicMessages, Dialect

ANTHROPIC = AnthropicMessages()
_VERTEX = VertexAnthropic()
_BEDROCK = BedrockAnthropic()
_CHAT = OpenAIChat()
_BY_END: dict[str, Dialect] = {
    "/messages": ANTHROPIC,
    "/chat/completions": _CHAT,
    "/responses": OpenAIResponses(),
}
_INVOKE = re.compile(r"/model/([^/]+)/invoke(-with-response-stream)?$")
_PREDICT = re.compile(r"/publishers/anthropic/models/([^/]+):(stream)?[rR]awPredict$")
_COUNTING = ("/messages/count_tokens", "/models/count-tokens:rawPredict")
_CREDENTIALS: Mapping[str, tuple[str, ...]] = {
    "bedrock": ("authorization",),
    "vertex": ("authorization",),
}
_ANY_KEY = ("authorization", "x-api-key", "api-key")


class Route(NamedTuple):
    """An endpoint, what its address tells, and whether tokens are only counted."""

    dialect: Dialect
    told: Mapping[str, Any]
    counts_only: bool = False

    def has_credential(self, headers: Mapping[str, str]) -> bool:
        """Whether the request brings what this endpoint takes for a credential."""
        return any(headers.get(name) for name in _CREDENTIALS.get(self.dialect.name, _ANY_KEY))


def listing(headers: Mapping[str, str]) -> Route:
    """The endpoint that lists models; OpenAI's clients are those that do not name a version."""
    openai = "authorization" in headers and "anthropic-version" not in headers
    return Route(_CHAT if openai else ANTHROPIC, {})


def route(path: str) -> Route | None:
    """The endpoint that is posted to, or None when there is none at this path."""
    if path.endswith(_COUNTING):
        return Route(_VERTEX if path.endswith("rawPredict") else ANTHROPIC, {}, counts_only=True)
    for end, dialect in _BY_END.items():
        if path.endswith(end):
            return Route(dialect, {})
    for pattern, cloud in ((_INVOKE, _BEDROCK), (_PREDICT, _VERTEX)):
        if found := pattern.search(path):
            return Route(cloud, {"model": unquote(found[1]), "stream": found[2] is not None})
    return None
