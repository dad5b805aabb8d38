"""Remember what each agent was doing when: the fleet's timeline, past and future.

Laws: (1) pure: facts and `now` come in; (2) bounded: the longest silent agents and the oldest
stretches go first; (3) a stretch has one state, and the words are those of every other face; (4)
nothing is guessed: between two calls an agent is "between calls", whatever it does there.
Not here: flows' own agents (flows/), drawing (dashboard/, cli/top.py).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from jackline.events import AttemptFailed, CallEnded

_MOST_AGENTS = 5000
_MOST_STRETCHES = 240
_MOST_CALLS = 20_000
# Shorter stretches are drawn as nothing, and would only crowd out longer ones.
_WORTH_KEEPING = 0.05
# An agent that asked nothing for so long has most likely ended.
_SILENT = 900.0


class Doing(StrEnum):
    """What an agent does, or waits for."""

    ANSWERING = "answering"
    BETWEEN = "between calls"
    QUEUED = "queued"
    THROTTLED = "throttled"
    PARKED = "parked"
    DOWN = "upstream down"
    FAILED = "failed"
    FINISHED = "finished"


# The kind of the last failed attempt says what a wait was for.
_WAITED_FOR = {
    "server_throttle": Doing.THROTTLED,
    "rate_limit": Doing.THROTTLED,
    "overloaded": Doing.THROTTLED,
    "account_quota": Doing.PARKED,
    "billing": Doing.PARKED,
}
_LOST = ("refused", "broken")


@dataclass(slots=True)
class Stretch:
    """A time in which an agent did one thing."""

    begins: float
    ends: float
    doing: Doing


@dataclass(slots=True)
class Member:
    """One agent: a session's main thread, or a sub-agent of it."""

    session: str
    agent: str
    tag: str
    model: str = ""
    lane: str = ""
    stretches: deque[Stretch] = field(default_factory=lambda: deque(maxlen=_MOST_STRETCHES))
    last_end: float = 0.0
    calls: int = 0
    failed: int = 0
    tokens: int = 0
    waited: float = 0.0
    why: str = ""

    def add(self, begins: float, ends: float, doing: Doing) -> None:
        """Remember a stretch, joined with the one before where it only goes on."""
        if ends - begins < _WORTH_KEEPING:
            return
        last = self.stretches[-1] if self.stretches else None
        if last is not None and last.doing is doing and begins - last.ends < _WORTH_KEEPING:
            last.ends = max(last.ends, ends)
        else:
            self.stretches.append(Stretch(begins, ends, doing))


@dataclass(frozen=True, slots=True)
class Live:
    """A call that is under way, as the desk tells it."""

    session: str
    agent: str
    tag: str
    model: str
    lane: str
    since: float
    doing: Doing
    why: str
    until: float | None


@dataclass(frozen=True, slots=True)
class Shown:
    """One agent as a face shows it now; `until` is when its wait will end, if that is known."""

    session: str
    agent: str
    tag: str
    model: str
    lane: str
    doing: Doing
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
        self._members: OrderedDict[tuple[str, str], Member] = OrderedDict()
        self._failures: OrderedDict[str, AttemptFailed] = OrderedDict()

    def __len__(self) -> int:
        return len(self._members)

    def attempt_failed(self, event: AttemptFailed) -> None:
        """An attempt failed: what follows is waiting for that."""
        self._failures[event.call] = event
        self._failures.move_to_end(event.call)
        while len(self._failures) > _MOST_CALLS:
            self._failures.popitem(last=False)

    def call_ended(self, event: CallEnded) -> None:
        """A call came to its end, whatever it was."""
        failure = self._failures.pop(event.call, None)
        member = self._member(event.session or "", event.agent or "", event.tag or "")
        begins = event.at - event.took
        if member.last_end and begins > member.last_end:
            gap = begins - member.last_end
            member.add(member.last_end, begins, Doing.BETWEEN if gap < _SILENT else Doing.FINISHED)
        sent = min(event.at, begins + event.waited)
        waited_for = Doing.QUEUED
        if failure is not None:
            waited_for = _WAITED_FOR.get(failure.kind, Doing.DOWN)
        member.add(begins, sent, waited_for)
        lost = event.outcome in _LOST
        member.add(sent, event.at, Doing.FAILED if lost else Doing.ANSWERING)
        member.last_end = max(member.last_end, event.at)
        member.model, member.lane = event.model, event.lane
        member.calls += 1
        member.failed += lost
        member.waited += event.waited
        member.tokens += event.input_tokens + event.output_tokens
        member.why = failure.why if lost and failure is not None else ""

    def shown(self, now: float, live: Iterable[Live], *, since: float) -> list[Shown]:
        """Every agent with its stretches from `since` on, those of one session together."""
        for call in live:
            # Calls that never ended yet make their agents known, too.
            self._member(call.session, call.agent, call.tag)
        calls = {(call.session, call.agent): call for call in live}
        rows = [
            self._row(key, member, calls.get(key), now, since)
            for key, member in self._members.items()
        ]
        rows = [row for row in rows if row.stretches or row.doing is not Doing.FINISHED]
        first = {row.session: n for n, row in reversed(list(enumerate(rows)))}
        return sorted(rows, key=lambda row: (first[row.session], row.agent != "", row.agent))

    def _row(
        self, key: tuple[str, str], member: Member, call: Live | None, now: float, since: float
    ) -> Shown:
        stretches = [
            (max(each.begins, since), each.ends, each.doing.value)
            for each in member.stretches
            if each.ends > since
        ]
        if call is not None:
            begins = max(call.since, since)
            stretches.append((begins, now, call.doing.value))
            doing, why, at, until = call.doing, call.why, call.since, call.until
        else:
            doing, at, until = _resting(member, now), member.last_end, None
            why = member.why if doing is Doing.FAILED else ""
            if doing is Doing.BETWEEN:
                stretches.append((max(at, since), now, doing.value))
        return Shown(
            key[0],
            key[1],
            member.tag,
            member.model if call is None else call.model,
            member.lane if call is None else call.lane,
            doing,
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
                self._members.popitem(last=False)
        member.tag = tag or member.tag
        self._members.move_to_end(key)
        return member


def _resting(member: Member, now: float) -> Doing:
    """What an agent does that has no call under way."""
    if member.stretches and member.stretches[-1].doing is Doing.FAILED:
        return Doing.FAILED
    return Doing.BETWEEN if now - member.last_end < _SILENT else Doing.FINISHED
