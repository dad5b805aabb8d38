"""Group what stopped agents into causes, and measure each: how often, at what cost, how missed.

Rules: (1) pure, and independent of the order of the stories; (2) every failed agent is in exactly
one cause, or among the unexplained; (3) an agent's own transcript outweighs reports about it, so
that "no structured output" never hides an API failure; "unknown" is a valid reason for a missing
output; (4) occurrences without a time are counted but not measured; waiting means a pause of half a
minute, or as long as the limit required; (5) only a failure that no repetition cures, and that
reaches beyond its request, has a point after which success was impossible; spending counts as late
only until the reset.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from jackline.autopsy.agent_reports import error_text, reported_failure
from jackline.autopsy.figures import clock, counted, duration, times
from jackline.failures import Failure, Kind, Scope
from jackline.failures.sentences import name_of
from jackline.transcripts.story import AgentStory, Role, SeenFailure, TranscriptEnd

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# A text gives the minute, a header the second, and clients round either way.
_SAME_RESET = timedelta(seconds=90)
_REAL_PAUSE = timedelta(seconds=30)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One failure of one agent; `ended` is True for the one that stopped it."""

    story: AgentStory
    seen: SeenFailure
    ended: bool

    def sort_key(self) -> tuple[object, ...]:
        """Sorts the best described occurrences first."""
        failure = self.seen.failure
        return (
            failure.sub is None,
            failure.resets_at is None,
            self.seen.at or _EPOCH,
            failure.resets_at or _EPOCH,
            failure.sub or "",
            self.story.session_id,
            self.story.agent_id,
            self.seen.text,
        )


@dataclass(slots=True)
class Cause:
    """One limit or outage: every agent it stopped, and every time it occurred."""

    failure: Failure
    resets_at: datetime | None = None
    first_at: datetime | None = None
    last_at: datetime | None = None
    agents: list[AgentStory] = field(default_factory=list)
    occurrences: list[Occurrence] = field(default_factory=list)

    def add(self, occurrence: Occurrence) -> None:
        """Count one occurrence, and learn the reset and the times from it."""
        self.occurrences.append(occurrence)
        if occurrence.ended:
            self.agents.append(occurrence.story)
        self.resets_at = self.resets_at or occurrence.seen.failure.resets_at
        at = occurrence.seen.at
        if at is not None:
            self.first_at = min(self.first_at or at, at)
            self.last_at = max(self.last_at or at, at)

    def matches(self, failure: Failure) -> bool:
        """Whether this failure can have the same cause."""
        known = self.failure
        if (known.kind, known.scope) != (failure.kind, failure.scope):
            return False
        if known.sub is not None and failure.sub is not None and known.sub != failure.sub:
            return False
        # Where the same request can succeed by itself, each answer names its own next moment:
        # those moments do not separate causes.
        if failure.retry_same or self.resets_at is None or failure.resets_at is None:
            return True
        return abs(self.resets_at - failure.resets_at) <= _SAME_RESET

    def distance(self, at: datetime | None) -> timedelta:
        """How far a moment is from the time in which the cause was seen."""
        if at is None or self.first_at is None or self.last_at is None:
            return timedelta(0)
        return max(self.first_at - at, at - self.last_at, timedelta(0))

    def rank(self) -> tuple[object, ...]:
        """Sorts the cause that stopped most agents first."""
        return (
            -len(self.agents),
            self.first_at or _EPOCH,
            self.failure.kind,
            self.failure.sub or "",
            self.failure.scope,
            self.resets_at or _EPOCH,
        )

    @property
    def name(self) -> str:
        """`the account's session limit (HTTP 429)`."""
        return name_of(self.failure) + ("" if self.status is None else f" (HTTP {self.status})")

    def in_own_zone(self, moment: datetime) -> datetime:
        """The moment in the zone of the reset, so that times can be compared."""
        return moment if self.resets_at is None else moment.astimezone(self.resets_at.tzinfo)

    @property
    def status(self) -> int | None:
        """The most frequent HTTP status."""
        codes = [o.seen.status for o in self.occurrences if o.seen.status is not None]
        return max(sorted(set(codes)), key=codes.count) if codes else None


