"""Find out which sub-agents and sessions died of what, and remember it until their parents know.

Rules: (1) evidence of a death is its client's hook, its own transcript, or the client's report of
its end if the gateway or the client's own numbers agree; words that only look like an error are
none; (2) the gateway's record comes first: the latest call of an agent counts, and an answer takes
an earlier error back; an error that was passed on is not yet a death, since clients retry; (3) each
death is reported once; an agent that was resumed can die again; (4) a transcript that is not
written yet is waited for, but never longer than the hooks wait; files are read off the event loop;
(5) of sessions only what a trusted hook reported is remembered; (6) everything is bounded, the
longest silent go first.
Not here: the words (face.py), resuming a stopped session (assembly/session_resume.py).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Self, TypeVar

from jackline.agents.claude_code.transcript import DeadAgent, read_dead_agent
from jackline.agents.outcome import Ending
from jackline.agents.outcome import Ending as Terminated
from jackline.agents.runner import ENDINGS
from jackline.clock import Clock
from jackline.errors import UnreadableError
from jackline.events import AttemptFailed, CallEnded, Event
from jackline.failures import Failure, Kind, Observation, Where, classify
from jackline.failures.sentences import name_of_kind
from jackline.hooks.hook_input import HookInput, ReportedEnd
from jackline.transcripts.story import TranscriptEnd as StoryEnding

_MOST = 2000
# News of one death comes by several ways, a process start apart at most.
_SAME_DEATH_S = 10.0


@dataclass(frozen=True, slots=True)
class DeathCause:
    """What ended a session or a sub-agent."""

    kind: Kind
    sub: str | None = None
    resets_at: datetime | None = None

    @classmethod
    def of(cls, failure: Failure) -> Self:
        """The cause that a classified failure is."""
        return cls(failure.kind, failure.sub, failure.resets_at)

    @property
    def name(self) -> str:
        """A noun phrase for it, fit for the middle of a sentence."""
        return name_of_kind(self.kind, self.sub)


@dataclass(frozen=True, slots=True)
class Death:
    """One sub-agent's end."""

    session: str
    agent: str
    cause: DeathCause

    @property
    def terminated_by(self) -> Ending:
        """What ended it."""
        return ENDINGS[self.cause.kind]


class Deaths:
    """All that were heard of and not yet told, and when the others were told."""

    def __init__(self) -> None:
        self._untold: OrderedDict[tuple[str, str], Death] = OrderedDict()
        self._told: OrderedDict[tuple[str, str], float] = OrderedDict()

    def heard(self, death: Death, now: float) -> None:
        """A sub-agent has died."""
        key = (death.session, death.agent)
        if now - self._told.get(key, -_SAME_DEATH_S) < _SAME_DEATH_S:
            return  # by another way its parent knows already
        self._told.pop(key, None)
        self._untold[key] = death
        self._untold.move_to_end(key)
        while len(self._untold) > _MOST:
            self._untold.popitem(last=False)

    def revived(self, session: str, agent: str) -> None:
        """It goes on after all."""
        self._untold.pop((session, agent), None)
        self._told.pop((session, agent), None)

    def untold(self, session: str, agent: str | None = None) -> list[Death]:
        """The deaths that this session, or this agent's parent, does not know of."""
        return [
            death
            for key, death in self._untold.items()
            if key[0] == session and agent in (None, key[1])
        ]

    def told_at(self, session: str, agent: str) -> float | None:
        """When its parent was told; None if it was not, or the agent has lived again since."""
        return self._told.get((session, agent))

    def tell(self, death: Death, now: float) -> None:
        """From now on its parent knows."""
        key = (death.session, death.agent)
        self._untold.pop(key, None)
        self._told[key] = now
        self._told.move_to_end(key)
        while len(self._told) > _MOST:
            self._told.popitem(last=False)


K = TypeVar("K")
V = TypeVar("V")

_MOST_CALLS = 5000
_HANDED_ON = frozenset(("refused", "broken"))
_ANSWERED = frozenset(("answered", "shortened"))
# Calls that are no agent's turn are named by what they ask for, where others name their model.
_NO_TURN = frozenset(("count_tokens", "models"))
_WALLS = frozenset((Kind.ACCOUNT_QUOTA.value, Kind.BILLING.value))


