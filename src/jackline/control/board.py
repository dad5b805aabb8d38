"""The documents of the whole fleet: the page's, with its deltas, and the one that `top` shows.

Rules: (1) pure: facts come in, plain JSON data comes out; (2) a document followed by its deltas is
the document of now; keys that do not change are not sent again; (3) only agents that have changed
are looked at, and not too many at a time, so that no call waits for it; (4) long lists are cut,
those who wait come first, and the true length is included; (5) an unknown price is shown as tokens
without one, never as nothing; (6) no prompt, answer, key or token.
Not here: sending it (dashboard/), gathering the facts (assembly/status_report.py), drawing (cli/).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from jackline.control.burn import Burn, Sums
from jackline.control.fleet import (
    Fleet,
    Key,
    LiveCall,
    Member,
    Stretch,
    resting,
    turns_at,
)
from jackline.control.text import whole_second
from jackline.events import Event, LaneChanged, ServiceNoted
from jackline.states import AgentState, LaneState, looks

MINUTES = 60
MOST_WAITING = 50
_MOST_EVENTS = 80
_MOST_RUNS = 40
# What states mean whose reason is the same each time.
_MEANS: dict[str, str] = {
    LaneState.THROTTLED: "the provider asked to slow down",
    LaneState.RECOVERING: "few calls at first",
    LaneState.OPEN: "it takes calls again",
}


def lane_label(name: str) -> str:
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
        name = lane_label(event.lane)
        why = event.why.replace(event.lane, name) or _MEANS.get(event.state)
        return event.at, name, f"{event.state}: {why}" if why else event.state
    if isinstance(event, ServiceNoted):
        return event.at, "service", f"{event.what}: {event.detail}" if event.detail else event.what
    return None


def _by_name(lanes: Mapping[str, Sums]) -> dict[str, Sums]:
    """Sums by what people call a lane: one name may stand for several accounts."""
    found: dict[str, Sums] = {}
    for lane, sums in lanes.items():
        found.setdefault(lane_label(lane), Sums()).join(sums)
    return found


def _told(sums: Sums) -> dict[str, object]:
    return {
        "calls": sums.calls,
        "tokens": sums.tokens,
        "dollars": round(sums.dollars, 4),
        "unpriced": sums.unpriced,
    }


Part: TypeAlias = Mapping[str, object]
Document: TypeAlias = Mapping[str, Part]

SCHEMA = "jackline.board/1"
DOINGS = tuple(AgentState)
PAST = 3600.0
"""How far back the timeline goes."""

_NUMBER = {state.value: number for number, state in enumerate(DOINGS)}
# Agents that are long past, or were forgotten, are looked for so often; nothing is heard of them.
_SWEEP_SECONDS = 20.0
AGENTS_AT_A_TIME = 100
# So many stretches in all: a large fleet is looked at from farther away.
_MOST_STRETCHES = 120_000
_FEWEST_EACH = 24


class WaitReason(NamedTuple):
    """Why an agent does not work, and until when, if that is known."""

    why: str = ""
    until: float | None = None


@dataclass(frozen=True, slots=True)
class FlowFacts:
    """What the store of runs tells, each by its id; `labels` are agents' names by task."""

    runs: Part
    resources: Part
    labels: Part
    ended: Mapping[str, AgentState]
    """What agents do that have no call under way, by task, where a run knows more than silence."""
    notes: Sequence[tuple[float, str, str]] = ()
    """When, who, what: the latest last."""
    rests: Mapping[str, WaitReason] = field(default_factory=dict)
    """Why, and until when, by task: those of them that wait, or were cut off."""
    parkings: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """When runs were parked, by their ids."""

    def really(self, stretch: Stretch, run: str) -> AgentState:
        """What an agent did in a stretch, which may have been its run's sleep."""
        if stretch.state in (AgentState.BETWEEN, AgentState.FINISHED):
            enough = (stretch.ends - stretch.begins) / 2
            for since, until in self.parkings.get(run, ()):
                if min(until, stretch.ends) - max(since, stretch.begins) > enough:
                    return AgentState.PARKED
        return stretch.state

    def is_present(self, task: str) -> bool:
        """Whether a run still goes on with this agent, however long it was silent."""
        return self.ended.get(task) in (AgentState.BETWEEN, AgentState.PARKED)

    def resting(self, member: Member, now: float) -> tuple[AgentState, WaitReason]:
        """What an agent does that has no call under way, why and until when."""
        state = self.ended.get(member.agent) or resting(member, now)
        rest = self.rests.get(member.agent)
        return state, rest or WaitReason(member.why if state is AgentState.FAILED else "")


