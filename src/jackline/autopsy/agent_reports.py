"""Compare what was reported about stopped agents with what happened, and count both.

Rules: (1) pure; texts are classified by `classify` and by nothing here; (2) only the words of an
error are shown: an agent's answer is content, and content is hidden; (3) reports that differ only
in a name or a number are one row.
Not here: collecting the reports (transcripts/), the layout (text_report.py, html_report.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from jackline.failures import Failure, Kind, Observation, classify
from jackline.transcripts.story import AgentReport, AgentStory, Role, TranscriptEnd

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime


ELSEWHERE = "…"
# Shorter ones say nothing, and would be found inside other words.
SHORTEST_LABEL = 4
_QUOTED = re.compile(r'"[^"]*"')


class ReportedOutcome(StrEnum):
    """What those who waited for a stopped agent were left to believe."""

    THE_CAUSE = "the cause"
    ANOTHER_CAUSE = "another cause"
    AN_ERROR = "an error"
    SUCCESS = "success"
    NOTHING = "nothing"


def reported_failure(told: AgentReport, *, now: datetime) -> Failure | None:
    """The failure that the reported words name, if they name one."""
    failure = _named(told.text, told.at or now)
    return None if failure.kind is Kind.NOT_A_FAILURE else failure


@lru_cache(maxsize=4096)
def _named(text: str, now: datetime) -> Failure:
    # A fleet is told the same few sentences hundreds of times.
    return classify(Observation.of_text(text), now=now)


def reported_outcome(story: AgentStory, kind: Kind, *, now: datetime) -> ReportedOutcome:
    """What was believed about an agent whom such a failure stopped; the last word counts."""
    if not story.told:
        return ReportedOutcome.NOTHING
    last = story.told[-1]
    named = reported_failure(last, now=now)
    if not last.is_error:
        # "Completed", with the error as the result: whoever reads the status believes a success.
        return ReportedOutcome.SUCCESS
    if named is None:
        return ReportedOutcome.AN_ERROR
    return ReportedOutcome.THE_CAUSE if named.kind is kind else ReportedOutcome.ANOTHER_CAUSE


def may_show(told: AgentReport, story: AgentStory, *, now: datetime) -> bool:
    """Whether the words are an error's, and not an answer that happens to speak of errors."""
    if not told.is_error and story.ending is not TranscriptEnd.FAILED:
        return False
    return reported_failure(told, now=now) is not None


def error_words(told: AgentReport, labels: Iterable[str]) -> str:
    """The error in a report, without what people and agents wrote around it."""
    # What an agent had written before it died follows on later lines.
    text = next((line for line in told.text.splitlines() if line.strip()), "")
    # Clients put in quotes how someone called an agent or a run, and without a given label they
    # use the prompt's first words.
    text = _QUOTED.sub(f'"{ELSEWHERE}"', text)
    for label in labels:
        if len(label) >= SHORTEST_LABEL:
            text = text.replace(label, ELSEWHERE)
    return text


_FIGURES = re.compile(r"\d")


@dataclass(frozen=True, slots=True)
class ReportRow:
    """So many times somebody was told the same thing."""

    count: int
    teller: str
    claim: str
    text: str | None
    names: Kind | None
    heard: ReportedOutcome
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class _Words:
    teller: str
    claim: str
    is_error: bool
    names: Kind | None
    heard: ReportedOutcome


def report_rows(
    agents: Iterable[AgentStory],
    kind: Kind | None,
    *,
    now: datetime,
    hide: Iterable[str] = (),
) -> tuple[ReportRow, ...]:
    """Everything told about these agents, most frequent first.

    `kind` is what really happened to them; `hide` are words of people that may stand in a report.
    """
    agents = list(agents)
    labels = sorted({s.label for s in agents if s.label} | set(hide), key=len, reverse=True)
    heard: dict[tuple[_Words, str | None], list[str | None]] = {}
    silent = 0
    for story in agents:
        # A main session's end is seen by whoever sits before it.
        silent += not story.told and story.role is not Role.MAIN
        for told in story.told:
            words = _words(told, kind, now=now)
            text = (
                error_words(told, [story.label or "", *labels])
                if may_show(told, story, now=now)
                else None
            )
            heard.setdefault((words, _shape(text)), []).append(text)
    rows = [
        ReportRow(len(texts), w.teller, w.claim, shared_words(texts), w.names, w.heard, w.is_error)
        for (w, _), texts in heard.items()
    ]
    if silent:
        rows.append(ReportRow(silent, "", "", None, None, ReportedOutcome.NOTHING))
    return tuple(sorted(rows, key=lambda r: (-r.count, r.teller, r.claim, r.text or "")))


def _words(told: AgentReport, kind: Kind | None, *, now: datetime) -> _Words:
    named = reported_failure(told, now=now)
    names = None if named is None else named.kind
    if not told.is_error:
        heard = ReportedOutcome.SUCCESS
    elif names is None:
        heard = ReportedOutcome.AN_ERROR
    else:
        heard = ReportedOutcome.THE_CAUSE if names is kind else ReportedOutcome.ANOTHER_CAUSE
    return _Words(told.teller, told.claim, told.is_error, names, heard)


def _shape(text: str | None) -> str | None:
    """The text without the words that hold figures: ids, indices, times."""
    if text is None:
        return None
    return " ".join(ELSEWHERE if _FIGURES.search(word) else word for word in text.split())


def shared_words(texts: Sequence[str | None]) -> str | None:
    """The words that all texts begin and end with; what differs between them becomes `…`."""
    shown = sorted({text for text in texts if text})
    if not shown:
        return None
    split = [text.split() for text in shown]
    first, last = split[0], split[-1]
    start = _agreeing(first, last)
    if start == len(first) == len(last):
        return " ".join(first)
    end = min(_agreeing(first[start:][::-1], words[start:][::-1]) for words in split)
    tail = first[len(first) - end :] if end else []
    return " ".join([*first[:start], ELSEWHERE, *tail])


def _agreeing(one: Sequence[str], other: Sequence[str]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count
