"""The interface of a provider: how requests are rendered for an upstream of any kind.

Rules: (1) `render` is quick and changes only what the other side needs: address, credentials,
model, dialect; (2) the client's own credentials go only where the settings pass them through, and
to no other vendor than theirs; (3) answers reach the handler in Anthropic's dialect, except errors,
which are passed on as they came, because they are classified by their own text; (4) a request that
a dialect cannot express is refused with the reason.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from jackline.dialects.neutral.answer import to_anthropic_error
from jackline.upstream.interface import ResponseHandler, UpstreamRequest
from jackline.upstream.origin import Origin


class UnsupportedRequestError(ValueError):
    """This upstream cannot serve this request; another one may."""


class WrongVendorError(ValueError):
    """The client's credential is another vendor's: nothing may be sent."""


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
