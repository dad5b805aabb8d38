"""The documents of the whole fleet: the page's, with its deltas, and that of `status --watch`.

Rules: (1) pure: facts come in, plain JSON data comes out; (2) a document merged with its deltas is
the present document; keys that do not change are not sent again; (3) only agents that have changed
are read, and not too many at a time, so that no call waits for it; (4) long lists are cut, waiting
agents come first, and the true length is included; (5) an unknown price is shown as tokens without
one, never as zero; (6) no prompt, answer, key or token.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from jackline.control.fleet import WAITS, Fleet, Key, LiveCall, Member, Stretch, calls_by_agent
from jackline.control.observatory import Burn
from jackline.control.spending import Sums
from jackline.control.text import whole_second
from jackline.events import Event, LaneChanged, ServiceNoted
from jackline.lane_id import LaneId
from jackline.states import AgentState, LaneState, looks

Part: TypeAlias = Mapping[str, object]
Document: TypeAlias = Mapping[str, Part]

SCHEMA = "jackline.board/1"
FLEET_SCHEMA = "jackline.fleet/1"
PAST = 3600.0
"""How far back the timeline goes, in seconds."""
MAX_WAITING = 50
MAX_AGENTS_LISTED = 500
AGENTS_AT_A_TIME = 100
_CHART_MINUTES = 60
_MAX_EVENTS = 80
_MAX_RUNS_SPENT = 40
_MAX_RUNS_LISTED = 20
# Of all agents together: a large fleet is shown with fewer stretches each.
_MAX_STRETCHES = 120_000
_MIN_STRETCHES_EACH = 24
# Old and forgotten agents cause no event: they are searched for so often.
_SWEEP_SECONDS = 20.0
# Agents and runs that ended longer ago are not part of `status --watch`.
_PRESENT_SECONDS = 1800.0
_STATE_NUMBERS = {state: number for number, state in enumerate(AgentState)}
# Reasons for states that need no more explanation.
_REASONS: dict[str, str] = {
    LaneState.THROTTLED: "the provider asked to slow down",
    LaneState.RECOVERING: "few calls at first",
    LaneState.OPEN: "it takes calls again",
}
_MOST_URGENT_FIRST = (
    AgentState.FAILED,
    *WAITS,
    AgentState.ANSWERING,
    AgentState.BETWEEN,
    AgentState.QUIET,
    AgentState.FINISHED,
)


class WaitReason(NamedTuple):
    """Why an agent does not work, and until when, if that is known."""

    why: str = ""
    until: float | None = None


@dataclass(frozen=True, slots=True)
class FlowFacts:
    """What the store of runs knows; runs, resources and agents' labels by their ids."""

    runs: Part
    resources: Part
    labels: Part
    agent_states: Mapping[str, AgentState]
    """States of agents without a call under way, by task: a run knows more than their silence."""
    notes: Sequence[tuple[float, str, str]] = ()
    """When, who, what: the latest last."""
    wait_reasons: Mapping[str, WaitReason] = field(default_factory=dict)
    """Of those that wait, or were cut off, by task."""
    parkings: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """When runs were parked, by their ids."""

    def actual_state(self, stretch: Stretch, run: str) -> AgentState:
        """The state of an agent in a stretch in which its run may have been parked."""
        if stretch.state in (AgentState.BETWEEN, AgentState.FINISHED):
            enough = (stretch.ends - stretch.begins) / 2
            for since, until in self.parkings.get(run, ()):
                if min(until, stretch.ends) - max(since, stretch.begins) > enough:
                    return AgentState.PARKED
        return stretch.state

    def is_present(self, task: str) -> bool:
        """Whether a run still has this agent, however long it was silent."""
        return self.agent_states.get(task) in (AgentState.BETWEEN, AgentState.PARKED)

    def resting(self, member: Member, now: float) -> tuple[AgentState, WaitReason]:
        """State and reason of an agent that has no call under way."""
        state = self.agent_states.get(member.agent) or member.resting_state(now)
        reason = self.wait_reasons.get(member.agent)
        return state, reason or WaitReason(member.why if state is AgentState.FAILED else "")

    def row(self, member: Member, call: LiveCall | None, now: float) -> dict[str, object]:
        """One agent as the page and the terminal show it."""
        if call is not None:
            state, why, since, until = call.state, call.why, call.since, call.until
        else:
            state, (why, until) = self.resting(member, now)
            since = member.last_end
        return {
            "session": member.session,
            "agent": member.agent,
            "tag": member.tag if call is None else call.tag or member.tag,
            "model": member.model if call is None else call.model,
            "lane": str((member.lane if call is None else call.lane) or ""),
            "state": state.value,
            "why": why,
            "since": round(since, 1),
            # Whole seconds, so that an estimate does not change by milliseconds.
            "until": None if until is None else whole_second(until),
            "calls": member.calls,
            "failed": member.failed,
            "tokens": member.tokens,
            "waited": round(member.waited, 1),
        }


