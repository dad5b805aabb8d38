"""Find what a person should know now, and decide what is sent: once for each incident.

Rules: (1) pure: facts and the time come in, messages come out; (2) what held before the service
started is not news; (3) the same trouble has the same key, however many calls or agents it affects;
(4) an incident is sent once, and again only after it was over for a while; incidents of one kind
that are due together are one message; (5) in quiet hours nothing is sent; incidents that still hold
afterwards are sent then; (6) bounded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from jackline.control.board import Facts
from jackline.control.observatory import LaneCounters
from jackline.control.text import counted, moment_text
from jackline.failures.sentences import duration_in_words
from jackline.flows.records import ENDED
from jackline.notifications.settings import IncidentKind
from jackline.states import DerivedState, LaneState, RunState

# Shorter troubles are over before anybody has read of them; lanes of one account park together.
WAIT = 10.0
# A trouble that comes back sooner is the same trouble.
CALM = 900.0
MOST = 1000
_MAX_LINES = 8
# Calls that were answered elsewhere so recently still are.
_RECENT = 120.0
_CLOSED = (LaneState.PARKED, LaneState.DOWN, LaneState.RECOVERING)
_TITLES = {
    IncidentKind.PARKED: "parked",
    IncidentKind.NEEDS_YOU: "needs you",
    IncidentKind.RUN_FINISHED: "run finished",
    IncidentKind.BUDGET_NEAR: "budget nearly used",
    IncidentKind.UPSTREAM_MOVED: "calls go elsewhere",
}


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that holds at this moment, or has `happened` once and for all."""

    about: IncidentKind
    key: str
    """Its identity: an upstream, a run. The same while it is the same trouble."""
    text: str
    happened: bool = False


@dataclass(frozen=True, slots=True)
class IncidentMessage:
    """A message for a person."""

    about: IncidentKind
    title: str
    text: str
    at: float


@dataclass(slots=True)
class _Incident:
    condition: Condition
    since: float
    seen: float
    sent: bool = False

    def is_over(self, now: float) -> bool:
        gone = now - self.seen
        if self.condition.happened:
            # One that was not sent yet waits for the end of the quiet hours.
            return self.sent and gone >= CALM
        return gone >= CALM or (gone > 0 and not self.sent)

    def is_due(self, now: float) -> bool:
        return not self.sent and (self.condition.happened or now - self.since >= WAIT)


