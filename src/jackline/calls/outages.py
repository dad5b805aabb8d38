"""What the carrier asks before a client whom no vendor knows is served with a key of ours.

Rules: whoever has no evidence says that no upstream is down. Where evidence comes from:
gateway/outage_evidence.py.
"""

from __future__ import annotations

from typing import Protocol

from jackline.calls.request import Request


class Outages(Protocol):
    """Knows which upstreams are down, whatever an unknown client meets there."""

    def failed(self, request: Request, lane: str, now: float) -> None:
        """A call has failed on a lane as if its upstream were down."""
        ...

    def is_down(self, lane: str, now: float) -> bool:
        """Whether the lane's upstream is down, also for others than whoever asks."""
        ...


class NoEvidence:
    """Knows nothing: for carriers without a gateway around them."""

    def failed(self, request: Request, lane: str, now: float) -> None:
        """Nothing is learned."""

    def is_down(self, lane: str, now: float) -> bool:  # noqa: ARG002 -- the protocol
        """Never, as far as is known."""
        return False
