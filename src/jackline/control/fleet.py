"""The timeline of the fleet: the states of each agent, and since when.

Rules: (1) pure: facts and `now` come in; (2) bounded: the longest silent agents and the oldest
stretches go first; (3) a stretch has one state, in the words of every other face; (4) nothing is
guessed: between two calls an agent is "between calls" for two minutes, then "quiet", and "finished"
at once where its end was reported; (5) who looks again and again need look only at changed agents.
Not here: flows' own agents (flows/), drawing (dashboard/, cli/top_screen.py).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import NamedTuple, TypeAlias

from jackline.events import AttemptFailed, CallEnded, LaneChanged
from jackline.states import AgentState, LaneState

_MOST_AGENTS = 5000
_MOST_LANES = 2048
_MOST_STRETCHES = 240
_MOST_CALLS = 20_000
# Shorter stretches are drawn as nothing, and would only crowd out longer ones.
_WORTH_KEEPING = 0.05
# Who is between calls for longer may run a long tool, or be gone: nobody can tell from outside.
QUIET_AFTER = 120.0
# An agent that asked nothing for so long has most likely ended.
_SILENT = 900.0


# The kind of the last failed attempt says what a wait was for.
_WAITED_FOR = {
    "server_throttle": AgentState.THROTTLED,
    "rate_limit": AgentState.THROTTLED,
    "overloaded": AgentState.THROTTLED,
    "account_quota": AgentState.PARKED,
    "billing": AgentState.PARKED,
}
_LOST = ("refused", "broken")
# What a call waits for that was never sent, because its lane was known to be shut.
_SHUT: dict[str, AgentState] = {
    LaneState.PARKED: AgentState.PARKED,
    LaneState.DOWN: AgentState.DOWN,
    LaneState.THROTTLED: AgentState.THROTTLED,
}
# What a lane is shut for holds for every call on it, whatever its own last attempt met.
_FOR_ALL = (AgentState.PARKED, AgentState.DOWN)

Key: TypeAlias = tuple[str, str]
"""An agent's session, and its own id there; empty for the session's main thread."""


def waited_for(kind: str) -> AgentState:
    """What a call waits for whose last attempt failed with a failure of this kind."""
    return _WAITED_FOR.get(kind, AgentState.DOWN)


@dataclass(slots=True)
class Stretch:
    """A time in which an agent did one thing."""

    begins: float
    ends: float
    state: AgentState


@dataclass(slots=True)
class Member:
    """One agent: a session's main thread, or a sub-agent of it."""

    session: str
    agent: str
    tag: str
    model: str = ""
    lane: str = ""
    stretches: deque[Stretch] = field(default_factory=lambda: deque(maxlen=_MOST_STRETCHES))
    kept: int = 0
    """How many stretches there have ever been: the number of the next one."""
    last_end: float = 0.0
    gone_at: float = 0.0
    """When somebody who knows told its end; a call that ends later proves that it lives."""
    calls: int = 0
    failed: int = 0
    tokens: int = 0
    waited: float = 0.0
    why: str = ""

    def add(self, begins: float, ends: float, state: AgentState) -> None:
        """Remember a stretch, joined with the one before where it only goes on."""
        if ends - begins < _WORTH_KEEPING:
            return
        last = self.stretches[-1] if self.stretches else None
        if last is not None and last.state is state and begins - last.ends < _WORTH_KEEPING:
            last.ends = max(last.ends, ends)
        else:
            self.stretches.append(Stretch(begins, ends, state))
            self.kept += 1

    def stretches_from(self, number: int) -> tuple[int, list[Stretch]]:
        """The stretches from that number on, as far as they are kept, and the first's number."""
        first = max(number, self.kept - len(self.stretches))
        return first, list(islice(self.stretches, first - self.kept + len(self.stretches), None))


