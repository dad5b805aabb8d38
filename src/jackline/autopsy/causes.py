"""Group what stopped agents into causes: the same wall is one cause, however it was printed.

Laws: (1) pure, and independent of the order of the stories; (2) every failed agent is in exactly
one cause, or among the unexplained; (3) an agent's own transcript outweighs what others were told
about it, so the words "no structured output" never hide an API failure.
Not here: what a text means (failures/), counting and spending (report.py), sentences (faces).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from jackline.autopsy.hearsay import error_words, failure_told
from jackline.autopsy.story import AgentStory, Ending, Role, Sighting
from jackline.failures import Failure, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# A text says the minute, a header the second, and clients round either way.
SAME_RESET = timedelta(seconds=90)
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Met:
    """One meeting of one agent with a failure."""

    story: AgentStory
    sighting: Sighting
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
    meetings: list[Met] = field(default_factory=list)

    def meet(self, met: Met) -> None:
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
    meetings: list[Met] = []
    for story in sorted(stories, key=lambda s: (s.session_id, s.agent_id, str(s.path))):
        fatal = what_ended(story, now=now)
        if fatal is None and story.ending is Ending.FAILED:
            judgement.unexplained.append(story)
        meetings += [Met(story, s, ended=s is fatal) for s in story.sightings if _counts(s)]
        if fatal is not None and all(s is not fatal for s in story.sightings):
            meetings.append(Met(story, fatal, ended=True))
    for cause in _walls(meetings):
        (judgement.causes if cause.agents else judgement.survived).append(cause)
    for ranking in (judgement.causes, judgement.survived):
        ranking.sort(key=_rank)
    return judgement


def what_ended(story: AgentStory, *, now: datetime) -> Sighting | None:
    """The failure that ended this agent, or None when nothing did or nobody says what."""
    own = [s for s in story.sightings if _counts(s)]
    fatal = [s for s in own if s.fatal]
    api = [s for s in fatal if s.failure.kind is not Kind.MISSING_STRUCTURED_OUTPUT]
    if story.ending is Ending.FAILED and (api or fatal or own):
        return (api or fatal or own)[-1]
    if story.ending is Ending.CUT and fatal and _at_the_end(story, fatal[-1]):
        return (api or fatal)[-1]
    if story.ending is Ending.FAILED or story.role is not Role.MAIN:
        return _learnt_from_others(story, now=now)
    return None


def _learnt_from_others(story: AgentStory, *, now: datetime) -> Sighting | None:
    """What others were told, where the agent's own transcript is silent.

    A transcript that ends well is believed over hearsay, save for one claim it cannot answer: that
    the structured output, which others waited for, never came.
    """
    for told in reversed(story.told):
        failure = failure_told(told, now=now)
        if failure is None:
            continue
        if story.ending is Ending.FAILED or failure.kind is Kind.MISSING_STRUCTURED_OUTPUT:
            words = error_words(told, [story.label or ""])
            return Sighting(told.at or story.ended_at, failure, words)
    return None


def _counts(sighting: Sighting) -> bool:
    return sighting.failure.kind is not Kind.NOT_A_FAILURE


def _at_the_end(story: AgentStory, sighting: Sighting) -> bool:
    if sighting.at is None or story.ended_at is None:
        return True
    return sighting.at >= story.ended_at - timedelta(seconds=1)


def _walls(meetings: Sequence[Met]) -> list[Cause]:
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


def _best_described_first(met: Met) -> tuple[object, ...]:
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