NO_FLOW_FACTS = FlowFacts({}, {}, {}, {})


@dataclass(frozen=True, slots=True)
class Facts:
    """How everything stands at one moment."""

    at: float
    head: Part
    """The status document without its lists, and what the page needs to give orders."""
    lanes: Part
    live: Sequence[LiveCall]
    fleet: Fleet
    burn: Burn
    today: float
    """When this day began where the service runs."""
    news: Sequence[Event] = ()
    flows: FlowFacts = NO_FLOW_FACTS
    waiting: Part = field(default_factory=dict)
    """Calls that wait, by their ids, as `waiting_rows` makes them."""


def delta(before: Document, after: Document) -> dict[str, dict[str, object]]:
    """What to merge into `before` to have `after`; None says that a key is gone."""
    changed = {}
    for name, part in after.items():
        old = before.get(name, {})
        if part is old:
            continue
        news = {key: value for key, value in part.items() if key not in old or old[key] != value}
        news |= {key: None for key in old if key not in part}
        if news:
            changed[name] = news
    return changed


def merged(before: Document, change: Mapping[str, Mapping[str, object]]) -> Document:
    """The document after a change: what the page does with it, too."""
    after = {name: dict(part) for name, part in before.items()}
    for name, news in change.items():
        part = after.setdefault(name, {})
        for key, value in news.items():
            if value is None:
                part.pop(key, None)
            else:
                part[key] = value
    return after


