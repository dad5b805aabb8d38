"""One lane as it is shown: its state, its sentence, and whether the user's own network is to blame.

Rules: pure; a closed lane's sentence says why and until when, as far as that is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from jackline.control.text import left_text, moment_text
from jackline.states import LaneState

_CONNECTION = "network_edge"
SAME_RESET = 60.0
"""Resets that are at most so many seconds apart are one to a person."""
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """A limit per minute, its origin (lanes/settings.py), and when the vendor reported it."""

    per_minute: float
    origin: str
    read_at: float | None = None


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """One lane; `limits` are the shares left of `known_limits`."""

    name: str
    state: str
    why: str
    until: float | None
    in_flight: int
    window: int
    waiting: int
    limits: Mapping[str, float]
    cause: tuple[str, str | None] | None = None
    """The kind of failure that closed it, and its variety, if a failure did."""
    paused: bool = False
    """By an operator."""
    known_limits: Mapping[str, LimitStatus] = field(default_factory=dict)
    upstream: str = ""

    def text(self, now: datetime) -> str:
        """A sentence about a closed lane."""
        if self.paused:
            return f"{self.name} is paused by hand."
        if self.state == LaneState.PARKED:
            text = "is parked"
        elif self.cause is None:
            text = "is silent"
        else:
            text = "cannot be reached" if self.cause[0] == _CONNECTION else "is down"
        if self.until is None:
            return f"{self.name} {text}; when it comes back is not known."
        until = datetime.fromtimestamp(self.until, now.tzinfo)
        if until <= now:
            return f"{self.name} {text}; it is tried again with the next call."
        if self.state == LaneState.PARKED:
            return f"{self.name} {text} {until_and_left(self.until, now)}."
        return f"{self.name} {text}; it is tried again in {left_text(self.until, now)}."


def wall_of(until: float, lanes: Sequence[LaneStatus]) -> float:
    """The reset that somebody waits for until then: runs wake a moment after it."""
    walls = (lane.until for lane in lanes if lane.state == LaneState.PARKED)
    return next((each for each in walls if each and abs(each - until) <= SAME_RESET), until)


def closed_sentences(
    lanes: Sequence[LaneStatus], now: datetime, named: tuple[float, float] | None = None
) -> list[str]:
    """A sentence about each closed lane; those that are parked until the same moment share one.

    `named` are the first and the last moment that were named before: one wall has one clock and
    one countdown.
    """
    walls: list[list[tuple[str, float]]] = []
    others = []
    for lane in lanes:
        until = lane.until
        is_parked = lane.state == LaneState.PARKED and not lane.paused
        if not is_parked or until is None or until <= now.timestamp():
            others.append(lane.text(now))
            continue
        same = (each for each in walls if abs(each[0][1] - until) <= SAME_RESET)
        wall = next(same, None)
        if wall is None:
            walls.append([(lane.name, until)])
        else:
            wall.append((lane.name, until))
    return [*(_wall_sentence(wall, now, named) for wall in walls), *others]


def _wall_sentence(
    wall: Sequence[tuple[str, float]], now: datetime, named: tuple[float, float] | None
) -> str:
    names = [name for name, _ in wall]
    if len(names) > _MOST_NAMED + 1:
        names = [*names[:_MOST_NAMED], f"{len(names) - _MOST_NAMED} more lanes"]
    are = "are" if len(names) > 1 else "is"
    listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    last = max(until for _, until in wall)
    if named is not None and max(abs(last - each) for each in named) <= SAME_RESET:
        return f"{listed} {are} parked until then."
    return f"{listed} {are} parked {until_and_left(last, now)}."


def own_network(lanes: Sequence[LaneStatus]) -> str | None:
    """A sentence if the fault is the user's own network; None if it is not.

    A lane that works proves that the network does. Where none does, and nothing but connections
    failed, it is the network: at once if something is in between (a log-in page, a changed
    certificate) or no name can be looked up, else only if several upstreams are out of reach.
    """
    used = [lane for lane in lanes if lane.state != LaneState.OPEN or lane.in_flight]
    down = [lane for lane in used if lane.state == LaneState.DOWN]
    if not down or len(down) < len(used):
        return None
    causes = {lane.cause for lane in down if lane.cause is not None}
    if not causes or any(kind != _CONNECTION for kind, _ in causes):
        return None
    varieties = sorted({sub for _, sub in causes if sub})
    upstreams = {lane.upstream for lane in down}
    if len(upstreams) < 2 and not {"captive_portal", "dns", "tls", "proxy"} & set(varieties):
        return None
    seen = f" ({', '.join(varieties)})" if varieties else ""
    return (
        f"Your own network is the likely cause{seen}: nothing else has failed. It is tried gently; "
        "calls go on by themselves when it is back."
    )


def until_and_left(moment: float, now: datetime) -> str:
    """For example "until 22:10 UTC (in 13 min)"."""
    return f"until {moment_text(moment, now)} (in {left_text(moment, now)})"
