"""Fleets with an hour behind them, as the events that a gateway would have announced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jackline.assembly import Service
from jackline.control.board import Document
from jackline.events import AttemptFailed, CallEnded, Event
from jackline.lane_id import LaneId

LANES = (
    LaneId("anthropic", "claude-opus-4-8", "11aa"),
    LaneId("bedrock", "claude-sonnet-4-5", "22bb"),
)
KINDS = ("rate_limit", "account_quota", "server_error")


def hour_of_work(now: float, agents: int, *, in_group: int = 25, calls: int = 12) -> list[Event]:
    """What so many agents did: calls that were answered, waited for, and a few that were lost."""
    found = [each for number in range(agents) for each in _one(now, number, in_group, calls)]
    return sorted(found, key=lambda event: getattr(event, "at", 0.0))


def _one(now: float, number: int, in_group: int, calls: int) -> Iterator[Event]:
    group, place = divmod(number, in_group)
    step = 3300 / calls
    for turn in range(calls):
        at = now - 3400 + turn * step + (number * 37 % 100)
        lane = LANES[(number + turn) % 2]
        name = f"c{number}-{turn}"
        waited = 40.0 if (number + turn) % 7 == 0 else 0.0
        if waited:
            kind = KINDS[turn % 3]
            yield AttemptFailed(at, name, lane, kind, None, 429, None, 1.0, None, "it said no")
        outcome = "refused" if number % 50 == 3 and turn == calls - 1 else "answered"
        who = (f"session-{group:04d}", f"agent-{place:02d}", None, None, True, 200, 1)
        model = lane.model
        took = step * 0.7
        yield CallEnded(
            at + took,
            name,
            outcome,
            lane,
            model,
            *who,
            waited,
            took,
            None,
            2000,
            300,
            0,
            0,
        )


def announce(service: Service, events: Sequence[Event]) -> None:
    for event in events:
        service.observatory.announce(event)


def merged(before: Document, change: Mapping[str, Mapping[str, object]]) -> Document:
    """The document after a change, as the page merges it, too."""
    after = {name: dict(part) for name, part in before.items()}
    for name, news in change.items():
        part = after.setdefault(name, {})
        for key, value in news.items():
            if value is None:
                part.pop(key, None)
            else:
                part[key] = value
    return after
