"""Sum up many sessions in one table: how many agents died, of what, and what was reported.

Rules: (1) pure; (2) one row per name of a failure, however many limits have it; (3) each stopped
agent counts once among agents, and once among: reported as error, as success, not at all.
Not here: one incident in detail (report.py).
"""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jackline.autopsy.agent_reports import ReportedOutcome, reported_outcome
from jackline.autopsy.causes import Cause, judge
from jackline.autopsy.figures import counted
from jackline.autopsy.json_report import SCHEMA, Document, iso, trouble_facts
from jackline.autopsy.sentences import cause_name
from jackline.failures.sentences import name_of
from jackline.transcripts.story import AgentStory, ReadProblem, TranscriptEnd, TranscriptSet

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from jackline.failures import Kind


@dataclass(frozen=True, slots=True)
class FailureRow:
    """One kind of failure over the whole time."""

    name: str
    kind: str
    sub: str | None
    agents: int
    sessions: int
    first: datetime | None
    last: datetime | None
    tokens: int
    told_error: int
    told_success: int
    told_nothing: int


@dataclass(frozen=True, slots=True)
class Week:
    """All rows, and the whole of which they are a part."""

    since: datetime
    now: datetime
    verdict: str
    rows: tuple[FailureRow, ...]
    agents: int
    sessions: int
    silent: int
    troubles: tuple[ReadProblem, ...]
    files_read: int
    bytes_read: int


def sum_up(evidence: TranscriptSet, *, since: datetime, now: datetime) -> Week:
    """The table over every agent that was still alive after `since`."""
    stories = [s for s in evidence.stories if s.ended_at is None or s.ended_at >= since]
    judgement = judge(stories, now=now)
    alike: dict[tuple[Kind, str], list[Cause]] = {}
    for cause in judgement.causes:
        alike.setdefault((cause.failure.kind, name_of(cause.failure)), []).append(cause)
    rows = sorted((_row(causes, now=now) for causes in alike.values()), key=lambda r: -r.agents)
    stopped = sum(row.agents for row in rows)
    cut = [s for s in stories if s.ending is TranscriptEnd.CUT]
    return Week(
        since=since,
        now=now,
        verdict=_verdict(stopped, rows, stories),
        rows=tuple(rows),
        agents=len(stories),
        sessions=len({story.session_id for story in stories}),
        silent=len(judgement.unexplained) + len(cut),
        troubles=tuple(evidence.troubles),
        files_read=evidence.files_read,
        bytes_read=evidence.bytes_read,
    )


def _verdict(stopped: int, rows: Sequence[FailureRow], stories: Sequence[AgentStory]) -> str:
    sessions = counted(len({story.session_id for story in stories}), "session")
    if not rows:
        return f"No agent was stopped by a failure: {counted(len(stories), 'agent')}, {sessions}."
    were = "was" if stopped == 1 else "were"
    misled = sum(row.told_success + row.told_nothing for row in rows)
    return (
        f"{stopped:,} of {counted(len(stories), 'agent')} in {sessions} {were} stopped, most by "
        f"{rows[0].name}; for {misled:,} of them nobody was told of an error."
    )


def _row(causes: Sequence[Cause], *, now: datetime) -> FailureRow:
    agents = [story for cause in causes for story in cause.agents]
    failure = causes[0].failure
    heard = Counter(reported_outcome(story, failure.kind, now=now) for story in agents)
    return FailureRow(
        name=cause_name(causes[0]),
        kind=failure.kind.value,
        sub=failure.sub,
        agents=len(agents),
        sessions=len({story.session_id for story in agents}),
        first=min((c.first_at for c in causes if c.first_at is not None), default=None),
        last=max((c.last_at for c in causes if c.last_at is not None), default=None),
        tokens=sum(story.tokens for story in agents),
        told_error=heard.total() - heard[ReportedOutcome.SUCCESS] - heard[ReportedOutcome.NOTHING],
        told_success=heard[ReportedOutcome.SUCCESS],
        told_nothing=heard[ReportedOutcome.NOTHING],
    )


HEADINGS = ("agents", "sessions", "first", "last", "tokens ≥", "error", "success", "nothing")
NARROWEST_NAME = 20


def as_text(week: Week, *, width: int = 100) -> str:
    """The table as plain text, or a list where the terminal is too narrow for a table."""
    lines = [week.verdict]
    if week.rows:
        figures = [HEADINGS, *(_cells(row, week.now) for row in week.rows)]
        widths = [max(len(cell) for cell in column) for column in zip(*figures, strict=True)]
        room = width - sum(widths) - 2 * len(widths)
        lines += ["", *(_table(week, widths, room) if room >= NARROWEST_NAME else _list(week))]
    if week.silent:
        lines += ["", f"{counted(week.silent, 'more agent')} stopped without a word."]
    return "\n".join(lines) + "\n"


def _table(week: Week, widths: Sequence[int], room: int) -> list[str]:
    told = sum(widths[-3:]) + 4
    lines = [" " * (room + sum(widths) + 2 * len(widths) - told) + "those waiting were told"]
    for name, cells in [("cause", HEADINGS), *((r.name, _cells(r, week.now)) for r in week.rows)]:
        figures = "".join(f"  {cell:>{size}}" for cell, size in zip(cells, widths, strict=True))
        first, *rest = textwrap.wrap(name, room)
        lines += [f"{first:<{room}}{figures}", *rest]
    return lines


def _list(week: Week) -> list[str]:
    lines = []
    for row in week.rows:
        agents, sessions, first, last, tokens, *told = _cells(row, week.now)
        lines += [
            row.name,
            f"  agents {agents}, sessions {sessions}, tokens at least {tokens}",
            f"  {first} to {last}",
            "  told: " + ", ".join(f"{n} {c}" for n, c in zip(HEADINGS[5:], told, strict=True)),
        ]
    return lines


def _cells(row: FailureRow, now: datetime) -> tuple[str, ...]:
    def day(moment: datetime | None) -> str:
        return "" if moment is None else f"{moment.astimezone(now.tzinfo):%m-%d %H:%M}"

    figures = (row.told_error, row.told_success, row.told_nothing)
    return (
        f"{row.agents:,}",
        f"{row.sessions:,}",
        day(row.first),
        day(row.last),
        f"{row.tokens:,}",
        *(f"{figure:,}" for figure in figures),
    )


def as_document(week: Week) -> Document:
    """The table as one JSON document."""
    return {
        "schema": SCHEMA,
        "verdict": week.verdict,
        "since": iso(week.since),
        "now": iso(week.now),
        "agents_total": week.agents,
        "sessions_total": week.sessions,
        "agents_stopped_without_a_word": week.silent,
        "rows": [_row_facts(row) for row in week.rows],
        "looked_at": {"files": week.files_read, "bytes": week.bytes_read},
        "troubles": [trouble_facts(trouble) for trouble in week.troubles],
    }


def _row_facts(row: FailureRow) -> Document:
    return {
        "name": row.name,
        "kind": row.kind,
        "sub": row.sub,
        "agents": row.agents,
        "sessions": row.sessions,
        "first_at": iso(row.first),
        "last_at": iso(row.last),
        "tokens_at_least": row.tokens,
        "told_error": row.told_error,
        "told_success": row.told_success,
        "told_nothing": row.told_nothing,
    }
