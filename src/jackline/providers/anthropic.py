"""The provider for upstreams with Anthropic's own dialect: the vendor, a bridge, a proxy.

Rules: (1) a message that needs no change is passed on as the same object; (2) of a body, at most
the name of the model is changed; (3) answers are passed on as they come.
Not here: which model is requested (gateway/).
"""

from __future__ import annotations

from jackline.providers.credential_forms import PassThroughGuard, without_secrets
from jackline.providers.sent_request import (
    PACKED,
    allowed,
    own_headers,
    unpacked,
    with_model,
    with_own,
    without,
)
from jackline.providers.settings import Credential, UpstreamSettings
from jackline.upstream.interface import Headers, ResponseHandler, UpstreamRequest
from jackline.upstream.origin import Origin


class AnthropicProvider:
    """One upstream that takes Anthropic's requests as they are."""

    def __init__(self, settings: UpstreamSettings, origin: Origin) -> None:
        self._origin = origin
        self._passes_through = settings.credential is Credential.PASS_THROUGH
        self._guard = PassThroughGuard(settings, origin)
        self._own = own_headers(settings)
        self._changes_nothing = self._passes_through and not self._own

    @property
    def origin(self) -> Origin:
        """Where it is."""
        return self._origin

    @property
    def is_ready(self) -> bool:
        """Always: what rendering needs is in the settings."""
        return True

    async def prepare(self) -> None:
        """Nothing is needed."""

    def render(self, message: UpstreamRequest, model: str) -> UpstreamRequest:
        """The message with this upstream's credential and name of the model."""
        if self._passes_through:
            self._guard.check(message)
        # The usual case: the client's own credential, and the model that it asks for.
        if self._changes_nothing and message.body.startswith(b'{"model":"%b"' % model.encode()):
            return message
        headers, target = message.headers, message.target
        if not self._passes_through:
            headers, target = allowed(headers), without_secrets(target)
        if self._own:
            headers = with_own(headers, self._own)
        body = message.body
        if body and model:
            packed = _is_packed(headers)
            # What cannot be unpacked here may well be readable there, and stays as it is.
            readable = unpacked(message) if packed else body
            asked = readable if readable is None else with_model(readable, model)
            if asked is not None and asked is not readable:
                body = asked
                headers = without(headers, PACKED) if packed else headers
        if headers is message.headers:
            # Nothing was changed, or the model in a body alone: the lines are still right.
            return message if body is message.body else message._replace(body=body)
        return UpstreamRequest(message.method, target, headers, body)

    def listen(self, ear: ResponseHandler, message: UpstreamRequest, model: str) -> ResponseHandler:  # noqa: ARG002 -- the protocol
        """The ear itself: nothing has to be translated."""
        return ear

    def native_error(self, status: int, body: bytes) -> bytes:  # noqa: ARG002 -- the protocol
        """The error as it came: it is in Anthropic's shape."""
        return body


def _is_packed(headers: Headers) -> bool:
    return any(name.lower() in PACKED for name, _ in headers)
