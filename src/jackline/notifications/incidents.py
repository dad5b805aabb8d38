"""Find what a person should know now, and decide what is sent: once for each incident.

Rules: (1) pure: facts and the time come in, messages come out; (2) what was so before the service
started is no news; (3) the same trouble has the same key, however many calls or agents it affects;
(4) an incident is sent once, and again only after it was over for a while; what is due at the same
time and of the same kind is one message; (5) in quiet hours nothing is sent; what came up then and
still counts is sent after them; (6) bounded, whatever comes.
Not here: gathering the facts (assembly/faces.py), sending (delivery.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeAlias

from jackline.control.board import Facts
from jackline.control.text import counted, whole_second
from jackline.failures.sentences import duration_in_words, moment_in_words
from jackline.flows.records import RunState
from jackline.notifications.settings import IncidentKind
from jackline.states import LaneState

# Shorter troubles are over before anybody has read of them; lanes of one account park together.
WAIT = 10.0
# A trouble that comes back sooner is the same trouble.
CALM = 900.0
MOST = 1000
_MOST_LINES = 8

_TITLES = {
    IncidentKind.PARKED: "parked",
    IncidentKind.NEEDS_YOU: "needs you",
    IncidentKind.RUN_FINISHED: "run finished",
    IncidentKind.BUDGET_NEAR: "budget nearly used",
    IncidentKind.UPSTREAM_MOVED: "calls go elsewhere",
}

Name: TypeAlias = tuple[IncidentKind, str]


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that holds at this moment, or has `happened` once and for all."""

    about: IncidentKind
    key: str
    """What tells it from others: an upstream, a run. The same while it is the same trouble."""
    text: str
    happened: bool = False


@dataclass(frozen=True, slots=True)
class IncidentMessage:
    """What a person is told."""

    about: IncidentKind
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

    def look(
        self, now: float, holding: Iterable[Condition], *, quiet: bool
    ) -> list[IncidentMessage]:
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


def _message(about: IncidentKind, texts: list[str], now: float) -> IncidentMessage:
    shown = texts[:_MOST_LINES]
    if len(texts) > len(shown):
        shown.append(f"and {len(texts) - len(shown)} more")
    return IncidentMessage(about, f"Jackline: {_TITLES[about]}", "\n".join(shown), now)


_AUTH = "auth"
_BILLING = "billing"
_ENDED = (RunState.FINISHED.value, RunState.FAILED.value, RunState.CANCELLED.value)
_CLOSED = (LaneState.PARKED, LaneState.DOWN, LaneState.RECOVERING)
# Calls that went elsewhere so lately say that they still do.
_LATELY = 120.0
_DELIVERED = ("answered", "shortened")


class LaneCounts(Protocol):
    """What came of the calls of one lane since the service started."""

    @property
    def outcomes(self) -> Mapping[str, int]:
        """Ended calls by outcome."""
        ...

    @property
    def failures(self) -> Mapping[str, int]:
        """Failed attempts by kind."""
        ...


