"""Decide what is worth a message: once for each incident, grouped, and not in quiet hours.

Laws: (1) pure: what holds and `now` come in, messages come out; (2) an incident is told once, and
anew only after it was over for a while; (3) what is due at the same time and about the same is one
message; (4) in quiet hours nothing is told; what came up then and still counts is told after them;
(5) bounded, whatever comes.
Not here: finding out what holds (assembly/notifying.py), sending (ways.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from jackline.notifications.settings import About

# Shorter troubles are over before anybody has read of them; lanes of one account park together.
WAIT = 10.0
# A trouble that comes back sooner is the same trouble.
CALM = 900.0
MOST = 1000
_MOST_LINES = 8

_TITLES = {
    About.PARKED: "parked",
    About.NEEDS_YOU: "needs you",
    About.RUN_FINISHED: "run finished",
    About.BUDGET_NEAR: "budget nearly used",
    About.UPSTREAM_MOVED: "calls go elsewhere",
}

Name: TypeAlias = tuple[About, str]


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that holds at this moment, or has `happened` once and for all."""

    about: About
    key: str
    """What tells it from others: an upstream, a run. The same while it is the same trouble."""
    text: str
    happened: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """What a person is told."""

    about: About
    title: str
    text: str
    at: float


@dataclass(slots=True)
class _Incident:
    condition: Condition
    since: float
    seen: float
    told: bool = False


class Incidents:
    """All that is going on, and what of it was told."""

    def __init__(self) -> None:
        self._known: OrderedDict[Name, _Incident] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def look(self, now: float, holding: Iterable[Condition], *, quiet: bool) -> list[Message]:
        """Take in everything that holds now; the messages that are due."""
        for condition in holding:
            self._meet(condition, now)
        for name in [name for name, each in self._known.items() if self._is_over(each, now)]:
            del self._known[name]
        while len(self._known) > MOST:
            self._known.popitem(last=False)
        if quiet:
            return []
        due = [each for each in self._known.values() if self._is_due(each, now)]
        for each in due:
            each.told = True
        return [
            _message(about, [e.condition.text for e in due if e.condition.about is about], now)
            for about in dict.fromkeys(each.condition.about for each in due)
        ]

    def _meet(self, condition: Condition, now: float) -> None:
        name = (condition.about, condition.key)
        known = self._known.get(name)
        if known is None:
            self._known[name] = _Incident(condition, now, now)
        else:
            known.condition, known.seen = condition, now

    def _is_over(self, incident: _Incident, now: float) -> bool:
        if incident.condition.happened:
            # One that nobody was told of yet waits for the end of the quiet hours.
            return incident.told and now - incident.seen >= CALM
        gone = now - incident.seen
        return gone >= CALM or (gone > 0 and not incident.told)

    def _is_due(self, incident: _Incident, now: float) -> bool:
        if incident.told:
            return False
        return incident.condition.happened or now - incident.since >= WAIT


def _message(about: About, texts: list[str], now: float) -> Message:
    shown = texts[:_MOST_LINES]
    if len(texts) > len(shown):
        shown.append(f"and {len(texts) - len(shown)} more")
    return Message(about, f"Jackline: {_TITLES[about]}", "\n".join(shown), now)
