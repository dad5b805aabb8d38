"""Keep what one agent of a drill went through, as its client saw it.

Laws: (1) values only, in the drill's seconds; (2) an agent ends at most once, unless its user lets
it go on.
Not here: what the provider saw (simulator/ledger.py), judging it (judging.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class End(StrEnum):
    """What became of an agent."""

    WORKING = "working"
    FINISHED = "finished"
    MISLED = "misled"
    """It took a broken answer for a whole one and went on."""
    DIED = "died"


@dataclass(frozen=True, slots=True)
class SeenError:
    """An error that reached the client; a `status` of 0 is one without an HTTP answer."""

    status: int
    text: str
    waited: float
    """Seconds from the request to the error."""
    resets_at: float | None = None
    """The moment, as Unix time, that the answer gave for the reset."""


@dataclass(slots=True)
class AgentRecord:
    """One agent's way through the drill."""

    label: str
    model: str
    end: End = End.WORKING
    died_of: str = ""
    posts: int = 0
    errors: list[SeenError] = field(default_factory=list)
    began: float = 0.0
    ended: float | None = None
    deaths: int = 0
    """How often its client gave up; its user may let it go on."""

    def finish(self, end: End, at: float, died_of: str = "") -> None:
        """Write down the end."""
        self.end, self.ended, self.died_of = end, at, died_of
        self.deaths += end is End.DIED

    def resumed(self) -> None:
        """Its user lets it go on: what it died of counts as a death, not as its end."""
        self.end, self.ended, self.died_of = End.WORKING, None, ""