@dataclass(slots=True)
class Judgement:
    """The causes that stopped agents, those that all agents survived, and unexplained failures."""

    causes: list[Cause] = field(default_factory=list)
    survived: list[Cause] = field(default_factory=list)
    unexplained: list[AgentStory] = field(default_factory=list)

    def verdict(self, stories: Sequence[AgentStory], unexplained: int, silent: int) -> str:
        """What stopped how many agents, and until when; or that nothing did."""
        total = len(stories)
        if not self.causes:
            return _verdict_without_cause(total, unexplained, silent)
        stopped = sum(len(cause.agents) for cause in self.causes)
        if total == 1:
            subject = "The session was" if stories[0].role is Role.MAIN else "The agent was"
        elif stopped == total:
            subject = "Both agents were" if total == 2 else f"All {total:,} agents were"
        else:
            subject = f"{stopped:,} of {total:,} agents {'was' if stopped == 1 else 'were'}"
        first = self.causes[0]
        phrase = first.name
        if first.resets_at is not None and not first.failure.retry_same:
            phrase += f", which resets {clock(first.resets_at, beside=first.first_at)}"
        if len(self.causes) == 1:
            return f"{subject} stopped by one cause: {phrase}."
        return (
            f"{subject} stopped by {len(self.causes)} causes; the first, {phrase}, "
            f"stopped {counted(len(first.agents), 'agent')}."
        )


def _verdict_without_cause(total: int, unexplained: int, silent: int) -> str:
    if total == 0:
        return "No agent was found in what was read."
    if not unexplained and not silent:
        who = "the one agent" if total == 1 else "both agents" if total == 2 else f"all {total:,}"
        return f"Nothing wrong was found: {who} finished."
    parts = []
    if total > 1:
        parts.append(f"{total - unexplained - silent:,} of {counted(total, 'agent')} finished")
    for count, how in (
        (unexplained, "failed without a stated reason"),
        (silent, "stopped silently"),
    ):
        if count:
            parts.append(f"{count:,} {how}" if total > 1 else f"the one agent {how}")
    return f"No cause was found: {', '.join(parts)}."


def judge(stories: Iterable[AgentStory], *, now: datetime) -> Judgement:
    """The causes behind all stopped agents, the one that stopped most of them first."""
    judgement = Judgement()
    occurrences: list[Occurrence] = []
    for story in sorted(stories, key=lambda s: (s.session_id, s.agent_id, str(s.path))):
        own = [s for s in story.failures if s.failure.kind is not Kind.NOT_A_FAILURE]
        fatal = _fatal_failure(story, own, now=now)
        if fatal is None and story.ending is TranscriptEnd.FAILED:
            judgement.unexplained.append(story)
        occurrences += [Occurrence(story, s, ended=s is fatal) for s in own]
        if fatal is not None and all(s is not fatal for s in story.failures):
            occurrences.append(Occurrence(story, fatal, ended=True))
    causes: list[Cause] = []
    for occurrence in sorted(occurrences, key=Occurrence.sort_key):
        failure, at = occurrence.seen.failure, occurrence.seen.at
        matching = [cause for cause in causes if cause.matches(failure)]
        cause = min(matching, key=lambda c: c.distance(at), default=None)
        if cause is None:
            cause = Cause(failure)
            causes.append(cause)
        cause.add(occurrence)
    for cause in sorted(causes, key=Cause.rank):
        cause.occurrences.sort(key=lambda o: (o.seen.at or _EPOCH, o.story.agent_id))
        cause.agents.sort(key=lambda s: (s.ended_at or _EPOCH, s.session_id, s.agent_id))
        (judgement.causes if cause.agents else judgement.survived).append(cause)
    return judgement


def _fatal_failure(
    story: AgentStory, own: list[SeenFailure], *, now: datetime
) -> SeenFailure | None:
    """The failure that ended this agent, or None when nothing did or nothing says what."""
    fatal = [s for s in own if s.fatal]
    api = [s for s in fatal if s.failure.kind is not Kind.MISSING_STRUCTURED_OUTPUT]
    failed = story.ending is TranscriptEnd.FAILED
    if failed and own:
        return (api or fatal or own)[-1]
    if story.ending is TranscriptEnd.CUT and fatal:
        at, ended_at = fatal[-1].at, story.ended_at
        if at is None or ended_at is None or at >= ended_at - timedelta(seconds=1):
            return (api or fatal)[-1]
    if story.role is Role.MAIN and not failed:
        return None
    # The transcript is silent. One that ends well outweighs reports by others, except for the one
    # claim that it cannot answer: that the structured output never came.
    for report in reversed(story.reports):
        failure = reported_failure(report, now=now)
        if failure is not None and (failed or failure.kind is Kind.MISSING_STRUCTURED_OUTPUT):
            text = error_text(report, [story.label or ""])
            return SeenFailure(report.at or story.ended_at, failure, text)
    return None


