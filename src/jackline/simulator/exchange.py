"""Name what passes between a client and the simulated provider.

Laws: (1) values only; (2) every exchange ends in at most one of Completed, Rejected or Broken; one
that hangs ends in none of them, until its client cancels.
Not here: deciding what happens (provider.py), bytes (wire.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from jackline.simulator.prompt_cache import Hit, Prompt
from jackline.simulator.refusals import OverRate

NO_HEADERS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class SimRequest:
    """One request as the model sees it; with no output tokens given, its length is drawn."""

    model: str = "claude-sonnet-4-6"
    input_tokens: int = 3000
    output_tokens: int = 0
    stream: bool = True
    session: str = ""
    agent: str = ""
    body_hash: str = ""
    service: float | None = None
    """Seconds from arrival to the last byte, for workloads that bring their own."""
    dialect: str = "anthropic"
    """The wire format in which it came; noted, and never decided upon."""
    errand: bool = False
    """Not a model call: faults strike it, but limits and the ledger do not count it."""
    delay: float = 0.0
    """Seconds by which the whole answer comes later than it would."""
    prompt: Prompt | None = None
    """What prompt caches see of it; `input_tokens` are then the prompt's."""
    hit: Hit | None = None
    """What the prompt caches hold of it: the provider looks when it arrives."""

    @property
    def read_tokens(self) -> int:
        """The part of the input that is read from a prompt cache."""
        return 0 if self.hit is None else self.hit.read


class How(StrEnum):
    """The ways in which an exchange breaks without an HTTP answer that says so."""

    REFUSED = "refused"
    RESET = "reset"
    CUT = "cut"
    CLEAN_END = "clean_end"
    ERROR_EVENT = "error_event"


class Accepted(NamedTuple):
    """The first byte: status 200 and its headers."""

    id: int
    at: float
    headers: Mapping[str, str]


class Bytes(NamedTuple):
    """A sign of life; `share` of the answer is written by now."""

    id: int
    at: float
    share: float


class Completed(NamedTuple):
    """The last byte of a whole answer."""

    id: int
    at: float
    input_tokens: int
    output_tokens: int


class Rejected(NamedTuple):
    """An HTTP answer that is not a message; a captive portal says 200.

    `wall` and `over` tell what is behind it, for dialects that say it in words of their own.
    """

    id: int
    at: float
    status: int
    headers: Mapping[str, str]
    body: str
    wall: bool = False
    over: OverRate | None = None


class Broken(NamedTuple):
    """The connection failed, or the answer ended early.

    `share` of the answer was written before, or exactly `at_byte` bytes of it where that is given;
    an error event carries its `body`.
    """

    id: int
    at: float
    how: How
    share: float
    body: str
    at_byte: int | None


ProviderEvent: TypeAlias = Accepted | Bytes | Completed | Rejected | Broken