class LiveCall(NamedTuple):
    """A call that is under way, as the desk tells it."""

    session: str
    agent: str
    tag: str
    model: str
    lane: str
    since: float
    state: AgentState
    why: str
    until: float | None
    waited: tuple[float, AgentState] | None = None
    """Since when it waited before, and for what, if it did."""


@dataclass(frozen=True, slots=True)
class AgentRow:
    """One agent as a face shows it now; `until` is when its wait will end, if that is known."""

    session: str
    agent: str
    tag: str
    model: str
    lane: str
    state: AgentState
    why: str
    since: float
    until: float | None
    calls: int
    failed: int
    tokens: int
    waited: float
    stretches: tuple[tuple[float, float, str], ...]


class Fleet:
    """All agents that were heard of lately."""

    def __init__(self) -> None:
        self._members: OrderedDict[Key, Member] = OrderedDict()
        self._failures: OrderedDict[str, AttemptFailed] = OrderedDict()
        self._changed: dict[Key, None] = {}
        # The last time each lane was shut: for what, since when, until when.
        self._shut: dict[str, tuple[AgentState, float, float]] = {}

    def __len__(self) -> int:
        return len(self._members)

    def attempt_failed(self, event: AttemptFailed) -> None:
        """An attempt failed: what follows is waiting for that."""
        self._failures[event.call] = event
        self._failures.move_to_end(event.call)
        while len(self._failures) > _MOST_CALLS:
            self._failures.popitem(last=False)

    def lane_changed(self, event: LaneChanged) -> None:
        """A lane is shut, or open again: calls that wait meanwhile wait for that."""
        state = _SHUT.get(event.state)
        known = self._shut.get(event.lane)
        if state is not None:
            self._shut.pop(event.lane, None)
            self._shut[event.lane] = (state, event.at, inf)
            if len(self._shut) > _MOST_LANES:
                del self._shut[next(iter(self._shut))]
        elif known is not None and known[2] == inf:
            self._shut[event.lane] = (known[0], known[1], event.at)

    def call_ended(self, event: CallEnded) -> None:
        """A call came to its end, whatever it was."""
        failure = self._failures.pop(event.call, None)
        member = self._member(event.session or "", event.agent or "", event.tag or "")
        begins = event.at - event.took
        if member.last_end and begins > member.last_end:
            gap = begins - member.last_end
            member.add(
                member.last_end,
                begins,
                AgentState.BETWEEN if gap < _SILENT else AgentState.FINISHED,
            )
        sent = min(event.at, begins + event.waited)
        cause = self._shut_between(event.lane, begins, sent)
        if failure is not None and cause not in _FOR_ALL:
            cause = waited_for(failure.kind)
        member.add(begins, sent, cause)
        lost = event.outcome in _LOST
        member.add(sent, event.at, AgentState.FAILED if lost else AgentState.ANSWERING)
        member.last_end = max(member.last_end, event.at)
        member.model, member.lane = event.model, event.lane
        member.calls += 1
        member.failed += lost
        member.waited += event.waited
        member.tokens += event.input_tokens + event.output_tokens
        member.tokens += event.cache_read_tokens + event.cache_write_tokens
        member.why = failure.why if lost and failure is not None else ""

    def ended(self, session: str, agent: str | None, at: float) -> None:
        """Somebody who knows says that an agent has ended, or with None a whole session."""
        known = self._members
        keys = [(session, agent)] if agent is not None else [k for k in known if k[0] == session]
        for key in keys:
            member = known.get(key)
            if member is not None and member.gone_at < member.last_end:
                member.gone_at = max(at, member.last_end)
                self._changed[key] = None

    def follow_clock(self, set_by: float) -> None:
        """The wall clock was set by so much: all that is remembered stays as long ago as it is."""
        for key, member in self._members.items():
            for stretch in member.stretches:
                stretch.begins += set_by
                stretch.ends += set_by
            if member.last_end:
                member.last_end += set_by
            if member.gone_at:
                member.gone_at += set_by
            self._changed[key] = None
        self._shut = {
            lane: (state, since + set_by, until + set_by)
            for lane, (state, since, until) in self._shut.items()
        }

    def take_changed(self) -> list[Key]:
        """The agents about which something was heard since this was last asked."""
        changed, self._changed = self._changed, {}
        return list(changed)

    def known(self) -> list[Key]:
        """All agents, those first that have been silent for longest."""
        return list(self._members)

    def member(self, key: Key) -> Member | None:
        """What is known of one agent."""
        return self._members.get(key)

    def meet(self, call: LiveCall) -> Member:
        """The agent of a call that is under way, though none of its calls may have ended yet."""
        key = (call.session, call.agent)
        return self._members.get(key) or self._member(call.session, call.agent, call.tag)

    def shown(self, now: float, live: Iterable[LiveCall], *, since: float) -> list[AgentRow]:
        """Every agent with its stretches from `since` on, those of one session together."""
        live = list(live)
        for call in live:
            # Calls that never ended yet make their agents known, too.
            self._member(call.session, call.agent, call.tag)
        calls = {(call.session, call.agent): call for call in live}
        rows = [
            self._row(key, member, calls.get(key), now, since)
            for key, member in self._members.items()
        ]
        rows = [row for row in rows if row.stretches or row.state is not AgentState.FINISHED]
        first = {row.session: n for n, row in reversed(list(enumerate(rows)))}
        return sorted(rows, key=lambda row: (first[row.session], row.agent != "", row.agent))

    def _shut_between(self, lane: str, begins: float, ends: float) -> AgentState:
        if not self._shut:
            return AgentState.QUEUED
        state, since, until = self._shut.get(lane, (AgentState.QUEUED, 0.0, 0.0))
        return state if since < ends and begins < until else AgentState.QUEUED

    def _row(
        self, key: Key, member: Member, call: LiveCall | None, now: float, since: float
    ) -> AgentRow:
        stretches = [
            (max(each.begins, since), each.ends, each.state.value)
            for each in member.stretches
            if each.ends > since
        ]
        if call is not None:
            begins = max(call.since, since)
            stretches.append((begins, now, call.state.value))
            state, why, at, until = call.state, call.why, call.since, call.until
        else:
            state, at, until = resting(member, now), member.last_end, None
            why = member.why if state is AgentState.FAILED else ""
            if state in (AgentState.BETWEEN, AgentState.QUIET):
                stretches.append((max(at, since), now, state.value))
        return AgentRow(
            key[0],
            key[1],
            member.tag,
            member.model if call is None else call.model,
            member.lane if call is None else call.lane,
            state,
            why,
            at,
            until,
            member.calls,
            member.failed,
            member.tokens,
            member.waited,
            tuple(stretches),
        )

    def _member(self, session: str, agent: str, tag: str) -> Member:
        key = (session, agent)
        member = self._members.get(key)
        if member is None:
            member = self._members[key] = Member(session, agent, tag)
            while len(self._members) > _MOST_AGENTS:
                gone, _ = self._members.popitem(last=False)
                self._changed.pop(gone, None)
        if tag:
            member.tag = tag
        self._members.move_to_end(key)
        self._changed[key] = None
        return member


def resting(member: Member, now: float) -> AgentState:
    """What an agent does that has no call under way."""
    if member.stretches and member.stretches[-1].state is AgentState.FAILED:
        return AgentState.FAILED
    silent = now - member.last_end
    if silent >= _SILENT or 0 < member.last_end <= member.gone_at:
        return AgentState.FINISHED
    return AgentState.BETWEEN if silent < QUIET_AFTER else AgentState.QUIET


def turns_at(member: Member, now: float) -> float | None:
    """When silence alone will make something else of what it does; None if it will not."""
    after = {AgentState.BETWEEN: QUIET_AFTER, AgentState.QUIET: _SILENT}.get(resting(member, now))
    return None if after is None else member.last_end + after
