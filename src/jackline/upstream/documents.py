"""Fetch one small document: ask once, wait for all of it, and keep no more than a bound.

Rules: (1) what goes wrong is told in the result, never raised; (2) redirects are not followed: they
are answers like any other; (3) nothing is kept of an answer beyond the given size.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from jackline.upstream.port import Headers, Message, Upstream


@dataclass(slots=True)
class Fetched:
    """What came: the head and the body as far as it fits, or the error that it broke with.

    `cut` tells that there was more of it. Names of headers are in lower case.
    """

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut: bool = False
    error: OSError | None = None

    @property
    def document(self) -> bytes | None:
        """The whole body of a good answer; None for everything else."""
        whole = self.status == 200 and not self.cut and self.error is None
        return self.body if whole else None


async def fetch(
    upstream: Upstream, message: Message, lane: str, *, most_bytes: int, seconds: float
) -> Fetched:
    """What the origin of this lane answers to a message within so many seconds."""
    ear = _Gathering(most_bytes)
    attempt = upstream.start(message, lane, ear)
    try:
        async with asyncio.timeout(seconds):
            await ear.over.wait()
    except TimeoutError:
        ear.fetched.error = TimeoutError(f"no whole answer within {seconds:g} s")
    finally:
        attempt.hang_up()
    ear.fetched.body = bytes(ear.body)
    return ear.fetched


class _Gathering:
    """Gathers an answer up to a size; `over` is set by its last word."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self.fetched = Fetched()
        self.body = bytearray()
        self.over = asyncio.Event()

    def began(self, status: int, headers: Headers) -> None:
        """Keep the head."""
        self.fetched.status = status
        self.fetched.headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers
        }

    def heard(self, data: bytes) -> None:
        """Keep what there is room for."""
        room = self._most - len(self.body)
        self.body += data[:room]
        if len(data) > room:
            self.fetched.cut = True
            self.over.set()

    def ended(self) -> None:
        """All is there."""
        self.over.set()

    def broke(self, error: OSError) -> None:
        """It will not come."""
        self.fetched.error = error
        self.over.set()
