"""A picture of the gateway at one moment.

Laws: (1) everything that waits says why and until when; (2) no prompt, answer, key or token.
Not here: the sentence over it (verdict.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

SCHEMA = "jackline.status/1"


@dataclass(frozen=True, slots=True)
class LimitShown:
    """A limit per minute, who gave its number (lanes/settings.py), and when its vendor did."""

    per_minute: float
    origin: str
    read_at: float | None = None


@dataclass(frozen=True, slots=True)
class LaneShown:
    """How one lane stands.

    `limits` are the shares left of its per-minute limits, `known_limits` those limits. `cause` is
    the kind of failure that closed it, and its variety, if a failure did.
    """

    name: str
    state: str
    why: str
    until: float | None
    in_flight: int
    window: int
    waiting: int
    limits: Mapping[str, float]
    cause: tuple[str, str | None] | None = None
    paused: bool = False
    """Whether a person has closed it."""
    known_limits: Mapping[str, LimitShown] = field(default_factory=dict)


def lane_word(lane: Mapping[str, object]) -> str:
    """The word for how a lane stands, of a lane as the gateway tells it."""
    if not lane.get("paused"):
        return str(lane["state"])
    return "draining" if lane["in_flight"] else "paused"


@dataclass(frozen=True, slots=True)
class TurnShown:
    """Where a call stands among those that wait for its lane, and why.

    `rank` is aged, closing, normal, lapsed or new, in the order in which they go; `place` counts
    from 1. `cached_tokens` are what the provider's prompt cache holds of its conversation, or held
    until `cached_until`; `cost_tokens` what it would take of the input limit now.
    """

    rank: str
    place: int
    cached_tokens: int
    cached_until: float | None
    cost_tokens: int
    out_of_turn_at: float | None
    why: str


@dataclass(frozen=True, slots=True)
class CallShown:
    """One call that waits or runs; `label` is what its flow calls the agent, if it has one.

    It has no turn while it stands in no line: it rests after a failure, or a cap holds it.
    """

    call: str
    session: str | None
    agent: str | None
    tag: str | None
    model: str
    lane: str
    state: str
    why: str
    until: float | None
    since: float
    attempts: int
    label: str = ""
    turn: TurnShown | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything together."""

    at: float
    version: str
    url: str
    upstream: str
    started: float
    lanes: tuple[LaneShown, ...]
    waiting: tuple[CallShown, ...]
    calls_waiting: int
    calls_in_flight: int
    connections: int
    outcomes: Mapping[str, int]
    held_and_delivered: int
    joined: int
    input_tokens: int
    output_tokens: int
    journal_ok: bool
    journal_problem: str
    journal_lost: int = 0
    """Records that will never be kept, since the start."""
    journal_gap: str = ""
    """How many those are, since when and why; empty without any."""
    notes: tuple[str, ...] = ()

    def to_json(self, sentence: str) -> dict[str, object]:
        """One JSON document, the verdict first."""
        return {"schema": SCHEMA, "verdict": sentence, **asdict(self)}
