"""Group what stopped agents into causes, and measure each: how often, at what cost, how missed.

Rules: (1) pure, and independent of the order of the stories; (2) every failed agent is in exactly
one cause, or among the unexplained; (3) an agent's own transcript outweighs reports about it, so
that "no structured output" never hides an API failure; "unknown" is a valid reason for a missing
output; (4) meetings without a time are counted but not measured; waiting means a pause of half a
minute, or as long as the limit required; (5) only a failure that no repetition cures, and that
reaches beyond its request, has a point after which success was impossible; spending counts as late
only until the reset.
Not here: what a text means (failures/), sentences (sentences.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from jackline.autopsy.agent_reports import error_words, reported_failure
from jackline.failures import Failure, Kind, Scope
from jackline.transcripts.story import AgentStory, Role, SeenFailure, TranscriptEnd

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


# A text says the minute, a header the second, and clients round either way.
SAME_RESET = timedelta(seconds=90)
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Meeting:
    """One meeting of one agent with a failure."""

    story: AgentStory
    sighting: SeenFailure
    ended: bool

    @property
    def at(self) -> datetime | None:
        """When it was met, as far as the transcript says."""
        return self.sighting.at


@dataclass(slots=True)
class Cause:
    """One wall: everyone it stopped, and every meeting with it."""

    failure: Failure
    resets_at: datetime | None = None
    first_at: datetime | None = None
    last_at: datetime | None = None
    agents: list[AgentStory] = field(default_factory=list)
    meetings: list[Meeting] = field(default_factory=list)

    def meet(self, met: Meeting) -> None:
        """Add one meeting; what it knows more, the cause knows from now on."""
        self.meetings.append(met)
        if met.ended:
            self.agents.append(met.story)
        self.resets_at = self.resets_at or met.sighting.failure.resets_at
        if met.at is not None:
            self.first_at = min(self.first_at or met.at, met.at)
            self.last_at = max(self.last_at or met.at, met.at)

    @property
    def status(self) -> int | None:
        """The HTTP status that came with it most often."""
        seen = [m.sighting.status for m in self.meetings if m.sighting.status is not None]
        return max(sorted(set(seen)), key=seen.count) if seen else None


@dataclass(slots=True)
class Judgement:
    """Which causes stopped agents, which were met and survived, and who stopped unexplained."""

    causes: list[Cause] = field(default_factory=list)
    survived: list[Cause] = field(default_factory=list)
    unexplained: list[AgentStory] = field(default_factory=list)


def judge(stories: Iterable[AgentStory], *, now: datetime) -> Judgement:
    """The causes behind all stopped agents, the one that stopped most of them first."""
    judgement = Judgement()
    meetings: list[Meeting] = []
    for story in sorted(stories, key=lambda s: (s.session_id, s.agent_id, str(s.path))):
        fatal = what_ended(story, now=now)
        if fatal is None and story.ending is TranscriptEnd.FAILED:
            judgement.unexplained.append(story)
        meetings += [Meeting(story, s, ended=s is fatal) for s in story.sightings if _counts(s)]
        if fatal is not None and all(s is not fatal for s in story.sightings):
            meetings.append(Meeting(story, fatal, ended=True))
    for cause in _walls(meetings):
        (judgement.causes if cause.agents else judgement.survived).append(cause)
    for ranking in (judgement.causes, judgement.survived):
        ranking.sort(key=_rank)
    return judgement


def what_ended(story: AgentStory, *, now: datetime) -> SeenFailure | None:
    """The failure that ended this agent, or None when nothing did or nobody says what."""
    own = [s for s in story.sightings if _counts(s)]
    fatal = [s for s in own if s.fatal]
    api = [s for s in fatal if s.failure.kind is not Kind.MISSING_STRUCTURED_OUTPUT]
    if story.ending is TranscriptEnd.FAILED and (api or fatal or own):
        return (api or fatal or own)[-1]
    if story.ending is TranscriptEnd.CUT and fatal and _at_the_end(story, fatal[-1]):
        return (api or fatal)[-1]
    if story.ending is TranscriptEnd.FAILED or story.role is not Role.MAIN:
        return _learnt_from_others(story, now=now)
    return None


def _learnt_from_others(story: AgentStory, *, now: datetime) -> SeenFailure | None:
    """What others were told, where the agent's own transcript is silent.

    A transcript that ends well is believed over hearsay, save for one claim it cannot answer: that
    the structured output, which others waited for, never came.
    """
    for told in reversed(story.told):
        failure = reported_failure(told, now=now)
        if failure is None:
            continue
        if story.ending is TranscriptEnd.FAILED or failure.kind is Kind.MISSING_STRUCTURED_OUTPUT:
            words = error_words(told, [story.label or ""])
            return SeenFailure(told.at or story.ended_at, failure, words)
    return None


def _counts(sighting: SeenFailure) -> bool:
    return sighting.failure.kind is not Kind.NOT_A_FAILURE


def _at_the_end(story: AgentStory, sighting: SeenFailure) -> bool:
    if sighting.at is None or story.ended_at is None:
        return True
    return sighting.at >= story.ended_at - timedelta(seconds=1)


def _walls(meetings: Sequence[Meeting]) -> list[Cause]:
    """Each meeting goes to the wall it agrees with, the best described meetings founding them."""
    walls: list[Cause] = []
    for met in sorted(meetings, key=_best_described_first):
        failure = met.sighting.failure
        fitting = [w for w in walls if _same_wall(w, failure)]
        wall = min(fitting, key=lambda w: _distance(w, met.at), default=None)
        if wall is None:
            wall = Cause(failure)
            walls.append(wall)
        wall.meet(met)
    for wall in walls:
        wall.meetings.sort(key=lambda m: (m.at or LONG_AGO, m.story.agent_id))
        wall.agents.sort(key=lambda s: (s.ended_at or LONG_AGO, s.session_id, s.agent_id))
    return walls


def _best_described_first(met: Meeting) -> tuple[object, ...]:
    failure = met.sighting.failure
    return (
        failure.sub is None,
        failure.resets_at is None,
        met.at or LONG_AGO,
        failure.resets_at or LONG_AGO,
        failure.sub or "",
        met.story.session_id,
        met.story.agent_id,
        met.sighting.text,
    )


def _same_wall(wall: Cause, failure: Failure) -> bool:
    known = wall.failure
    if (known.kind, known.scope) != (failure.kind, failure.scope):
        return False
    if known.sub is not None and failure.sub is not None and known.sub != failure.sub:
        return False
    # Where the same request can succeed by itself, each answer names its own next moment: those
    # moments do not tell walls apart.
    if failure.retry_same or wall.resets_at is None or failure.resets_at is None:
        return True
    return abs(wall.resets_at - failure.resets_at) <= SAME_RESET


def _distance(wall: Cause, at: datetime | None) -> timedelta:
    if at is None or wall.first_at is None or wall.last_at is None:
        return timedelta(0)
    return max(wall.first_at - at, at - wall.last_at, timedelta(0))


def _rank(cause: Cause) -> tuple[object, ...]:
    failure = cause.failure
    return (
        -len(cause.agents),
        cause.first_at or LONG_AGO,
        failure.kind,
        failure.sub or "",
        failure.scope,
        cause.resets_at or LONG_AGO,
    )


class Miss(StrEnum):
    """In which way the structured output did not come."""

    PROSE = "the model ended in prose and never called the tool"
    INVALID = "the model called the tool, but never with valid output"
    TURN_LIMIT = "the turn limit came first"
    NOT_OFFERED = "the tool was not offered to the model"
    UNKNOWN = "the transcript does not show why"


_BY_SUB = {
    "max_turns": Miss.TURN_LIMIT,
    "retries_exhausted": Miss.INVALID,
    "invalid": Miss.INVALID,
    "not_offered": Miss.NOT_OFFERED,
}


def how_missed(story: AgentStory, failure: Failure) -> Miss:
    """The way this agent missed its structured output."""
    known = _BY_SUB.get(failure.sub or "")
    if known is not None:
        return known
    ended_in_words = story.ending is TranscriptEnd.FINISHED or bool(story.last_words)
    return Miss.PROSE if ended_in_words else Miss.UNKNOWN


A_REAL_PAUSE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class RetryPattern:
    """How a wall was run into: `count` meetings from `first` to `last`."""

    count: int
    first: datetime | None
    last: datetime | None
    median_interval: timedelta | None
    longest_pause: timedelta | None
    waited: bool

    @property
    def span(self) -> timedelta | None:
        """From the first meeting to the last."""
        if self.first is None or self.last is None:
            return None
        return self.last - self.first


def retry_pattern_of(cause: Cause) -> RetryPattern:
    """The rhythm of all meetings with one wall, over all agents."""
    timed = [(m.at, m) for m in cause.meetings if m.at is not None]
    moments = [at for at, _ in timed]
    pauses = [later - earlier for earlier, later in pairwise(moments)]
    asked = [m.sighting.failure.wait_from(at) for at, m in timed]
    return RetryPattern(
        count=len(cause.meetings),
        first=moments[0] if moments else None,
        last=moments[-1] if moments else None,
        median_interval=_middle(pauses),
        longest_pause=max(pauses, default=None),
        waited=any(
            pause >= A_REAL_PAUSE or timedelta(0) < wait <= pause
            for pause, wait in zip(pauses, asked, strict=False)
        ),
    )


def _middle(pauses: list[timedelta]) -> timedelta | None:
    if not pauses:
        return None
    ordered, half = sorted(pauses), len(pauses) // 2
    return ordered[half] if len(pauses) % 2 else (ordered[half - 1] + ordered[half]) / 2


@dataclass(frozen=True, slots=True)
class Spending:
    """Tokens around the point of no return, and agents started in vain after it."""

    point: datetime
    before: int
    after: int
    started_after: int


def point_of_no_return(cause: Cause) -> datetime | None:
    """The first refusal, where repeating could not help anyone behind the same wall."""
    failure = cause.failure
    if failure.retry_same or failure.scope in {Scope.REQUEST, Scope.CLIENT}:
        return None
    return cause.first_at


def spenders(stories: Sequence[AgentStory]) -> list[AgentStory]:
    """Those whose spending is told: the agents under a main session, or it alone without any."""
    agents = [story for story in stories if story.role is not Role.MAIN]
    return agents or list(stories)


def spending_around(cause: Cause, stories: Sequence[AgentStory]) -> Spending | None:
    """What the agents of its sessions spent before and after success was impossible, if it was."""
    point = point_of_no_return(cause)
    if point is None:
        return None
    start = point.timestamp()
    until = float("inf") if cause.resets_at is None else cause.resets_at.timestamp()
    before = after = started = 0
    # Other sessions may run on other accounts: only those that met the wall are known to face it.
    facing = {met.story.session_id for met in cause.meetings}
    for story in spenders([story for story in stories if story.session_id in facing]):
        for second, tokens in story.spent.items():
            # Within the second of the point nobody can tell; "after" stays a lower bound.
            if second <= start:
                before += tokens
            elif second < until:
                after += tokens
        begun = story.started_at
        started += begun is not None and start < begun.timestamp() < until
    return Spending(point, before, after, started)
