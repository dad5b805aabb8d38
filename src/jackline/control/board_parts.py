"""The parts of the page that are sums and words: who waits, what was burned, what happened.

Laws: (1) pure; (2) keys that do not change are not told again: each call, minute and event has its
own; (3) an unknown price is told as tokens without one, never as nothing.
Not here: agents and lanes (board.py), counting (burn.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jackline.control.burn import Burn, Sums
from jackline.control.whole_seconds import whole_second
from jackline.events import Event, LaneChanged, ServiceNoted

MINUTES = 60
MOST_WAITING = 50
_MOST_EVENTS = 80
_MOST_RUNS = 40
# What states mean whose reason is the same each time.
_MEANS = {
    "limited": "it asked to slow down",
    "probing": "it is tried again, with few calls at first",
    "open": "all is well again",
}


def lane_shown(name: str) -> str:
    """A lane's name for people: without the account's fingerprint."""
    return name.partition("#")[0]


def waiting_rows(waiting: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, object]]:
    """Those of the calls that wait which would go first, of a status document, by their ids."""
    return {
        str(call["call"]): _waiting_row(order, call)
        for order, call in enumerate(waiting[:MOST_WAITING])
    }


def _waiting_row(order: int, call: Mapping[str, Any]) -> dict[str, object]:
    turn = call["turn"] or {}
    until = turn.get("cached_until")
    return {
        "order": order,
        "session": call["session"] or "",
        "agent": call["agent"] or "",
        "label": call["label"],
        "model": call["model"],
        "lane": call["lane"],
        "since": round(call["since"], 1),
        "place": turn.get("place"),
        "rank": turn.get("rank", ""),
        "cached": turn.get("cached_tokens", 0),
        # Whole seconds: an estimate that wanders by milliseconds is no news.
        "cached_until": None if until is None else whole_second(until),
        "cost": turn.get("cost_tokens"),
        "why": turn.get("why") or call["why"],
    }


def burned(burn: Burn, now: float) -> dict[str, object]:
    """Tokens and dollars of each of the last minutes, by lane."""
    return {
        str(minute.at): {
            lane: [sums.tokens, round(sums.dollars, 4)]
            for lane, sums in _by_name(minute.lanes).items()
        }
        for minute in burn.series(now, MINUTES)
        if minute.lanes
    }


def spent(burn: Burn, now: float, today: float) -> dict[str, object]:
    """The sums: today, the pace, and by lane and run."""
    runs = list(burn.by_tag.items())[-_MOST_RUNS:]
    return {
        "today": _told(burn.since(today)),
        "per_hour": round(burn.dollars_per_hour(now), 4),
        "lanes": {name: _told(sums) for name, sums in _by_name(burn.by_lane).items()},
        "runs": {tag: _told(sums) for tag, sums in runs},
    }


def happened(
    news: Sequence[Event], notes: Sequence[tuple[float, str, str]]
) -> dict[str, dict[str, object]]:
    """The latest events, each under a key of its own."""
    lines = [line for event in news if (line := _line(event)) is not None]
    latest = sorted([*lines, *notes])[-_MOST_EVENTS:]
    return {
        f"{at:.3f} {who} {what}"[:200]: {"at": round(at, 3), "who": who, "what": what}
        for at, who, what in latest
    }


def _line(event: Event) -> tuple[float, str, str] | None:
    if isinstance(event, LaneChanged):
        name = lane_shown(event.lane)
        why = event.why.replace(event.lane, name) or _MEANS.get(event.state)
        return event.at, name, f"{event.state}: {why}" if why else event.state
    if isinstance(event, ServiceNoted):
        return event.at, "service", f"{event.what}: {event.detail}" if event.detail else event.what
    return None


def _by_name(lanes: Mapping[str, Sums]) -> dict[str, Sums]:
    """Sums by what people call a lane: one name may stand for several accounts."""
    found: dict[str, Sums] = {}
    for lane, sums in lanes.items():
        found.setdefault(lane_shown(lane), Sums()).join(sums)
    return found


def _told(sums: Sums) -> dict[str, object]:
    return {
        "calls": sums.calls,
        "tokens": sums.tokens,
        "dollars": round(sums.dollars, 4),
        "unpriced": sums.unpriced,
    }