NO_FLOW_FACTS = FlowFacts({}, {}, {}, {})


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that is shown of one moment."""

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

    @property
    def events(self) -> dict[str, dict[str, object]]:
        """The latest events, each under a key of its own."""
        lines = list(self.flows.notes)
        for event in self.news:
            if isinstance(event, LaneChanged):
                name = event.lane.label
                why = event.why or _REASONS.get(event.state)
                lines.append((event.at, name, f"{event.state}: {why}" if why else event.state))
            elif isinstance(event, ServiceNoted):
                what = f"{event.what}: {event.detail}" if event.detail else event.what
                lines.append((event.at, "service", what))
        return {
            f"{at:.3f} {who} {what}"[:200]: {"at": round(at, 3), "who": who, "what": what}
            for at, who, what in sorted(lines)[-_MAX_EVENTS:]
        }

    def fleet_document(self) -> dict[str, object]:
        """What `jackline status --watch` shows."""
        live = calls_by_agent(self.live)
        rows = []
        for key in dict.fromkeys((*live, *self.fleet.known())):
            call = live.get(key)
            member = self.fleet.member(key)
            if member is None:
                member = Member(key[0], key[1], "")
            is_past = member.last_end <= self.at - _PRESENT_SECONDS
            if call is None and is_past and not self.flows.is_present(member.agent):
                continue
            label = str(self.flows.labels.get(key[1]) or "") if key[1] else ""
            rows.append(self.flows.row(member, call, self.at) | {"label": label})
        counts = Counter(str(row["state"]) for row in rows)
        chosen = sorted(rows, key=lambda row: _MOST_URGENT_FIRST.index(row["state"]))
        chosen = sorted(chosen[:MAX_AGENTS_LISTED], key=_by_session_and_name)
        runs = []
        for run in self.flows.runs.values():
            if isinstance(run, Mapping):
                ended_at = run.get("ended_at")
                if not isinstance(ended_at, int | float) or ended_at > self.at - _PRESENT_SECONDS:
                    runs.append({name: value for name, value in run.items() if name != "calls"})
        head, today, notes = self.head, self.burn.since(self.today), self.head.get("notes")
        return {
            "schema": FLEET_SCHEMA,
            "at": self.at,
            "verdict": head["verdict"],
            "url": head["url"],
            "calls_in_flight": head["calls_in_flight"],
            "calls_waiting": head["calls_waiting"],
            "lanes": list(self.lanes.values()),
            "agents_by_state": {state.value: counts[state.value] for state in AgentState},
            "agents": chosen,
            "more_agents": len(rows) - len(chosen),
            "spend": {
                "dollars_today": round(today.dollars, 4),
                "dollars_per_hour": round(self.burn.dollars_per_hour(self.at), 4),
                "tokens_today": today.tokens,
                "unpriced_tokens_today": today.unpriced,
            },
            "runs": runs[:_MAX_RUNS_LISTED],
            "forecast": head["forecast"],
            "notes": list(notes) if isinstance(notes, list | tuple) else [],
        }


def waiting_rows(waiting: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, object]]:
    """The first waiting calls of a status document, by their ids."""
    rows: dict[str, dict[str, object]] = {}
    for order, call in enumerate(waiting[:MAX_WAITING]):
        turn = call["turn"] or {}
        until = turn.get("cached_until")
        rows[str(call["call"])] = {
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
            "cached_until": None if until is None else whole_second(until),
            "cost": turn.get("cost_tokens"),
            "why": turn.get("why") or call["why"],
        }
    return rows


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


class Board:
    """The present document; `update` returns what is new in it, `pieces` all of it."""

    def __init__(self, epoch: float) -> None:
        self._epoch = epoch
        self._at = 0.0
        self._swept_at = 0.0
        self._parts: Document = {}
        self._agents: dict[Key, dict[str, object]] = {}
        self._live: dict[Key, LiveCall] = {}
        # How many stretches of each agent were sent.
        self._sent: dict[Key, int] = {}
        self._fleet = Fleet()
        self._flows = NO_FLOW_FACTS
        # Agents that have changed, and were not read yet.
        self._dirty: dict[Key, None] = {}
        # When silence changes the states of agents, the earliest first.
        self._changes: list[tuple[float, Key]] = []

    def update(self, facts: Facts) -> dict[str, object]:
        """Read the facts; what has changed since the last time, the rest of it with `more`."""
        self._at, self._fleet = facts.at, facts.fleet
        parts: Document = {
            "head": facts.head,
            "lanes": facts.lanes,
            "waiting": facts.waiting,
            "burn": {
                str(minute.at): {
                    lane: [sums.tokens, round(sums.dollars, 4)]
                    for lane, sums in _by_label(minute.lanes).items()
                }
                for minute in facts.burn.series(facts.at, _CHART_MINUTES)
                if minute.lanes
            },
            "spend": {
                "today": facts.burn.since(facts.today).to_json(),
                "per_hour": round(facts.burn.dollars_per_hour(facts.at), 4),
                "lanes": {
                    name: sums.to_json() for name, sums in _by_label(facts.burn.by_lane).items()
                },
                "runs": {
                    tag: sums.to_json()
                    for tag, sums in list(facts.burn.by_tag.items())[-_MAX_RUNS_SPENT:]
                },
            },
            "runs": facts.flows.runs,
            "resources": facts.flows.resources,
            "labels": facts.flows.labels,
            "events": facts.events,
        }
        change: dict[str, object] = {"at": facts.at, **delta(self._parts, parts)}
        self._parts = parts
        self._find_changed(facts)
        return change | self._some()

    def more(self) -> dict[str, object] | None:
        """More that has changed; None when nothing is left."""
        return {"at": self._at, **self._some()} if self._dirty else None

    def pieces(self) -> Iterator[dict[str, object]]:
        """All of it, in pieces to be merged in their order; the first one starts over."""
        yield {
            "schema": SCHEMA,
            "at": self._at,
            "epoch": self._epoch,
            "past": PAST,
            "agent_states": list(AgentState),
            "looks": looks(),
            "meanings": {state.value: state.meaning for state in AgentState},
            **self._parts,
        }
        keys = list(self._agents)
        most = max(_MIN_STRETCHES_EACH, _MAX_STRETCHES // max(1, len(keys)))
        for first in range(0, len(keys), AGENTS_AT_A_TIME):
            # Some may have gone since the first piece.
            chosen = [key for key in keys[first : first + AGENTS_AT_A_TIME] if key in self._sent]
            found = {key: self._stretches(key, self._sent[key] - most) for key in chosen}
            yield {
                "at": self._at,
                "agents": {"|".join(key): self._agents[key] for key in chosen},
                "stretches": {"|".join(key): each for key, each in found.items() if each},
            }

    def _find_changed(self, facts: Facts) -> None:
        live = calls_by_agent(facts.live)
        for call in live.values():
            facts.fleet.add_live(call)
        dirty = self._dirty
        dirty |= dict.fromkeys(facts.fleet.take_changed())
        dirty |= {key: None for key, call in live.items() if self._live.get(key) != call}
        dirty |= {key: None for key in self._live if key not in live}
        self._live = live
        before, after = self._flows, facts.flows
        if before is not after:
            changed = {
                task
                for task in before.agent_states.keys() | after.agent_states
                if before.agent_states.get(task) != after.agent_states.get(task)
                or before.wait_reasons.get(task) != after.wait_reasons.get(task)
            }
            self._flows = after
            dirty |= {key: None for key in self._agents if key[1] in changed}
        while self._changes and self._changes[0][0] <= facts.at:
            dirty[heappop(self._changes)[1]] = None
        if facts.at - self._swept_at < _SWEEP_SECONDS:
            return
        self._swept_at = facts.at
        for key, row in self._agents.items():
            member = facts.fleet.member(key)
            if member is None:
                dirty[key] = None
            elif key not in live:
                state, _ = after.resting(member, self._at)
                if row["state"] != state or self._is_past(key, member):
                    dirty[key] = None

    def _some(self) -> dict[str, object]:
        """What is new about some of the agents that have changed."""
        agents: dict[str, object] = {}
        stretches: dict[str, object] = {}
        for key in list(islice(self._dirty, AGENTS_AT_A_TIME)):
            del self._dirty[key]
            name = "|".join(key)
            member = self._fleet.member(key)
            if member is None or self._is_past(key, member):
                if self._agents.pop(key, None) is not None:
                    del self._sent[key]
                    agents[name] = None
                continue
            call = self._live.get(key)
            row = self._flows.row(member, call, self._at)
            row["open"] = self._open(member, call, AgentState(str(row["state"])))
            agents[name] = self._agents[key] = row
            changes_at = member.changes_at(self._at)
            if changes_at is not None:
                heappush(self._changes, (changes_at, key))
            # The last one that was sent may have become longer.
            news = self._stretches(key, self._sent.get(key, 0) - 1)
            self._sent[key] = member.stretch_count
            if news is not None:
                stretches[name] = news
        parts = {"agents": agents, "stretches": stretches}
        return {name: part for name, part in parts.items() if part}

    def _is_past(self, key: Key, member: Member) -> bool:
        silent = key not in self._live and member.last_end < self._at - PAST
        return silent and not self._flows.is_present(member.agent)

    def _open(self, member: Member, call: LiveCall | None, state: AgentState) -> list[list[object]]:
        """The stretches that no ended call has closed yet; the last goes on until now."""
        if call is None:
            if state is AgentState.FINISHED or not member.last_end:
                return []
            return [[self._tenths(member.last_end), None, _STATE_NUMBERS[state]]]
        begins, waited = (call.since, None) if call.waited is None else call.waited
        found: list[list[object]] = []
        if member.last_end and member.last_end < begins:
            gap = Stretch(member.last_end, begins, AgentState.BETWEEN)
            found.append(self._flat(gap, self._flows.actual_state(gap, member.tag)))
        if waited is not None:
            found.append(self._flat(Stretch(begins, call.since, waited), waited))
        return [*found, [self._tenths(call.since), None, _STATE_NUMBERS[state]]]

    def _stretches(self, key: Key, number: int) -> list[object] | None:
        member = self._fleet.member(key)
        if member is None:
            return None
        first, found = member.stretches_from(max(0, number))
        past = sum(each.ends < self._at - PAST for each in found)
        flat: list[object] = []
        for each in found[past:]:
            flat += self._flat(each, self._flows.actual_state(each, member.tag))
        return [first + past, flat] if flat else None

    def _flat(self, stretch: Stretch, state: AgentState) -> list[object]:
        return [self._tenths(stretch.begins), self._tenths(stretch.ends), _STATE_NUMBERS[state]]

    def _tenths(self, at: float) -> int:
        return round((at - self._epoch) * 10)


def _by_label(lanes: Mapping[LaneId, Sums]) -> dict[str, Sums]:
    """Sums by the label of a lane, which several accounts may share."""
    found: dict[str, Sums] = {}
    for lane, sums in lanes.items():
        found.setdefault(lane.label, Sums()).join(sums)
    return found


def _by_session_and_name(row: Mapping[str, object]) -> tuple[object, ...]:
    """By session, the main thread first, then by name, in which 9 comes before 10."""
    parts = re.split(r"([0-9]+)", str(row["label"] or row["agent"]))
    numbered = [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
    return str(row["session"]), row["agent"] != "", numbered
