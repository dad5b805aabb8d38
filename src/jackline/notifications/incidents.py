"""Find what a person should know now, and decide what is sent: once for each incident.

Rules: (1) pure: facts and the time come in, messages come out; (2) what held before the service
started is not news; (3) the same trouble has the same key, however many calls or agents it affects;
(4) an incident is sent once, and again only after it was over for a while; incidents of one kind
that are due together are one message; (5) in quiet hours nothing is sent; incidents that still hold
afterwards are sent then; (6) bounded. What needs a person: control/needs.py.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from jackline.agents.prices import cost_in_words
from jackline.control.board import Facts
from jackline.control.needs import About
from jackline.control.text import counted, moment_text
from jackline.failures.sentences import duration_in_words
from jackline.flows.records import ENDED
from jackline.notifications.settings import IncidentKind
from jackline.states import LaneState, RunState

# Shorter troubles are over before anybody has read of them; lanes of one account park together.
WAIT = 10.0
# A trouble that comes back sooner is the same trouble.
CALM = 900.0
MOST = 1000
_MAX_LINES = 8
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

    def look(self, facts: Facts, now: datetime) -> list[Condition]:
        """Everything that holds."""
        return [
            *self._closed_accounts(facts.lanes, now),
            *self._needs(facts.head),
            *self._moved(facts.head),
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
                continue  # it does not go on by itself, and is among the needs
            untils = [row["until"] for row in rows if row["until"] is not None]
            until = ""
            if untils:
                left = timedelta(seconds=max(0, round(max(untils) - now.timestamp())))
                until = f" until {moment_text(max(untils), now)} (in {duration_in_words(left)})"
            text = f"{upstream} is parked{until}: its quota is used up.{held} It goes on by itself."
            yield Condition(IncidentKind.PARKED, key, text)

    @staticmethod
    def _needs(head: Mapping[str, Any]) -> Iterator[Condition]:
        for need in head["needs"]:
            # The end of a run is a message of its own; a refusal has happened.
            if need["about"] != About.ENDED_RUN:
                text, happened = f"{need['text']}.", need["about"] == About.KEY
                yield Condition(IncidentKind.NEEDS_YOU, need["key"], text, happened)

    @staticmethod
    def _moved(head: Mapping[str, Any]) -> Iterator[Condition]:
        if text := head["answered_instead"]:
            yield Condition(IncidentKind.UPSTREAM_MOVED, "moved", text)

    def _runs(self, runs: Mapping[str, object]) -> Iterator[Condition]:
        known = [run for run in runs.values() if isinstance(run, Mapping)]
        ended = {str(run["run"]) for run in known if run["state"] in ENDED}
        before = ended if self._ended is None else self._ended
        self._ended = ended
        for run in known:
            yield from self._run(run, is_new=str(run["run"]) not in before)

    def _run(self, run: Mapping[str, Any], *, is_new: bool) -> Iterator[Condition]:
        key, state, why = str(run["run"]), run["state"], run["why"]
        name = f"{run['flow']} ({key})"
        if state in ENDED:
            if is_new and state != RunState.CANCELLED:
                end = f"has {state}{f' ({why})' if why else ''}: {run['counts']}"
                text = f"{name} {end}; {cost_in_words(run['cost'], run['unpriced'])}."
                yield Condition(IncidentKind.RUN_FINISHED, key, text, True)
            return
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
