"""The whole answer of `jackline why` in one value, from which every rendering is made.

Rules: (1) pure: stories and the time are arguments; (2) prompts and answers are left out unless the
user wants them, so that no rendering can show them by mistake; (3) counts add up: every agent has
one fate.
Not here: reading (transcripts/), layout (text_report.py, json_report.py, html_report.py).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from jackline.autopsy.agent_reports import ReportRow, report_rows
from jackline.autopsy.causes import (
    Cause,
    Judgement,
    Miss,
    RetryPattern,
    Spending,
    how_missed,
    judge,
    retry_pattern_of,
    spenders,
    spending_around,
)
from jackline.autopsy.lapsed_caches import LapsedWait
from jackline.autopsy.next_steps import ResumeOption, resume_options, what_to_do
from jackline.autopsy.sentences import cause_name, quiet_sentence, stopped_sentence
from jackline.failures import Kind
from jackline.transcripts.story import AgentStory, ReadProblem, Role, TranscriptEnd, TranscriptSet

if TYPE_CHECKING:
    from collections.abc import Sequence

# A transcript that grew this recently may belong to an agent that is still at work.
STILL_WARM = timedelta(minutes=5)


class Fate(StrEnum):
    """What became of an agent."""

    FINISHED = "finished"
    STOPPED = "stopped"
    UNEXPLAINED = "failed"
    CUT = "cut off"
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class AgentFate:
    """One agent and what became of it; `cause` counts from 1 in the order of `Report.causes`."""

    story: AgentStory
    fate: Fate
    cause: int | None
    label: str | None
    last_words: str | None


@dataclass(frozen=True, slots=True)
class CauseReport:
    """Everything to be said about one cause."""

    rank: int
    cause: Cause
    name: str
    texts: tuple[tuple[str, int], ...]
    rhythm: RetryPattern
    spending: Spending | None
    told: tuple[ReportRow, ...]
    misses: tuple[tuple[Miss, int], ...]
    advice: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WhyReport:
    """The answer: a verdict, its causes, everyone's fate, and what could not be read."""

    verdict: str
    now: datetime
    causes: tuple[CauseReport, ...]
    survived: tuple[CauseReport, ...]
    agents: tuple[AgentFate, ...]
    told_to_user: tuple[ReportRow, ...]
    ways: tuple[ResumeOption, ...]
    troubles: tuple[ReadProblem, ...]
    files_read: int
    bytes_read: int
    synthetic: bool = False
    lapsed_waits: tuple[LapsedWait, ...] = ()
    """Calls of these sessions that a gateway held until their prompt caches had lapsed."""

    def having(self, *fates: Fate) -> tuple[AgentFate, ...]:
        """The agents with one of these fates."""
        return tuple(agent for agent in self.agents if agent.fate in fates)

    @property
    def tokens(self) -> int:
        """All tokens of the spenders; the truth is at least this."""
        return sum(story.tokens for story in spenders([agent.story for agent in self.agents]))

    @property
    def main_tokens(self) -> int:
        """What main sessions spent themselves, where their agents are counted apart from them."""
        return sum(agent.story.tokens for agent in self.agents) - self.tokens


def build(
    evidence: TranscriptSet,
    *,
    now: datetime,
    show_content: bool = False,
    synthetic: bool = False,
    waits: Sequence[LapsedWait] = (),
) -> WhyReport:
    """The report on everything that was read; `waits` is what a gateway's journal adds to it."""
    stories = sorted(evidence.stories, key=_seating)
    judgement = judge(stories, now=now)
    agents = _fates(stories, judgement, now=now, show_content=show_content)
    walled = [(story, cause.resets_at) for cause in judgement.causes for story in cause.agents]
    struck = {story.session_id for story, _ in walled}
    others = [(a.story, None) for a in agents if a.fate in {Fate.CUT, Fate.UNEXPLAINED}]
    return WhyReport(
        verdict=_verdict(judgement, stories, agents),
        now=now,
        causes=_described(judgement.causes, stories, now=now),
        survived=_described(judgement.survived, stories, now=now),
        agents=agents,
        told_to_user=report_rows(
            [a.story for a in agents if _was_told_of_others(a) and a.story.session_id in struck],
            None,
            now=now,
            hide=[s.label for s in stories if s.label],
        ),
        ways=resume_options([*walled, *others], now=now),
        troubles=tuple(evidence.troubles),
        files_read=evidence.files_read,
        bytes_read=evidence.bytes_read,
        synthetic=synthetic,
        lapsed_waits=tuple(waits),
    )