class LatestCall(NamedTuple):
    """What became of an agent's latest call; `cause` is None when it was answered."""

    cause: DeathCause | None
    answered_at: float
    """When a call of it was last answered, by the clock's steady time; zero if none was."""
    model: str
    tag: str | None
    """That of the run that carries the agent, if one does."""


class LatestCalls:
    """The latest of every agent; `heard` is told all that the gateway announces."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._fates: OrderedDict[tuple[str, str], LatestCall] = OrderedDict()
        self._attempts: OrderedDict[str, AttemptFailed] = OrderedDict()
        self._walls: OrderedDict[str, AttemptFailed] = OrderedDict()
        self.on_wall: Callable[[str, DeathCause], None] | None = None
        """Hears of a quota wall that was handed to a session's main thread."""
        self.on_answer: Callable[[CallEnded], None] | None = None
        """Hears of each answer to a session's main thread."""

    def of(self, session: str, agent: str = "") -> LatestCall | None:
        """What became of the latest call of this agent (of the main thread, without one)."""
        return self._fates.get((session, agent))

    def heard(self, event: Event) -> None:
        """Something happened in the gateway."""
        if isinstance(event, CallEnded):
            if event.session is not None and event.model not in _NO_TURN:
                self._ended(event, event.session, event.agent or "")
        elif isinstance(event, AttemptFailed):
            _keep(self._attempts, event.call, event)
            if event.kind in _WALLS:
                _keep(self._walls, _account(event.lane), event)

    def _ended(self, event: CallEnded, session: str, agent: str) -> None:
        key = (session, agent)
        if event.outcome in _ANSWERED:
            # Nearly every call of the gateway comes here.
            if self._attempts:
                self._attempts.pop(event.call, None)
            _keep(self._fates, key, LatestCall(None, self._clock.steady(), event.model, event.tag))
            if not agent and self.on_answer is not None:
                self.on_answer(event)
        elif event.outcome in _HANDED_ON:
            before = self._fates.get(key)
            answered_at = 0.0 if before is None else before.answered_at
            cause = self._cause(event, before)
            _keep(self._fates, key, LatestCall(cause, answered_at, event.model, event.tag))
            is_wall = cause.kind is Kind.ACCOUNT_QUOTA
            if is_wall and not agent and self.on_wall is not None:
                self.on_wall(session, cause)

    def _cause(self, event: CallEnded, before: LatestCall | None) -> DeathCause:
        failed = self._attempts.pop(event.call, None)
        if failed is None and not event.lane and before is not None and before.cause is not None:
            return before.cause  # it asked again, and was told the same again
        now = self._clock.now()
        if failed is None:
            # It was never sent: another call of the same account had met the wall.
            failed = self._walls.get(_account(event.lane))
            if failed is None or (failed.resets_at or event.at) < event.at:
                seen = Observation(Where.HTTP, status=event.status)
                return DeathCause.of(classify(seen, now=now))
        resets_at = failed.resets_at
        when = None if resets_at is None else datetime.fromtimestamp(resets_at, now.tzinfo)
        return DeathCause(Kind(failed.kind), failed.sub, when)


def _account(lane: str) -> str:
    upstream, _, rest = lane.partition("/")
    return f"{upstream}#{rest.rpartition('#')[2]}"


def _keep(kept: OrderedDict[K, V], key: K, value: V) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > _MOST_CALLS:
        kept.popitem(last=False)


_MOST_SESSIONS = 2000
# The gateway, a hook and each attempt of a client that asks again tell of one and the same.
_SAME_STOP_S = 60.0


@dataclass(frozen=True, slots=True)
class ReportedSession:
    """One session of a client."""

    id: str
    cwd: str
    transcript: str
    processes: tuple[int, ...]
    """Those in which it lived when it was last heard of, the nearest first."""


@dataclass(frozen=True, slots=True)
class StoppedSession:
    """A session that died of an API error."""

    session: ReportedSession
    cause: DeathCause
    model: str = ""
    """Which the gateway was last asked for; empty where it was not asked."""
    run: str | None = None
    """The run that its calls are marked with, if any."""


