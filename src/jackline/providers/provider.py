"""The interface of a provider, and the one for upstreams with Anthropic's own dialect.

Rules: (1) `render` is quick and changes only what the other side needs: address, credentials,
model, dialect; (2) the client's own credentials go only where the settings pass them through, and
to no other vendor than theirs; (3) answers reach the handler in Anthropic's dialect, except errors,
which are passed on as they came, because they are classified by their own text; (4) a request that
a dialect cannot express is refused with the reason; (5) for an upstream with Anthropic's dialect a
request that needs no change is passed on as the same object; of a body, at most the model's name is
changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from jackline.dialects.neutral.answer import to_anthropic_error
from jackline.providers.credential_forms import PassThroughGuard, without_secrets
from jackline.providers.sent_request import (
    COMPRESSION,
    allowed,
    own_headers,
    uncompressed,
    with_model,
    with_own,
    without,
)
from jackline.providers.settings import Credential, UpstreamSettings
from jackline.upstream.interface import ResponseHandler, UpstreamRequest
from jackline.upstream.origin import Origin


class Provider(ABC):
    """One upstream; by default it answers as Anthropic does."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin

    @property
    @abstractmethod
    def is_ready(self) -> bool:
        """Whether `render` can be called now; else `prepare` has to be awaited first."""

    async def prepare(self) -> None:  # noqa: B027 -- most need nothing
        """Fetch what rendering needs (a cloud's credentials); OSError when that fails."""

    @abstractmethod
    def render(self, request: UpstreamRequest, model: str) -> UpstreamRequest:
        """The request in this upstream's form, for its own name of the model."""

    def wrap_handler(
        self,
        handler: ResponseHandler,
        request: UpstreamRequest,  # noqa: ARG002 -- for those that translate
        model: str,  # noqa: ARG002 -- for those that translate
    ) -> ResponseHandler:
        """Who receives the answer: the handler itself, or one that translates for it."""
        return handler

    def native_error(self, status: int, body: bytes) -> bytes:
        """An error body of this upstream in Anthropic's form, for clients."""
        return to_anthropic_error(status, body)


class AnthropicProvider(Provider):
    """One upstream that takes Anthropic's requests as they are."""

    is_ready = True

    def __init__(self, settings: UpstreamSettings, origin: Origin) -> None:
        super().__init__(origin)
        self._passes_through = settings.credential is Credential.PASS_THROUGH
        self._guard = PassThroughGuard(settings, origin)
        self._own = own_headers(settings, key_header=b"x-api-key")
        self._changes_nothing = self._passes_through and not self._own

    def render(self, request: UpstreamRequest, model: str) -> UpstreamRequest:
        """The request with this upstream's credential and name of the model."""
        if self._passes_through:
            self._guard.check(request)
        # The usual case: the client's own credential, and the model that it requests.
        if self._changes_nothing and request.body.startswith(b'{"model":"%b"' % model.encode()):
            return request
        headers, target = request.headers, request.target
        if not self._passes_through:
            headers, target = allowed(headers), without_secrets(target)
        if self._own:
            headers = with_own(headers, self._own)
        body = request.body
        if body and model:
            is_compressed = any(name.lower() in COMPRESSION for name, _ in headers)
            # A body that cannot be decompressed here may well be readable there: it is unchanged.
            readable = uncompressed(request) if is_compressed else body
            changed = readable if readable is None else with_model(readable, model)
            if changed is not None and changed is not readable:
                body = changed
                headers = without(headers, COMPRESSION) if is_compressed else headers
        if headers is request.headers:
            # Nothing was changed, or the model in a body alone: the header lines are still right.
            return request if body is request.body else request._replace(body=body)
        return UpstreamRequest(request.method, target, headers, body)

    def native_error(self, status: int, body: bytes) -> bytes:  # noqa: ARG002 -- the protocol
        """The error as it came: it is in Anthropic's form."""
        return body