class ConditionFinder:
    """What was seen so far, to tell what is new."""

    def __init__(self, budget_share: float = 0.8) -> None:
        self.budget_share = budget_share
        self._ended: set[str] | None = None
        self._delivered: dict[str, int] = {}
        self._refused: dict[str, int] = {}
        self._elsewhere: dict[str, float] = {}

    def look(self, facts: Facts, tally: Mapping[str, LaneCounts], now: datetime) -> list[Condition]:
        """Everything that holds; `tally` is by the names that people know lanes by."""
        return [
            *_closed_accounts(facts.lanes, now),
            *self._refused_keys(tally),
            *self._moved(facts, tally, now.timestamp()),
            *self._runs(facts.flows.runs),
            *self._windows(facts.head, now),
        ]

    def _refused_keys(self, tally: Mapping[str, LaneCounts]) -> Iterator[Condition]:
        for name, lane in tally.items():
            count = lane.failures.get(_AUTH, 0)
            if count > self._refused.get(name, 0):
                words = f"{name.partition('/')[0]} refuses the key or login: sign in again."
                yield Condition(
                    IncidentKind.NEEDS_YOU, f"auth {name.partition('/')[0]}", words, True
                )
            self._refused[name] = count

    def _moved(
        self, facts: Facts, tally: Mapping[str, LaneCounts], now: float
    ) -> Iterator[Condition]:
        upstreams = facts.head.get("upstreams")
        first = str(upstreams[0]) if isinstance(upstreams, list) and upstreams else ""
        for name, lane in tally.items():
            place = name.partition("/")[0]
            count = sum(lane.outcomes.get(how, 0) for how in _DELIVERED)
            if count > self._delivered.get(name, 0) and place != first:
                self._elsewhere[place] = now
            self._delivered[name] = count
        states = {str(row["state"]) for row in _rows(facts.lanes) if row["upstream"] == first}
        closed = [state for state in _CLOSED if state in states]
        if not closed:
            return
        for place, at in self._elsewhere.items():
            if abs(now - at) < _LATELY:
                words = f"Calls are answered by {place}, because {first} is {closed[0].value}."
                yield Condition(IncidentKind.UPSTREAM_MOVED, f"{first} to {place}", words)

    def _runs(self, runs: Mapping[str, object]) -> Iterator[Condition]:
        told = [run for run in runs.values() if isinstance(run, Mapping)]
        ended = {str(run["run"]) for run in told if run["state"] in _ENDED}
        before = ended if self._ended is None else self._ended
        self._ended = ended
        for run in told:
            yield from self._run(run, news=str(run["run"]) not in before)

    def _run(self, run: Mapping[str, Any], *, news: bool) -> Iterator[Condition]:
        name, state = f"{run['flow']} ({run['run']})", run["state"]
        key = str(run["run"])
        if state in _ENDED:
            if news and state != RunState.CANCELLED:
                yield Condition(IncidentKind.RUN_FINISHED, key, f"{name} {_end_of(run)}", True)
            return
        if state == RunState.PARKED and run["wake_at"] is None:
            why = run["why"] or "nothing says when to go on"
            step = f"jackline resume {key}"
            words = f"{name} is parked and waits for you: {why}"
            words += "" if step in why else f". {step}"
            yield Condition(IncidentKind.NEEDS_YOU, key, words)
        elif state == "cut off":
            words = f"{name} was cut off; nothing finished is lost. jackline resume {key}"
            yield Condition(IncidentKind.NEEDS_YOU, key, words)
        share = _budget_used(run)
        if share >= self.budget_share:
            words = f"{name} has used {share:.0%} of its budget."
            yield Condition(IncidentKind.BUDGET_NEAR, key, words)

    def _windows(self, head: Mapping[str, Any], now: datetime) -> Iterator[Condition]:
        for each in head.get("forecast") or ():
            ends_at = each["ends_at"]
            if ends_at is None or not self.budget_share <= each["used"] < 1.0:
                continue
            when = _hour(ends_at, now)
            words = f"The {each['window']} window is {each['used']:.0%} used; it ends at {when}."
            key = f"{each['account']} {each['window']} {round(each['resets_at'] / 600)}"
            yield Condition(IncidentKind.BUDGET_NEAR, key, words)


def _closed_accounts(lanes: Mapping[str, object], now: datetime) -> Iterator[Condition]:
    accounts: dict[str, list[Mapping[str, Any]]] = {}
    for name, row in lanes.items():
        if isinstance(row, Mapping) and row["state"] == LaneState.PARKED:
            # All lanes of an account park together: that is one incident.
            key = f"{row['upstream']}#{name.rpartition('#')[2]}"
            accounts.setdefault(key, []).append(row)
    for key, rows in accounts.items():
        place, waiting = rows[0]["upstream"], sum(row["waiting"] for row in rows)
        held = (
            f" {counted(waiting, 'call')} {'waits' if waiting == 1 else 'wait'}." if waiting else ""
        )
        if any(row["cause"] is not None and row["cause"][0] == _BILLING for row in rows):
            words = f"{place} takes no more calls: its credit is used up or its bill unpaid.{held}"
            yield Condition(IncidentKind.NEEDS_YOU, key, words)
            continue
        untils = [row["until"] for row in rows if row["until"] is not None]
        until = ""
        if untils:
            left = timedelta(seconds=max(0, round(max(untils) - now.timestamp())))
            until = f" until {_hour(max(untils), now)} (in {duration_in_words(left)})"
        words = f"{place} is parked{until}: its quota is used up.{held} It goes on by itself."
        yield Condition(IncidentKind.PARKED, key, words)


def _rows(lanes: Mapping[str, object]) -> Iterator[Mapping[str, Any]]:
    return (row for row in lanes.values() if isinstance(row, Mapping))


def _end_of(run: Mapping[str, Any]) -> str:
    failed = f", {run['failed']} failed" if run["failed"] else ""
    why = f" ({run['why']})" if run["why"] else ""
    return f"has {run['state']}{why}: {run['done']} done{failed}, ${run['cost']:,.2f}."


def _budget_used(run: Mapping[str, Any]) -> float:
    budget = run.get("budget") or {}
    shares = [
        used / most
        for used, most in (
            (run["cost"], budget.get("dollars")),
            (run["tokens"], budget.get("tokens")),
        )
        if most
    ]
    return max(shares, default=0.0)


def _hour(moment: float, now: datetime) -> str:
    return moment_in_words(datetime.fromtimestamp(whole_second(moment), now.tzinfo), now)
