"""What a carrier needs of an upstream: one attempt, told as events.

Laws: (1) an attempt begins when its iterator is first asked and ends when it is closed, so that
closing it hangs up; (2) it tells at most one `Began`, and ends with `Answered` or `Rejected`, or
breaks off; (3) what goes wrong on the way is raised as an `OSError` (timeouts included).
Not here: any real upstream (upstream/), the scripted one (jackline.testing).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from jackline.lanes import Usage


@dataclass(frozen=True, slots=True)
class Request:
    """One logical call: what is sent, and what the controller has to know about it.

    `lanes` are the names of the lanes it may take, the preferred first.
    """

    body: bytes
    lanes: tuple[str, ...]
    headers: Mapping[str, str] = field(default_factory=dict)
    remaining: float = 0.0
    input_tokens: int = 0
    max_tokens: int = 0
    stream: bool = True


@dataclass(frozen=True, slots=True)
class Began:
    """The provider has taken the call: status 200 and its headers."""

    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Heard:
    """Bytes of the answer, or a sign of life; pings count."""

    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer is whole."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Rejected:
    """The provider answered with an error."""

    status: int
    headers: Mapping[str, str]
    body: bytes


UpstreamEvent: TypeAlias = Began | Heard | Answered | Rejected


class Upstream(Protocol):
    """Sends one attempt."""

    def attempt(self, request: Request, lane: str) -> AsyncGenerator[UpstreamEvent, None]:
        """The events of one attempt on `lane`."""
        ...
