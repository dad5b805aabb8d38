"""How an upstream of any kind is spoken to.

Laws: (1) `render` is quick and changes nothing but what the other side needs: address, credentials,
model, dialect; (2) the client's own credentials go only where the settings pass them through, and
to no other vendor than theirs; (3) whatever comes back reaches the ear as Anthropic's dialect,
except errors, which are told as they came: they are judged by their own words first; (4) what a
dialect cannot say is refused by name.
Not here: HTTP (upstream/), choosing between upstreams (lanes/, gateway/).
"""

from __future__ import annotations

from typing import Protocol

from jackline.upstream.origin import Origin
from jackline.upstream.port import Ear, Message


class CannotCarryError(ValueError):
    """This upstream cannot carry this request, for the reason told; another one may."""


class WrongVendorError(ValueError):
    """The client's credential is another vendor's, for the reason told: nothing may be sent."""


class Provider(Protocol):
    """One upstream."""

    @property
    def origin(self) -> Origin:
        """Where it is."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether `render` can be called now; else `prepare` has to be awaited first."""
        ...

    async def prepare(self) -> None:
        """Fetch what rendering needs (a cloud's credentials); OSError when that fails."""
        ...

    def render(self, message: Message, model: str) -> Message:
        """The message as this upstream takes it, for its own name of the model."""
        ...

    def listen(self, ear: Ear, message: Message, model: str) -> Ear:
        """Who hears the answer: the ear itself, or one that translates for it."""
        ...

    def native_error(self, status: int, body: bytes) -> bytes:
        """An error body of this upstream in Anthropic's shape, for clients."""
        ...