class Incidents:
    """All current incidents, and which of them were sent."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[IncidentKind, str], _Incident] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def look(
        self, now: float, holding: Iterable[Condition], *, quiet: bool
    ) -> list[IncidentMessage]:
        """The messages that are due, after everything that holds now."""
        for condition in holding:
            name = (condition.about, condition.key)
            known = self._known.setdefault(name, _Incident(condition, now, now))
            known.condition, known.seen = condition, now
        for name in [name for name, each in self._known.items() if each.is_over(now)]:
            del self._known[name]
        while len(self._known) > MOST:
            self._known.popitem(last=False)
        due: dict[IncidentKind, list[str]] = {}
        for each in self._known.values():
            if not quiet and each.is_due(now):
                each.sent = True
                due.setdefault(each.condition.about, []).append(each.condition.text)
        messages = []
        for about, texts in due.items():
            more = len(texts) - _MAX_LINES
            lines = texts[:_MAX_LINES] + ([f"and {more} more"] if more > 0 else [])
            title = f"Jackline: {_TITLES[about]}"
            messages.append(IncidentMessage(about, title, "\n".join(lines), now))
        return messages


class ConditionFinder:
    """Finds what holds now; remembers what it saw before, to know what is new."""

    def __init__(self, budget_share: float = 0.8) -> None:
        self.budget_share = budget_share
        self._ended: set[str] | None = None
        self._delivered: dict[str, int] = {}
        self._refused: dict[str, int] = {}
        self._elsewhere: dict[str, float] = {}

    def look(
        self, facts: Facts, tally: Mapping[str, LaneCounters], now: datetime
    ) -> list[Condition]:
        """Everything that holds; `tally` is by the labels of lanes."""
        return [
            *self._closed_accounts(facts.lanes, now),
            *self._refused_keys(tally),
            *self._moved(facts, tally, now.timestamp()),
            *self._runs(facts.flows.runs),
            *self._windows(facts.head, now),
        ]

    @staticmethod
    def _closed_accounts(lanes: Mapping[str, object], now: datetime) -> Iterator[Condition]:
        accounts: dict[str, list[Mapping[str, Any]]] = {}
        for row in lanes.values():
            if isinstance(row, Mapping) and row["state"] == LaneState.PARKED:
                # All lanes of an account park together: that is one incident.
                accounts.setdefault(f"{row['upstream']} {row['account']}", []).append(row)
        for key, rows in accounts.items():
            upstream, waiting = rows[0]["upstream"], sum(row["waiting"] for row in rows)
            verb = "waits" if waiting == 1 else "wait"
            held = f" {counted(waiting, 'call')} {verb}." if waiting else ""
            if any(row["cause"] is not None and row["cause"][0] == "billing" for row in rows):
                text = f"{upstream} takes no more calls: its credit is used up or its bill unpaid."
                yield Condition(IncidentKind.NEEDS_YOU, key, f"{text}{held}")
                continue
            untils = [row["until"] for row in rows if row["until"] is not None]
            until = ""
            if untils:
                left = timedelta(seconds=max(0, round(max(untils) - now.timestamp())))
                until = f" until {moment_text(max(untils), now)} (in {duration_in_words(left)})"
            text = f"{upstream} is parked{until}: its quota is used up.{held} It goes on by itself."
            yield Condition(IncidentKind.PARKED, key, text)

    def _refused_keys(self, tally: Mapping[str, LaneCounters]) -> Iterator[Condition]:
        for name, lane in tally.items():
            count = lane.failures.get("auth", 0)
            if count > self._refused.get(name, 0):
                text = f"{lane.upstream} refuses the key or login: sign in again."
                yield Condition(IncidentKind.NEEDS_YOU, f"auth {lane.upstream}", text, True)
            self._refused[name] = count

    def _moved(
        self, facts: Facts, tally: Mapping[str, LaneCounters], now: float
    ) -> Iterator[Condition]:
        upstreams = facts.head.get("upstreams")
        first = str(upstreams[0]) if isinstance(upstreams, list) and upstreams else ""
        for name, lane in tally.items():
            count = sum(lane.outcomes.get(how, 0) for how in ("answered", "shortened"))
            if count > self._delivered.get(name, 0) and lane.upstream != first:
                self._elsewhere[lane.upstream] = now
            self._delivered[name] = count
        rows = [row for row in facts.lanes.values() if isinstance(row, Mapping)]
        states = {str(row["state"]) for row in rows if row["upstream"] == first}
        closed = next((state for state in _CLOSED if state in states), None)
        for upstream, at in self._elsewhere.items():
            if closed is not None and abs(now - at) < _RECENT:
                text = f"Calls are answered by {upstream}, because {first} is {closed.value}."
                yield Condition(IncidentKind.UPSTREAM_MOVED, f"{first} to {upstream}", text)

    def _runs(self, runs: Mapping[str, object]) -> Iterator[Condition]:
        known = [run for run in runs.values() if isinstance(run, Mapping)]
        ended = {str(run["run"]) for run in known if run["state"] in ENDED}
        before = ended if self._ended is None else self._ended
        self._ended = ended
        for run in known:
            yield from self._run(run, is_new=str(run["run"]) not in before)

    def _run(self, run: Mapping[str, Any], *, is_new: bool) -> Iterator[Condition]:
        key, state, why = str(run["run"]), run["state"], run["why"]
        name, resume = f"{run['flow']} ({key})", f"jackline resume {key}"
        if state in ENDED:
            if is_new and state != RunState.CANCELLED:
                failed = f", {run['failed']} failed" if run["failed"] else ""
                end = f"has {state}{f' ({why})' if why else ''}: {run['done']} done{failed}"
                text = f"{name} {end}, ${run['cost']:,.2f}."
                yield Condition(IncidentKind.RUN_FINISHED, key, text, True)
            return
        if state == RunState.PARKED and run["wake_at"] is None:
            why = why or "nothing says when to go on"
            text = f"{name} is parked and waits for you: {why}"
            text += "" if resume in why else f". {resume}"
            yield Condition(IncidentKind.NEEDS_YOU, key, text)
        elif state == DerivedState.CUT_OFF:
            text = f"{name} was cut off; nothing finished is lost. {resume}"
            yield Condition(IncidentKind.NEEDS_YOU, key, text)
        budget = run.get("budget") or {}
        limits = ((run["cost"], budget.get("dollars")), (run["tokens"], budget.get("tokens")))
        share = max((used / most for used, most in limits if most), default=0.0)
        if share >= self.budget_share:
            text = f"{name} has used {share:.0%} of its budget."
            yield Condition(IncidentKind.BUDGET_NEAR, key, text)

    def _windows(self, head: Mapping[str, Any], now: datetime) -> Iterator[Condition]:
        for each in head.get("forecast") or ():
            ends_at = each["ends_at"]
            if ends_at is None or not self.budget_share <= each["used"] < 1.0:
                continue
            when = moment_text(ends_at, now)
            text = f"The {each['window']} window is {each['used']:.0%} used; it ends at {when}."
            reset = round(each["resets_at"] / 600)
            key = f"{each['upstream']} {each['account']} {each['window']} {reset}"
            yield Condition(IncidentKind.BUDGET_NEAR, key, text)
