"""How clients of each dialect are kept alive, and how they are told errors.

Laws: (1) a sign of life is nothing that a model could have said; (2) an error inside a stream has
the shape that the dialect has for it.
Not here: when either is due (messages.py).
"""

from __future__ import annotations

import json
from typing import Protocol

from jackline.dialects import PING, error_event, placeholder_start
from jackline.gateway.identity import Client

_COMMENT = b": jackline holds this call\n\n"
_KEEPALIVE = b'event: keepalive\ndata: {"type":"keepalive"}\n\n'


class Manner(Protocol):
    """What is said to clients of one dialect."""

    # Bytes that keep a connection from looking dead, at any time between events.
    ping: bytes

    def sign_of_life(self, model: str, client: Client) -> bytes:
        """What counts as progress, while nothing of the answer has been delivered."""
        ...

    def error_event(self, body: bytes) -> bytes:
        """The vendor's error body, told inside a stream that has begun."""
        ...


class AnthropicManner:
    """Messages."""

    ping = PING

    def sign_of_life(self, model: str, client: Client) -> bytes:
        """A message_start, which the real one replaces."""
        # Claude Code counts neither pings nor comments as life, but a repeated message_start. Other
        # clients count bytes, and may mind a second start.
        return placeholder_start(model) if client.claude_code else PING

    def error_event(self, body: bytes) -> bytes:
        """An `error` event."""
        return error_event(body)


class ChatManner:
    """OpenAI's Chat Completions."""

    ping = _COMMENT

    def sign_of_life(self, model: str, client: Client) -> bytes:  # noqa: ARG002 -- the protocol
        """A comment: there is no event for it."""
        return _COMMENT

    def error_event(self, body: bytes) -> bytes:
        """A chunk with an error, as OpenAI sends it."""
        return b"data: " + json.dumps({"error": _error(body)}).encode() + b"\n\n"


class ResponsesManner:
    """OpenAI's Responses."""

    ping = _COMMENT

    def sign_of_life(self, model: str, client: Client) -> bytes:  # noqa: ARG002 -- the protocol
        """A comment, or what Codex takes for one."""
        # Codex gives a stream up after 300 s without an event, and comments are none. Events that
        # it does not know it skips; other clients may mind them.
        return _KEEPALIVE if client.codex else _COMMENT

    def error_event(self, body: bytes) -> bytes:
        """A `response.failed` event."""
        error = _error(body)
        told = {"code": error.get("code") or error.get("type"), "message": error.get("message")}
        response = {"object": "response", "status": "failed", "error": told}
        data = json.dumps({"type": "response.failed", "response": response})
        return b"event: response.failed\ndata: " + data.encode() + b"\n\n"


ANTHROPIC = AnthropicManner()
CHAT = ChatManner()
RESPONSES = ResponsesManner()


def _error(body: bytes) -> dict[str, object]:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        told = None
    error = told.get("error") if isinstance(told, dict) else None
    if isinstance(error, dict):
        return error
    return {"type": "server_error", "code": "server_error", "message": "the upstream has failed"}