def _was_told_of_others(agent: AgentFate) -> bool:
    """Whether a main session was told things, and lived: its own end is told with its cause."""
    return agent.story.role is Role.MAIN and bool(agent.story.told) and agent.cause is None


def _seating(story: AgentStory) -> tuple[object, ...]:
    began = 0.0 if story.started_at is None else story.started_at.timestamp()
    return (story.session_id, story.role is not Role.MAIN, began, story.agent_id)


def _verdict(judgement: Judgement, stories: list[AgentStory], agents: Sequence[AgentFate]) -> str:
    if judgement.causes:
        return stopped_sentence(judgement.causes, stories)
    count = Counter(agent.fate for agent in agents)
    return quiet_sentence(
        count[Fate.FINISHED], count[Fate.UNEXPLAINED], count[Fate.CUT] + count[Fate.RUNNING]
    )


def _fates(
    stories: Sequence[AgentStory], judgement: Judgement, *, now: datetime, show_content: bool
) -> tuple[AgentFate, ...]:
    ranks = {
        id(story): rank
        for rank, cause in enumerate(judgement.causes, start=1)
        for story in cause.agents
    }
    return tuple(
        AgentFate(
            story,
            Fate.STOPPED if id(story) in ranks else _unstopped(story, now=now),
            ranks.get(id(story)),
            story.label if show_content else None,
            story.last_words if show_content else None,
        )
        for story in stories
    )


def _unstopped(story: AgentStory, *, now: datetime) -> Fate:
    if story.ending is TranscriptEnd.FINISHED:
        return Fate.FINISHED
    if story.ending is TranscriptEnd.FAILED:
        return Fate.UNEXPLAINED
    warm = story.ended_at is not None and timedelta(0) <= now - story.ended_at < STILL_WARM
    return Fate.RUNNING if warm else Fate.CUT


def _described(
    causes: Sequence[Cause], stories: Sequence[AgentStory], *, now: datetime
) -> tuple[CauseReport, ...]:
    return tuple(
        CauseReport(
            rank=rank,
            cause=cause,
            name=cause_name(cause),
            texts=_texts(cause),
            rhythm=retry_pattern_of(cause),
            spending=spending_around(cause, stories),
            told=report_rows(cause.agents, cause.failure.kind, now=now),
            misses=_misses(cause),
            advice=what_to_do(cause, now=now),
        )
        for rank, cause in enumerate(causes, start=1)
    )


def _texts(cause: Cause) -> tuple[tuple[str, int], ...]:
    count = Counter(" ".join(met.sighting.text.split()) for met in cause.meetings)
    count.pop("", None)
    return tuple(sorted(count.items(), key=lambda item: (-item[1], item[0])))


def _misses(cause: Cause) -> tuple[tuple[Miss, int], ...]:
    if cause.failure.kind is not Kind.MISSING_STRUCTURED_OUTPUT:
        return ()
    count = Counter(
        how_missed(met.story, met.sighting.failure) for met in cause.meetings if met.ended
    )
    return tuple(sorted(count.items(), key=lambda item: (-item[1], item[0])))


def last_errors(agents: Sequence[AgentFate]) -> tuple[str, ...]:
    """The last error texts of agents whose failure nobody recognised, each once, a few at most."""
    words = {agent.story.sightings[-1].text for agent in agents if agent.story.sightings}
    return tuple(sorted(words))[:3]


def result_places(agents: Sequence[AgentFate]) -> tuple[tuple[str, int], ...]:
    """The files that hold these agents' results, or their transcripts, with how many each."""
    places = Counter(_file_of(a.story.result_at or str(a.story.path)) for a in agents)
    return tuple(places.most_common())


def _file_of(place: str) -> str:
    path, _, line = place.rpartition(":")
    return path if line.isdigit() and path else place
