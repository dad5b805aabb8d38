"""Everything that the page shows, as one document of small parts, and what changes in it.

Laws: (1) pure: facts come in, plain JSON data comes out; (2) a document followed by its deltas is
the document of now; (3) only agents about which something was heard are looked at, and not too many
of them at a time, so that no call waits for it; (4) no prompt, answer, key or token.
Not here: sending it (dashboard/), gathering the facts (assembly/watching.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple, TypeAlias

from jackline.control.board_parts import burned, happened, lane_shown, spent
from jackline.control.burn import Burn
from jackline.control.fleet import Doing, Fleet, Key, Live, Member, Stretch, resting, turns_at
from jackline.control.whole_seconds import whole_second
from jackline.events import Event

Part: TypeAlias = Mapping[str, object]
Document: TypeAlias = Mapping[str, Part]

SCHEMA = "jackline.board/1"
DOINGS = tuple(Doing)
PAST = 3600.0
"""How far back the timeline goes."""

_NUMBER = {doing.value: number for number, doing in enumerate(DOINGS)}
# Agents that are long past, or were forgotten, are looked for so often; nothing is heard of them.
_SWEEP_SECONDS = 20.0
AGENTS_AT_A_TIME = 100
# So many stretches in all: a large fleet is looked at from farther away.
_MOST_STRETCHES = 120_000
_FEWEST_EACH = 24


class Rest(NamedTuple):
    """Why an agent does not work, and until when, if that is known."""

    why: str = ""
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Flows:
    """What the store of runs tells, each by its id; `labels` are agents' names by task."""

    runs: Part
    resources: Part
    labels: Part
    ended: Mapping[str, Doing]
    """What agents do that have no call under way, by task, where a run knows more than silence."""
    notes: Sequence[tuple[float, str, str]] = ()
    """When, who, what: the latest last."""
    rests: Mapping[str, Rest] = field(default_factory=dict)
    """Why, and until when, by task: those of them that wait, or were cut off."""
    parkings: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """When runs were parked, by their ids."""

    def really(self, stretch: Stretch, run: str) -> Doing:
        """What an agent did in a stretch, which may have been its run's sleep."""
        if stretch.doing in (Doing.BETWEEN, Doing.FINISHED):
            enough = (stretch.ends - stretch.begins) / 2
            for since, until in self.parkings.get(run, ()):
                if min(until, stretch.ends) - max(since, stretch.begins) > enough:
                    return Doing.PARKED
        return stretch.doing

    def is_present(self, task: str) -> bool:
        """Whether a run still goes on with this agent, however long it was silent."""
        return self.ended.get(task) in (Doing.BETWEEN, Doing.PARKED)

    def resting(self, member: Member, now: float) -> tuple[Doing, Rest]:
        """What an agent does that has no call under way, why and until when."""
        doing = self.ended.get(member.agent) or resting(member, now)
        rest = self.rests.get(member.agent)
        return doing, rest or Rest(member.why if doing is Doing.FAILED else "")


NO_FLOWS = Flows({}, {}, {}, {})


@dataclass(frozen=True, slots=True)
class Facts:
    """How everything stands at one moment."""

    at: float
    head: Part
    """The status document without its lists, and what the page needs to give orders."""
    lanes: Part
    live: Sequence[Live]
    fleet: Fleet
    burn: Burn
    today: float
    """When this day began where the service runs."""
    news: Sequence[Event] = ()
    flows: Flows = NO_FLOWS
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
        self._live: dict[Key, Live] = {}
        # How many stretches of each agent have been told.
        self._told: dict[Key, int] = {}
        self._fleet = Fleet()
        self._flows = NO_FLOWS
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
            "doings": list(DOINGS),
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
            if self._is_past(key, member) or row["doing"] != self._doing(member):
                gone.append(key)
        return gone

    def _is_past(self, key: Key, member: Member) -> bool:
        silent = key not in self._live and member.last_end < self._at - PAST
        return silent and not self._flows.is_present(member.agent)

    def _doing(self, member: Member) -> Doing:
        return self._flows.resting(member, self._at)[0]

    def _row(self, member: Member, call: Live | None) -> dict[str, object]:
        if call is not None:
            doing, why, since, until = call.doing, call.why, call.since, call.until
        else:
            doing, (why, until) = self._flows.resting(member, self._at)
            since = member.last_end
        return {
            "session": member.session,
            "agent": member.agent,
            "tag": member.tag,
            "model": member.model if call is None else call.model,
            "lane": lane_shown(member.lane if call is None else call.lane),
            "doing": doing.value,
            "why": why,
            "since": round(since, 1),
            # Whole seconds: an estimate that wanders by milliseconds is no news.
            "until": None if until is None else whole_second(until),
            "calls": member.calls,
            "failed": member.failed,
            "tokens": member.tokens,
            "waited": round(member.waited, 1),
            "open": self._open(member, call, doing),
        }

    def _open(self, member: Member, call: Live | None, doing: Doing) -> list[list[object]]:
        """The stretches that no ended call has closed yet; the last goes on until now."""
        if call is None:
            if doing is Doing.FINISHED or not member.last_end:
                return []
            return [[self._tenths(member.last_end), None, _NUMBER[doing.value]]]
        begins, waited = (call.since, None) if call.waited is None else call.waited
        told: list[list[object]] = []
        if member.last_end and member.last_end < begins:
            before = Stretch(member.last_end, begins, Doing.BETWEEN)
            told.append(self._flat(before, self._flows.really(before, member.tag)))
        if waited is not None:
            told.append(self._flat(Stretch(begins, call.since, waited), waited))
        return [*told, [self._tenths(call.since), None, _NUMBER[doing.value]]]

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

    def _flat(self, stretch: Stretch, doing: Doing) -> list[object]:
        begins, ends = self._tenths(stretch.begins), self._tenths(stretch.ends)
        return [begins, ends, _NUMBER[doing.value]]

    def _tenths(self, at: float) -> int:
        return round((at - self._epoch) * 10)


def _otherwise(before: Flows, after: Flows) -> set[str]:
    """The agents of which runs now tell something else."""
    tasks = before.ended.keys() | after.ended
    return {
        task
        for task in tasks
        if (before.ended.get(task), before.rests.get(task))
        != (after.ended.get(task), after.rests.get(task))
    }


def _by_agent(live: Sequence[Live]) -> dict[Key, Live]:
    """One call an agent: of several that one which waits, since that is what holds it up."""
    found: dict[Key, Live] = {}
    for call in live:
        if not call.session and not call.agent:
            continue
        key = (call.session, call.agent)
        known = found.get(key)
        if known is None or (known.doing is Doing.ANSWERING and call.doing is not Doing.ANSWERING):
            found[key] = call
    return found


def _name(key: Key) -> str:
    return f"{key[0]}|{key[1]}"