class Miss(StrEnum):
    """Why the structured output is missing."""

    PROSE = "the model ended in prose and never called the tool"
    INVALID = "the model called the tool, but never with valid output"
    TURN_LIMIT = "the turn limit came first"
    NOT_OFFERED = "the tool was not offered to the model"
    UNKNOWN = "the transcript does not show why"

    @classmethod
    def of(cls, occurrence: Occurrence) -> Miss:
        """Why this agent's structured output is missing."""
        by_sub = {
            "max_turns": cls.TURN_LIMIT,
            "retries_exhausted": cls.INVALID,
            "invalid": cls.INVALID,
            "not_offered": cls.NOT_OFFERED,
        }
        story = occurrence.story
        in_prose = story.ending is TranscriptEnd.FINISHED or bool(story.last_words)
        default = cls.PROSE if in_prose else cls.UNKNOWN
        return by_sub.get(occurrence.seen.failure.sub or "", default)


@dataclass(frozen=True, slots=True)
class RetryPattern:
    """How often and how fast a cause occurred, over all agents."""

    count: int
    first: datetime | None
    last: datetime | None
    median_interval: timedelta | None
    longest_pause: timedelta | None
    waited: bool

    @classmethod
    def of(cls, cause: Cause) -> RetryPattern:
        """The pattern of all occurrences of one cause."""
        timed = [(o.seen.at, o.seen.failure) for o in cause.occurrences if o.seen.at is not None]
        moments = [at for at, _ in timed]
        pauses = [later - earlier for earlier, later in pairwise(moments)]
        required = [failure.wait_from(at) for at, failure in timed]
        ordered, count = sorted(pauses), len(pauses)
        return cls(
            count=len(cause.occurrences),
            first=moments[0] if moments else None,
            last=moments[-1] if moments else None,
            median_interval=(
                (ordered[(count - 1) // 2] + ordered[count // 2]) / 2 if ordered else None
            ),
            longest_pause=max(pauses, default=None),
            waited=any(
                pause >= _REAL_PAUSE or timedelta(0) < wait <= pause
                for pause, wait in zip(pauses, required, strict=False)
            ),
        )

    @property
    def span(self) -> timedelta | None:
        """From the first occurrence to the last."""
        return None if self.first is None or self.last is None else self.last - self.first

    def __str__(self) -> str:
        """`It occurred 37 times in 34.5 s, every 0.96 s. Nothing waited: …`."""
        text = f"It occurred {times(self.count)}"
        if self.span is None or self.median_interval is None or self.longest_pause is None:
            return f"{text}."
        text += f" in {duration(self.span)}"
        if self.count > 2:
            text += f", every {duration(self.median_interval)}"
        longest = f"the longest pause was {duration(self.longest_pause)}"
        return f"{text}. {'Something' if self.waited else 'Nothing'} waited: {longest}."


@dataclass(frozen=True, slots=True)
class Spending:
    """Tokens spent before and after the first refusal, and agents started in vain after it."""

    point: datetime
    before: int
    after: int
    started_after: int

    @classmethod
    def around(cls, cause: Cause, stories: Sequence[AgentStory]) -> Spending | None:
        """What the affected sessions spent; None where a later request could still succeed."""
        point = cause.first_at
        failure = cause.failure
        own_fault = failure.scope in {Scope.REQUEST, Scope.CLIENT}
        if point is None or failure.retry_same or own_fault:
            return None
        start = point.timestamp()
        until = float("inf") if cause.resets_at is None else cause.resets_at.timestamp()
        before = after = started = 0
        # Other sessions may use other accounts: only those that met the cause are counted.
        affected = {o.story.session_id for o in cause.occurrences}
        for story in spenders([story for story in stories if story.session_id in affected]):
            for second, tokens in story.spent.items():
                # The order within the second of the refusal is unknown; "after" is a lower bound.
                if second <= start:
                    before += tokens
                elif second < until:
                    after += tokens
            begun = story.started_at
            started += begun is not None and start < begun.timestamp() < until
        return cls(point, before, after, started)


def spenders(stories: Sequence[AgentStory]) -> list[AgentStory]:
    """The agents below main sessions; without any, the main sessions themselves."""
    agents = [story for story in stories if story.role is not Role.MAIN]
    return agents or list(stories)