class Board:
    """The document of now; `update` tells what is new in it, `pieces` tells all of it."""

    def __init__(self, epoch: float) -> None:
        self._epoch = epoch
        self._at = 0.0
        self._swept_at = 0.0
        self._parts: Document = {}
        self._agents: dict[Key, dict[str, object]] = {}
        self._live: dict[Key, LiveCall] = {}
        # How many stretches of each agent have been told.
        self._told: dict[Key, int] = {}
        self._fleet = Fleet()
        self._flows = NO_FLOW_FACTS
        # Agents that have changed, and were not looked at yet.
        self._dirty: dict[Key, None] = {}
        # When silence makes something else of agents, the earliest first.
        self._turns: list[tuple[float, Key]] = []

    def update(self, facts: Facts) -> dict[str, object]:
        """Take the facts in; what has changed since the last time, the rest of it with `more`."""
        self._at, self._fleet = facts.at, facts.fleet
        parts: Document = {
            "head": facts.head,
            "lanes": facts.lanes,
            "waiting": facts.waiting,
            "burn": burned(facts.burn, facts.at),
            "spend": spent(facts.burn, facts.at, facts.today),
            "runs": facts.flows.runs,
            "resources": facts.flows.resources,
            "labels": facts.flows.labels,
            "events": happened(facts.news, facts.flows.notes),
        }
        change: dict[str, object] = {"at": facts.at, **delta(self._parts, parts)}
        self._parts = parts
        self._find_changed(facts)
        return change | self._some()

    def more(self) -> dict[str, object] | None:
        """More that has changed; None when all of it was told."""
        return {"at": self._at, **self._some()} if self._dirty else None

    def pieces(self) -> Iterator[dict[str, object]]:
        """All of it, in pieces to be merged one after the other; the first begins anew."""
        yield {
            "schema": SCHEMA,
            "at": self._at,
            "epoch": self._epoch,
            "past": PAST,
            "agent_states": list(AgentState),
            "looks": looks(),
            **self._parts,
        }
        keys = list(self._agents)
        most = max(_FEWEST_EACH, _MOST_STRETCHES // max(1, len(keys)))
        for first in range(0, len(keys), AGENTS_AT_A_TIME):
            # Some may have gone since the first piece.
            chosen = [key for key in keys[first : first + AGENTS_AT_A_TIME] if key in self._told]
            told = {key: self._stretches(key, self._told[key] - most) for key in chosen}
            yield {
                "at": self._at,
                "agents": {_name(key): self._agents[key] for key in chosen},
                "stretches": {_name(key): each for key, each in told.items() if each is not None},
            }

    def _find_changed(self, facts: Facts) -> None:
        live = _by_agent(facts.live)
        for call in live.values():
            facts.fleet.meet(call)
        dirty = self._dirty
        dirty |= dict.fromkeys(facts.fleet.take_changed())
        dirty |= {key: None for key, call in live.items() if self._live.get(key) != call}
        dirty |= {key: None for key in self._live if key not in live}
        self._live = live
        if self._flows is not facts.flows:
            changed = _otherwise(self._flows, facts.flows)
            self._flows = facts.flows
            dirty |= {key: None for key in self._agents if key[1] in changed}
        while self._turns and self._turns[0][0] <= facts.at:
            dirty[heappop(self._turns)[1]] = None
        if facts.at - self._swept_at >= _SWEEP_SECONDS:
            self._swept_at = facts.at
            dirty |= dict.fromkeys(self._fallen_silent(facts))

    def _some(self) -> dict[str, object]:
        """What is new about some of the agents that have changed."""
        agents: dict[str, object] = {}
        stretches: dict[str, object] = {}
        chosen = list(islice(self._dirty, AGENTS_AT_A_TIME))
        for key in chosen:
            del self._dirty[key]
            member = self._fleet.member(key)
            if member is None or self._is_past(key, member):
                if self._agents.pop(key, None) is not None:
                    del self._told[key]
                    agents[_name(key)] = None
                continue
            agents[_name(key)] = self._agents[key] = self._row(member, self._live.get(key))
            turns = turns_at(member, self._at)
            if turns is not None:
                heappush(self._turns, (turns, key))
            # The last one that was told may have become longer.
            news = self._stretches(key, self._told.get(key, 0) - 1)
            self._told[key] = member.kept
            if news is not None:
                stretches[_name(key)] = news
        told = {"agents": agents, "stretches": stretches}
        return {name: part for name, part in told.items() if part}

    def _fallen_silent(self, facts: Facts) -> list[Key]:
        gone = [key for key in self._agents if facts.fleet.member(key) is None]
        for key in facts.fleet.known():
            member, row = facts.fleet.member(key), self._agents.get(key)
            if key in self._live or member is None or row is None:
                continue
            if self._is_past(key, member) or row["state"] != self._doing(member):
                gone.append(key)
        return gone

    def _is_past(self, key: Key, member: Member) -> bool:
        silent = key not in self._live and member.last_end < self._at - PAST
        return silent and not self._flows.is_present(member.agent)

    def _doing(self, member: Member) -> AgentState:
        return self._flows.resting(member, self._at)[0]

    def _row(self, member: Member, call: LiveCall | None) -> dict[str, object]:
        if call is not None:
            state, why, since, until = call.state, call.why, call.since, call.until
        else:
            state, (why, until) = self._flows.resting(member, self._at)
            since = member.last_end
        return {
            "session": member.session,
            "agent": member.agent,
            "tag": member.tag,
            "model": member.model if call is None else call.model,
            "lane": lane_label(member.lane if call is None else call.lane),
            "state": state.value,
            "why": why,
            "since": round(since, 1),
            # Whole seconds: an estimate that wanders by milliseconds is no news.
            "until": None if until is None else whole_second(until),
            "calls": member.calls,
            "failed": member.failed,
            "tokens": member.tokens,
            "waited": round(member.waited, 1),
            "open": self._open(member, call, state),
        }

    def _open(self, member: Member, call: LiveCall | None, state: AgentState) -> list[list[object]]:
        """The stretches that no ended call has closed yet; the last goes on until now."""
        if call is None:
            if state is AgentState.FINISHED or not member.last_end:
                return []
            return [[self._tenths(member.last_end), None, _NUMBER[state.value]]]
        begins, waited = (call.since, None) if call.waited is None else call.waited
        told: list[list[object]] = []
        if member.last_end and member.last_end < begins:
            before = Stretch(member.last_end, begins, AgentState.BETWEEN)
            told.append(self._flat(before, self._flows.really(before, member.tag)))
        if waited is not None:
            told.append(self._flat(Stretch(begins, call.since, waited), waited))
        return [*told, [self._tenths(call.since), None, _NUMBER[state.value]]]

    def _stretches(self, key: Key, number: int) -> list[object] | None:
        member = self._fleet.member(key)
        if member is None:
            return None
        first, found = member.stretches_from(max(0, number))
        past = sum(each.ends < self._at - PAST for each in found)
        flat: list[object] = []
        for each in found[past:]:
            flat += self._flat(each, self._flows.really(each, member.tag))
        return [first + past, flat] if flat else None

    def _flat(self, stretch: Stretch, state: AgentState) -> list[object]:
        begins, ends = self._tenths(stretch.begins), self._tenths(stretch.ends)
        return [begins, ends, _NUMBER[state.value]]

    def _tenths(self, at: float) -> int:
        return round((at - self._epoch) * 10)


def _otherwise(before: FlowFacts, after: FlowFacts) -> set[str]:
    """The agents of which runs now tell something else."""
    tasks = before.ended.keys() | after.ended
    return {
        task
        for task in tasks
        if (before.ended.get(task), before.rests.get(task))
        != (after.ended.get(task), after.rests.get(task))
    }


def _by_agent(live: Sequence[LiveCall]) -> dict[Key, LiveCall]:
    """One call an agent: of several that one which waits, since that is what holds it up."""
    found: dict[Key, LiveCall] = {}
    for call in live:
        if not call.session and not call.agent:
            continue
        key = (call.session, call.agent)
        known = found.get(key)
        if known is None or (
            known.state is AgentState.ANSWERING and call.state is not AgentState.ANSWERING
        ):
            found[key] = call
    return found


def _name(key: Key) -> str:
    return f"{key[0]}|{key[1]}"


FLEET_SCHEMA = "jackline.fleet/1"
_DIGITS = re.compile(r"([0-9]+)")
MOST_AGENTS = 500
_MOST_RUNS_LISTED = 20
# An agent, or a run, that ended longer ago is nobody's present.
_PRESENT = 1800.0
_WAITS = (AgentState.PARKED, AgentState.DOWN, AgentState.THROTTLED, AgentState.QUEUED)
_ORDER = {
    state: rank
    for rank, state in enumerate(
        (
            AgentState.FAILED,
            *_WAITS,
            AgentState.ANSWERING,
            AgentState.BETWEEN,
            AgentState.QUIET,
            AgentState.FINISHED,
        )
    )
}


def fleet_reading(facts: Facts) -> dict[str, object]:
    """The document of now."""
    live = _call_by_agent(facts)
    rows = [_live_row(facts, key, call) for key, call in live.items()]
    for key in facts.fleet.known():
        member = facts.fleet.member(key)
        if key in live or member is None:
            continue
        if member.last_end > facts.at - _PRESENT or facts.flows.is_present(member.agent):
            rows.append(_resting_row(facts, key, member))
    counted = Counter(str(row["state"]) for row in rows)
    chosen = sorted(rows, key=_urgency)[:MOST_AGENTS]
    chosen.sort(key=_place)
    head = facts.head
    return {
        "schema": FLEET_SCHEMA,
        "at": facts.at,
        "verdict": head["verdict"],
        "url": head["url"],
        "calls_in_flight": head["calls_in_flight"],
        "calls_waiting": head["calls_waiting"],
        "lanes": list(facts.lanes.values()),
        "agents_by_state": {state.value: counted[state.value] for state in AgentState},
        "agents": chosen,
        "more_agents": len(rows) - len(chosen),
        "spend": _spend(facts),
        "runs": _runs(facts),
        "forecast": head["forecast"],
        "notes": list(_list(head.get("notes"))),
    }


def _spend(facts: Facts) -> dict[str, object]:
    today = facts.burn.since(facts.today)
    return {
        "dollars_today": round(today.dollars, 4),
        "dollars_per_hour": round(facts.burn.dollars_per_hour(facts.at), 4),
        "tokens_today": today.tokens,
        "unpriced_tokens_today": today.unpriced,
    }


def _call_by_agent(facts: Facts) -> dict[Key, LiveCall]:
    found: dict[Key, LiveCall] = {}
    for call in facts.live:
        key = (call.session, call.agent)
        known = found.get(key)
        # Of several calls that one which waits, since that is what holds the agent up.
        if key != ("", "") and (known is None or known.state is AgentState.ANSWERING):
            found[key] = call
    return found


def _live_row(facts: Facts, key: Key, call: LiveCall) -> dict[str, object]:
    member = facts.fleet.member(key) or Member(call.session, call.agent, call.tag)
    row = _row(facts, key, member)
    now_row = {"tag": call.tag or member.tag, "model": call.model, "lane": lane_label(call.lane)}
    until = None if call.until is None else whole_second(call.until)
    return row | now_row | _doing(call.state, call.why, call.since, until)


def _resting_row(facts: Facts, key: Key, member: Member) -> dict[str, object]:
    state, (why, until) = facts.flows.resting(member, facts.at)
    until = None if until is None else whole_second(until)
    return _row(facts, key, member) | _doing(state, why, member.last_end, until)


def _row(facts: Facts, key: Key, member: Member) -> dict[str, object]:
    return {
        "session": key[0],
        "agent": key[1],
        "label": str(facts.flows.labels.get(key[1]) or "") if key[1] else "",
        "tag": member.tag,
        "model": member.model,
        "lane": lane_label(member.lane),
        "calls": member.calls,
        "failed": member.failed,
        "tokens": member.tokens,
        "waited": round(member.waited, 1),
    }


def _doing(state: AgentState, why: str, since: float, until: int | None) -> dict[str, object]:
    return {"state": state.value, "why": why, "since": round(since, 1), "until": until}


def _place(row: Mapping[str, object]) -> tuple[object, ...]:
    """By session, the main thread first, then by name, in which 9 comes before 10."""
    name = _DIGITS.split(str(row["label"] or row["agent"]))
    numbered = [(int(part), "") if part.isdigit() else (-1, part) for part in name]
    return str(row["session"]), row["agent"] != "", numbered


def _urgency(row: Mapping[str, object]) -> int:
    return _ORDER[AgentState(str(row["state"]))]


def _runs(facts: Facts) -> list[dict[str, object]]:
    told = [dict(run) for run in facts.flows.runs.values() if isinstance(run, Mapping)]
    present = [
        run
        for run in told
        if not isinstance(run.get("ended_at"), float | int)
        or _number(run["ended_at"]) > facts.at - _PRESENT
    ]
    for run in present:
        run.pop("calls", None)
    return present[:_MOST_RUNS_LISTED]


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []
