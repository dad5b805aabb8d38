"""Find out which sub-agents and sessions died of what, and remember it until it is reported.

Rules: (1) evidence of a death is its client's hook, its own transcript, or the client's report of
its end if the gateway or the client's own numbers agree; a text that only looks like an error is
none; (2) the gateway's record comes first: the latest call of an agent counts, and an answer takes
an earlier error back; an error that was passed on is not yet a death, since clients retry; (3) each
death is reported once; an agent that was resumed can die again; (4) a transcript that is not
written yet is waited for, but never longer than the hooks wait; files are read off the event loop;
(5) of sessions only what a trusted hook reported is remembered; (6) everything is bounded, the
oldest entries go first.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Self, TypeVar

from jackline.agents.outcome import Ending
from jackline.agents.runner import ENDINGS
from jackline.clock import Clock
from jackline.errors import UnreadableError
from jackline.events import AttemptFailed, CallEnded, Event
from jackline.failures import Failure, Kind, Observation, Where, classify
from jackline.failures.sentences import moment_in_words, name_of_kind
from jackline.hooks.hook_input import HookInput, ReportedEnd
from jackline.lane_id import Payer
from jackline.transcripts.saved_conversation import DeadAgent, read_dead_agent
from jackline.transcripts.story import TranscriptEnd

_MOST_LOST_CALLS = 3
_LONGEST_TEXT = 200
_MOST_AGENTS = 2000
_MOST_CALLS = 5000
# One death is reported in several ways, at most the start of a process apart.
_SAME_DEATH_S = 10.0
# The gateway, a hook and each retry of a client report one and the same stop.
_SAME_STOP_S = 60.0
# Less than the time limit of the plugin's hooks (clients/plugin.py).
_LATE_S = 2.0
_LOOK_AGAIN_S = 0.05
# Calls that are no agent's turn have what they request in the place of a model.
_NO_TURN = frozenset(("count_tokens", "models"))
_WALLS = frozenset((Kind.ACCOUNT_QUOTA.value, Kind.BILLING.value))
# What an API can do to an agent, by a client's text; other ends are its own or its user's.
_DEADLY = frozenset(
    kind
    for kind, ending in ENDINGS.items()
    if ending in (Ending.RATE_LIMIT, Ending.QUOTA, Ending.OUTAGE, Ending.REFUSED)
)

K = TypeVar("K")
V = TypeVar("V")


def _put(entries: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    """Set the newest entry, and drop the oldest ones beyond `most`."""
    entries[key] = value
    entries.move_to_end(key)
    while len(entries) > most:
        entries.popitem(last=False)


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
        """A noun phrase for the middle of a sentence."""
        return name_of_kind(self.kind, self.sub)


@dataclass(frozen=True, slots=True)
class Death:
    """One sub-agent's end, with its own transcript as far as that is written."""

    session: str
    agent: str
    cause: DeathCause
    transcript: DeadAgent | None = None

    def text(self, now: datetime) -> str:
        """What its parent has to know."""
        resets, transcript = self.cause.resets_at, self.transcript
        until = f", resets {moment_in_words(resets, now)}" if resets is not None else ""
        ending = ENDINGS[self.cause.kind].value
        first = (
            f"Sub-agent {self.agent} did not finish: terminated_by {ending} ({self.cause.name}"
            f"{until}). What it returned is an error text, not a result."
        )
        parts = [first]
        if transcript is not None and (turns := transcript.turns):
            calls = sum(len(turn.calls) for turn in turns)
            parts.append(f"Before that it had finished {len(turns)} turns with {calls} tool calls.")
        if transcript is not None and transcript.last_words:
            parts.append(f"Its last own text: {transcript.last_words[:_LONGEST_TEXT]}")
        if transcript is not None and transcript.lost:
            names = ", ".join(call.name for call in transcript.lost[:_MOST_LOST_CALLS])
            parts.append(f"Calls that may or may not have run: {names}.")
        when = "after the reset" if resets is not None and resets > now else "now"
        parts.append(
            f"Do not start it again from the beginning: {when}, call the Jackline tool `agent` with"
            f' continue_from_task_id="{self.agent}", which goes on after its last finished turn.'
        )
        return " ".join(parts)


class Deaths:
    """The deaths that are not reported yet, and when the others were reported."""

    def __init__(self) -> None:
        self._unreported: OrderedDict[tuple[str, str], Death] = OrderedDict()
        self._reported: OrderedDict[tuple[str, str], float] = OrderedDict()

    def add(self, death: Death, now: float) -> None:
        """A sub-agent has died."""
        key = (death.session, death.agent)
        if now - self._reported.get(key, -_SAME_DEATH_S) < _SAME_DEATH_S:
            return  # its parent knows it already
        self._reported.pop(key, None)
        _put(self._unreported, key, death, _MOST_AGENTS)

    def remove(self, session: str, agent: str) -> None:
        """A sub-agent goes on after all."""
        self._unreported.pop((session, agent), None)
        self._reported.pop((session, agent), None)

    def unreported(self, session: str, agent: str | None = None) -> list[Death]:
        """The deaths of this session, or of this agent, that its parent does not know."""
        return [
            death
            for key, death in self._unreported.items()
            if key[0] == session and agent in (None, key[1])
        ]

    def reported_at(self, session: str, agent: str) -> float | None:
        """When it was reported; None if it was not, or the agent went on since."""
        return self._reported.get((session, agent))

    def mark_reported(self, death: Death, now: float) -> None:
        """From now on its parent knows."""
        key = (death.session, death.agent)
        self._unreported.pop(key, None)
        _put(self._reported, key, now, _MOST_AGENTS)


class LatestCall(NamedTuple):
    """How an agent's latest call ended; `cause` is None when it was answered."""

    cause: DeathCause | None
    answered_at: float
    """When one of its calls was last answered, by the clock's steady time; zero if none was."""
    model: str
    tag: str | None
    """The tag of the run that the agent belongs to, if any."""


class LatestCalls:
    """The latest call of every agent, from the gateway's events."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls: OrderedDict[tuple[str, str], LatestCall] = OrderedDict()
        self._attempts: OrderedDict[str, AttemptFailed] = OrderedDict()
        self._walls: OrderedDict[Payer, AttemptFailed] = OrderedDict()
        self.on_wall: Callable[[str, DeathCause], None] | None = None
        """Called with a quota wall that was passed to a session's main thread."""
        self.on_answer: Callable[[CallEnded], None] | None = None
        """Called with each answer to a session's main thread."""

    def of(self, session: str, agent: str = "") -> LatestCall | None:
        """The latest call of this agent, or of the main thread."""
        return self._calls.get((session, agent))

    def on_event(self, event: Event) -> None:
        """Something happened in the gateway."""
        if isinstance(event, CallEnded):
            if event.session is not None and event.model not in _NO_TURN:
                self._call_ended(event, event.session, event.agent or "")
        elif isinstance(event, AttemptFailed):
            _put(self._attempts, event.call, event, _MOST_CALLS)
            if event.kind in _WALLS:
                _put(self._walls, event.lane.payer, event, _MOST_CALLS)

    def _call_ended(self, event: CallEnded, session: str, agent: str) -> None:
        key = (session, agent)
        if event.outcome in ("answered", "shortened"):
            # Nearly every call of the gateway comes here.
            if self._attempts:
                self._attempts.pop(event.call, None)
            call = LatestCall(None, self._clock.steady(), event.model, event.tag)
            _put(self._calls, key, call, _MOST_CALLS)
            if not agent and self.on_answer is not None:
                self.on_answer(event)
        elif event.outcome in ("refused", "broken"):
            before = self._calls.get(key)
            answered_at = 0.0 if before is None else before.answered_at
            cause = self._cause(event, before)
            call = LatestCall(cause, answered_at, event.model, event.tag)
            _put(self._calls, key, call, _MOST_CALLS)
            is_wall = cause.kind is Kind.ACCOUNT_QUOTA
            if is_wall and not agent and self.on_wall is not None:
                self.on_wall(session, cause)

    def _cause(self, event: CallEnded, before: LatestCall | None) -> DeathCause:
        failed = self._attempts.pop(event.call, None)
        if failed is None and not event.lane and before is not None and before.cause is not None:
            return before.cause  # it asked again, and was refused for the same reason
        now = self._clock.now()
        if failed is None:
            # It was never sent: another call of the same account had met the wall.
            failed = None if event.lane is None else self._walls.get(event.lane.payer)
            if failed is None or (failed.resets_at or event.at) < event.at:
                seen = Observation(Where.HTTP, status=event.status)
                return DeathCause.of(classify(seen, now=now))
        resets_at = failed.resets_at
        when = None if resets_at is None else datetime.fromtimestamp(resets_at, now.tzinfo)
        return DeathCause(Kind(failed.kind), failed.sub, when)


@dataclass(frozen=True, slots=True)
class ReportedSession:
    """One session of a client, as its hooks report it."""

    id: str
    cwd: str
    transcript: str
    processes: tuple[int, ...]
    """The processes above its latest hook, the nearest first."""
    mode: str = ""
    """Its latest permission mode, such as `plan`; empty where no hook named one."""


@dataclass(frozen=True, slots=True)
class StoppedSession:
    """A session that died of an API error."""

    session: ReportedSession
    cause: DeathCause
    model: str = ""
    """The model of its latest call; empty without one."""
    run: str | None = None
    """The tag of the run that its calls belong to, if any."""


class KnownSessions:
    """Every session that a trusted hook reported."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, ReportedSession] = OrderedDict()
        self._stops: OrderedDict[str, tuple[Kind, float]] = OrderedDict()

    def add(self, hook: HookInput, processes: tuple[int, ...]) -> None:
        """A trusted hook of this session came."""
        if not hook.session_id or not hook.cwd:
            return
        known = self._sessions.get(hook.session_id)
        # A sub-agent works where its tools have led it, the session where it was started.
        cwd = hook.cwd if known is None else known.cwd
        transcript = hook.transcript_path or ("" if known is None else known.transcript)
        mode = "" if known is None else known.mode
        if hook.agent_id is None:  # a sub-agent may have one of its own
            mode = hook.permission_mode or mode
        session = ReportedSession(hook.session_id, cwd, transcript, processes, mode)
        _put(self._sessions, hook.session_id, session, _MOST_AGENTS)

    def of(self, session: str) -> ReportedSession | None:
        """The session with this id, if it is known."""
        return self._sessions.get(session)

    def is_new_stop(self, session: str, cause: DeathCause, now: float) -> bool:
        """Whether this stop of the session is not known yet; from now on it is."""
        kind, at = self._stops.get(session, (None, 0.0))
        _put(self._stops, session, (cause.kind, now), _MOST_AGENTS)
        return kind is not cause.kind or now - at > _SAME_STOP_S


class DeathFinder:
    """Decides whether an agent died, from the hooks, the gateway and its transcript."""

    def __init__(self, deaths: Deaths, calls: LatestCalls, clock: Clock) -> None:
        self._deaths = deaths
        self._calls = calls
        self._clock = clock

    async def find(self, hook: HookInput, ended: ReportedEnd) -> Death | None:
        """The death of an agent whose end its client reports; None if it did not die."""
        session, deadline = hook.session_id, self._clock.monotonic() + _LATE_S
        while True:
            transcript = await asyncio.to_thread(self._read_transcript, hook, ended.agent)
            cause = self._cause(session, ended, transcript)
            is_written = transcript is not None and transcript.story.ending is not TranscriptEnd.CUT
            if cause is None:
                # An answer to its last call shows that the result is its own.
                call = self._calls.of(session, ended.agent)
                answered = call is not None and call.cause is None and not ended.failed
                if is_written or answered:
                    return None
            # What it had finished may not be on the disk yet.
            if is_written or self._clock.monotonic() >= deadline:
                break
            await self._clock.sleep(_LOOK_AGAIN_S)
        return None if cause is None else Death(session, ended.agent, cause, transcript)

    def _read_transcript(self, hook: HookInput, agent: str) -> DeadAgent | None:
        path = hook.transcript_of(agent)
        try:
            return None if path is None else read_dead_agent(path)
        except UnreadableError:
            return None  # the client has not written it yet, or writes none

    def _cause(
        self, session: str, ended: ReportedEnd, transcript: DeadAgent | None
    ) -> DeathCause | None:
        call, now = self._calls.of(session, ended.agent), self._clock.now()
        by_gateway = None if call is None else call.cause
        by_hook = self._deaths.unreported(session, ended.agent)
        by_text = DeathCause.of(classify(Observation(Where.CLI_TEXT, text=ended.text), now=now))
        by_transcript = None
        if transcript is not None and transcript.story.ending is TranscriptEnd.FAILED:
            fatal = [seen for seen in transcript.story.failures if seen.fatal]
            by_transcript = DeathCause.of(fatal[-1].failure) if fatal else None
        is_deadly = by_text.kind in _DEADLY
        if by_gateway and (by_hook or by_transcript or ended.failed or is_deadly):
            return by_gateway
        if by_hook or by_transcript is not None:
            return by_hook[0].cause if by_hook else by_transcript
        return by_text if ended.failed and is_deadly else None
