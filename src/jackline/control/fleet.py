"""The timeline of the fleet: the states of each agent, and since when.

Rules: (1) pure: facts and `now` come in; (2) bounded: the longest silent agents and the oldest
stretches are dropped first; (3) a stretch has one state; (4) nothing is guessed: without a call an
agent is "between calls" for two minutes, then "quiet", and "finished" at once where its end was
reported; (5) a caller that polls need read only changed agents.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import NamedTuple, TypeAlias

from jackline.events import AttemptFailed, CallEnded, LaneChanged
from jackline.lane_id import LaneId
from jackline.states import AgentState, LaneState

MAX_AGENTS = 5000
_MAX_LANES = 2048
_MAX_STRETCHES = 240
_MAX_CALLS = 20_000
# Shorter stretches would be invisible, and only crowd out longer ones.
_SHORTEST = 0.05
# Longer without a call: a long tool, or the end; nobody outside can know.
QUIET_AFTER = 120.0
# An agent without a call for so long has most likely ended.
_SILENT = 900.0
WAITS = (AgentState.PARKED, AgentState.DOWN, AgentState.THROTTLED, AgentState.QUEUED)

# What a call waits for after an attempt failed in one of these ways.
_WAITED_FOR = {
    "server_throttle": AgentState.THROTTLED,
    "rate_limit": AgentState.THROTTLED,
    "overloaded": AgentState.THROTTLED,
    "account_quota": AgentState.PARKED,
    "billing": AgentState.PARKED,
}
# What a call waits for that was never sent, because of the state of its lane.
_CLOSED: dict[str, AgentState] = {
    LaneState.PARKED: AgentState.PARKED,
    LaneState.DOWN: AgentState.DOWN,
    LaneState.THROTTLED: AgentState.THROTTLED,
}

Key: TypeAlias = tuple[str, str]
"""An agent's session, and its own id there; empty for the session's main thread."""


def waited_for(kind: str) -> AgentState:
    """What a call waits for whose last attempt failed with a failure of this kind."""
    return _WAITED_FOR.get(kind, AgentState.DOWN)


@dataclass(slots=True)
class Stretch:
    """A time in which an agent had one state."""

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
    lane: LaneId | None = None
    stretches: deque[Stretch] = field(default_factory=lambda: deque(maxlen=_MAX_STRETCHES))
    stretch_count: int = 0
    """How many stretches there have ever been: the number of the next one."""
    last_end: float = 0.0
    gone_at: float = 0.0
    """When its end was reported; a call that ends later proves that it lives."""
    calls: int = 0
    failed: int = 0
    tokens: int = 0
    waited: float = 0.0
    why: str = ""

    def add(self, begins: float, ends: float, state: AgentState) -> None:
        """Append a stretch, or extend the last one if it continues it."""
        if ends - begins < _SHORTEST:
            return
        last = self.stretches[-1] if self.stretches else None
        if last is not None and last.state is state and begins - last.ends < _SHORTEST:
            last.ends = max(last.ends, ends)
        else:
            self.stretches.append(Stretch(begins, ends, state))
            self.stretch_count += 1

    def stretches_from(self, number: int) -> tuple[int, list[Stretch]]:
        """The saved stretches from that number on, and the number of the first of them."""
        dropped = self.stretch_count - len(self.stretches)
        first = max(number, dropped)
        return first, list(islice(self.stretches, first - dropped, None))

    def resting_state(self, now: float) -> AgentState:
        """Its state while it has no call under way."""
        if self.stretches and self.stretches[-1].state is AgentState.FAILED:
            return AgentState.FAILED
        silent = now - self.last_end
        if silent >= _SILENT or 0 < self.last_end <= self.gone_at:
            return AgentState.FINISHED
        return AgentState.BETWEEN if silent < QUIET_AFTER else AgentState.QUIET

    def changes_at(self, now: float) -> float | None:
        """When silence alone will change its resting state; None if it will not."""
        after = {AgentState.BETWEEN: QUIET_AFTER, AgentState.QUIET: _SILENT}
        seconds = after.get(self.resting_state(now))
        return None if seconds is None else self.last_end + seconds


class LiveCall(NamedTuple):
    """A call that is under way."""

    session: str
    agent: str
    tag: str
    model: str
    lane: LaneId
    since: float
    state: AgentState
    why: str
    until: float | None
    waited: tuple[float, AgentState] | None = None
    """Since when it waited before, and for what, if it did."""
    task: str = ""
    """The agent of a flow that it is made for."""
    failing_since: float | None = None
    """Since when it meets errors, cuts or silence, if its latest attempt or its lane does."""


def calls_by_task(live: Iterable[LiveCall]) -> dict[str, LiveCall]:
    """One call per agent of a flow: of several one that is answered, since its work goes on."""
    found: dict[str, LiveCall] = {}
    for call in live:
        if call.task and (call.task not in found or call.state is AgentState.ANSWERING):
            found[call.task] = call
    return found


def calls_by_agent(live: Iterable[LiveCall]) -> dict[Key, LiveCall]:
    """One call per agent: of several one that waits, since that is what delays the agent."""
    found: dict[Key, LiveCall] = {}
    for call in live:
        key = (call.session, call.agent)
        known = found.get(key)
        if key != ("", "") and (
            known is None
            or (known.state is AgentState.ANSWERING and call.state is not AgentState.ANSWERING)
        ):
            found[key] = call
    return found


class Fleet:
    """All agents that made a call lately."""

    def __init__(self) -> None:
        self._members: OrderedDict[Key, Member] = OrderedDict()
        self._failures: OrderedDict[str, AttemptFailed] = OrderedDict()
        self._changed: dict[Key, None] = {}
        # The last time each lane was closed: for what, since when, until when.
        self._closed: dict[LaneId, tuple[AgentState, float, float]] = {}

    def __len__(self) -> int:
        return len(self._members)

    def attempt_failed(self, event: AttemptFailed) -> None:
        """An attempt failed: its call now waits for that."""
        self._failures[event.call] = event
        self._failures.move_to_end(event.call)
        while len(self._failures) > _MAX_CALLS:
            self._failures.popitem(last=False)

    def lane_changed(self, event: LaneChanged) -> None:
        """A lane is closed, or open again: calls that wait meanwhile wait for that."""
        state = _CLOSED.get(event.state)
        known = self._closed.get(event.lane)
        if state is not None:
            self._closed.pop(event.lane, None)
            self._closed[event.lane] = (state, event.at, inf)
            if len(self._closed) > _MAX_LANES:
                del self._closed[next(iter(self._closed))]
        elif known is not None and known[2] == inf:
            self._closed[event.lane] = (known[0], known[1], event.at)

    def call_ended(self, event: CallEnded) -> None:
        """A call ended, with whatever outcome."""
        failure = self._failures.pop(event.call, None)
        member = self._member(event.session or "", event.agent or "", event.tag or "")
        begins = event.at - event.took
        if member.last_end and begins > member.last_end:
            silent = begins - member.last_end >= _SILENT
            gap = AgentState.FINISHED if silent else AgentState.BETWEEN
            member.add(member.last_end, begins, gap)
        sent = min(event.at, begins + event.waited)
        cause = AgentState.QUEUED
        closed = None if event.lane is None else self._closed.get(event.lane)
        if closed is not None:
            state, since, until = closed
            if since < sent and begins < until:
                cause = state
        # A lane that is parked or down holds every call, whatever the call's own attempt met.
        if failure is not None and cause not in (AgentState.PARKED, AgentState.DOWN):
            cause = waited_for(failure.kind)
        member.add(begins, sent, cause)
        lost = event.outcome in ("refused", "broken")
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
        """The end of an agent was reported, or with None that of a whole session."""
        known = self._members
        keys = [(session, agent)] if agent is not None else [k for k in known if k[0] == session]
        for key in keys:
            member = known.get(key)
            if member is not None and member.gone_at < member.last_end:
                member.gone_at = max(at, member.last_end)
                self._changed[key] = None

    def follow_clock(self, set_by: float) -> None:
        """The wall clock was set by so much: every saved time stays as long ago as it is."""
        for key, member in self._members.items():
            for stretch in member.stretches:
                stretch.begins += set_by
                stretch.ends += set_by
            if member.last_end:
                member.last_end += set_by
            if member.gone_at:
                member.gone_at += set_by
            self._changed[key] = None
        self._closed = {
            lane: (state, since + set_by, until + set_by)
            for lane, (state, since, until) in self._closed.items()
        }

    def take_changed(self) -> list[Key]:
        """The agents that have changed since the last call of this."""
        changed, self._changed = self._changed, {}
        return list(changed)

    def known(self) -> list[Key]:
        """All agents, the longest silent ones first."""
        return list(self._members)

    def member(self, key: Key) -> Member | None:
        """What is known of one agent."""
        return self._members.get(key)

    def add_live(self, call: LiveCall) -> None:
        """Make the agent of a call known before its first call has ended."""
        if (call.session, call.agent) not in self._members:
            self._member(call.session, call.agent, call.tag)

    def _member(self, session: str, agent: str, tag: str) -> Member:
        key = (session, agent)
        member = self._members.get(key)
        if member is None:
            member = self._members[key] = Member(session, agent, tag)
            while len(self._members) > MAX_AGENTS:
                gone, _ = self._members.popitem(last=False)
                self._changed.pop(gone, None)
        if tag:
            member.tag = tag
        self._members.move_to_end(key)
        self._changed[key] = None
        return member