class KnownSessions:
    """Every session that hooks told of."""

    def __init__(self) -> None:
        self._met: OrderedDict[str, ReportedSession] = OrderedDict()
        self._stops: OrderedDict[str, tuple[Kind, float]] = OrderedDict()

    def meet(self, told: HookInput, processes: tuple[int, ...]) -> None:
        """A hook of this session, which is trusted, has told of it."""
        if not told.session_id or not told.cwd:
            return
        known = self._met.get(told.session_id)
        # A sub-agent works where its tools have led it, the session where it was started.
        cwd = told.cwd if known is None else known.cwd
        transcript = told.transcript_path or ("" if known is None else known.transcript)
        self._met[told.session_id] = ReportedSession(told.session_id, cwd, transcript, processes)
        self._met.move_to_end(told.session_id)
        while len(self._met) > _MOST_SESSIONS:
            self._met.popitem(last=False)

    def of(self, session: str) -> ReportedSession | None:
        """What is known of it."""
        return self._met.get(session)

    def is_news(self, session: str, cause: DeathCause, now: float) -> bool:
        """Whether it is not yet known that this has stopped the session; from now on it is."""
        kind, at = self._stops.get(session, (None, 0.0))
        self._stops[session] = (cause.kind, now)
        self._stops.move_to_end(session)
        while len(self._stops) > _MOST_SESSIONS:
            self._stops.popitem(last=False)
        return kind is not cause.kind or now - at > _SAME_STOP_S


# Less than the time limit of the plugin's hooks (clients/plugin.py).
_LATE_S = 2.0
_LOOK_AGAIN_S = 0.05
# What a client's words may say that an API did to an agent; the others are its own or its user's.
_DEADLY = frozenset(
    kind
    for kind, ending in ENDINGS.items()
    if ending in (Terminated.RATE_LIMIT, Terminated.QUOTA, Terminated.OUTAGE, Terminated.REFUSED)
)


@dataclass(frozen=True, slots=True)
class FoundDeath:
    """A sub-agent that died, and what is left of it, as far as that is written."""

    death: Death
    left: DeadAgent | None


class DeathFinder:
    """Asks the hooks' memory, the gateway and the transcript."""

    def __init__(self, deaths: Deaths, fates: LatestCalls, clock: Clock) -> None:
        self._deaths = deaths
        self._fates = fates
        self._clock = clock

    async def find(self, told: HookInput, ended: ReportedEnd) -> FoundDeath | None:
        """The death of an agent that has ended by its client's word; None if it did not die."""
        waits_until = self._clock.monotonic() + _LATE_S
        while True:
            left = await asyncio.to_thread(_left, told, ended.agent)
            cause = self._cause(told.session_id, ended, left)
            is_written = left is not None and left.story.ending is not StoryEnding.CUT
            if cause is None and (is_written or self._is_answered(told.session_id, ended)):
                return None
            # What it had finished may still be on its way to the disk.
            if is_written or self._clock.monotonic() >= waits_until:
                break
            await self._clock.sleep(_LOOK_AGAIN_S)
        return (
            None if cause is None else FoundDeath(Death(told.session_id, ended.agent, cause), left)
        )

    def _is_answered(self, session: str, ended: ReportedEnd) -> bool:
        """Whether its last call was answered, so that what it gave back is its own."""
        fate = self._fates.of(session, ended.agent)
        return fate is not None and fate.cause is None and not ended.failed

    def _cause(self, session: str, ended: ReportedEnd, left: DeadAgent | None) -> DeathCause | None:
        fate, now = self._fates.of(session, ended.agent), self._clock.now()
        handed = None if fate is None else fate.cause
        heard = self._deaths.untold(session, ended.agent)
        by_transcript = _by_transcript(left)
        said = DeathCause.of(classify(Observation(Where.CLI_TEXT, text=ended.words), now=now))
        if handed is not None and (heard or by_transcript or ended.failed or said.kind in _DEADLY):
            return handed
        if heard or by_transcript is not None:
            return heard[0].cause if heard else by_transcript
        return said if ended.failed and said.kind in _DEADLY else None


def _left(told: HookInput, agent: str) -> DeadAgent | None:
    path = told.transcript_of(agent)
    try:
        return None if path is None else read_dead_agent(path)
    except UnreadableError:
        return None  # the client has not written it yet, or writes none


def _by_transcript(left: DeadAgent | None) -> DeathCause | None:
    """What the agent's own transcript says that it died of."""
    if left is None or left.story.ending is not StoryEnding.FAILED:
        return None
    fatal = [each for each in left.story.failures if each.fatal]
    return DeathCause.of(fatal[-1].failure) if fatal else None
