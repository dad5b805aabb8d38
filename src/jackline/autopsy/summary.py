"""Sum up many sessions in one table: how many agents died, of what, and what was reported.

Rules: (1) pure; (2) one row per name of a failure, however many limits have it; (3) each stopped
agent counts once among agents, and once among: reported as error, as success, not at all.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from jackline.autopsy.agent_reports import ReportedOutcome
from jackline.autopsy.causes import Cause, judge
from jackline.autopsy.figures import counted, iso
from jackline.autopsy.report import SCHEMA
from jackline.failures.sentences import name_of
from jackline.transcripts.story import ReadProblem, TranscriptEnd, TranscriptSet

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from jackline.failures import Kind

_HEADINGS = ("agents", "sessions", "first", "last", "tokens ≥", "error", "success", "nothing")
_NARROWEST_NAME = 20


@dataclass(frozen=True, slots=True)
class FailureRow:
    """One kind of failure over the whole time; the last three count stopped agents."""

    name: str
    kind: str
    sub: str | None
    agents: int
    sessions: int
    first_at: datetime | None
    last_at: datetime | None
    tokens_at_least: int
    reported_error: int
    reported_success: int
    not_reported: int

    @classmethod
    def of(cls, causes: Sequence[Cause], now: datetime) -> FailureRow:
        """The row of all causes with one name."""
        agents = [story for cause in causes for story in cause.agents]
        failure = causes[0].failure
        # The last report counts.
        outcomes = Counter(
            ReportedOutcome.of(s.reports[-1] if s.reports else None, failure.kind, now)
            for s in agents
        )
        success, nothing = outcomes[ReportedOutcome.SUCCESS], outcomes[ReportedOutcome.NOTHING]
        return cls(
            name=causes[0].name,
            kind=failure.kind.value,
            sub=failure.sub,
            agents=len(agents),
            sessions=len({story.session_id for story in agents}),
            first_at=min((c.first_at for c in causes if c.first_at is not None), default=None),
            last_at=max((c.last_at for c in causes if c.last_at is not None), default=None),
            tokens_at_least=sum(story.tokens for story in agents),
            reported_error=outcomes.total() - success - nothing,
            reported_success=success,
            not_reported=nothing,
        )

    def cells(self, now: datetime) -> tuple[str, ...]:
        """The figures under `_HEADINGS`."""
        days = (
            "" if moment is None else f"{moment.astimezone(now.tzinfo):%m-%d %H:%M}"
            for moment in (self.first_at, self.last_at)
        )
        figures = (
            self.tokens_at_least,
            self.reported_error,
            self.reported_success,
            self.not_reported,
        )
        return (
            f"{self.agents:,}",
            f"{self.sessions:,}",
            *days,
            *(f"{figure:,}" for figure in figures),
        )


@dataclass(frozen=True, slots=True)
class Summary:
    """All rows, and the totals."""

    since: datetime
    now: datetime
    verdict: str
    rows: tuple[FailureRow, ...]
    agents: int
    sessions: int
    silent: int
    problems: tuple[ReadProblem, ...]
    files_read: int
    bytes_read: int

    @classmethod
    def of(cls, evidence: TranscriptSet, *, since: datetime, now: datetime) -> Summary:
        """The table over every agent that was still alive after `since`."""
        stories = [s for s in evidence.stories if s.ended_at is None or s.ended_at >= since]
        judgement = judge(stories, now=now)
        by_name: dict[tuple[Kind, str], list[Cause]] = {}
        for cause in judgement.causes:
            by_name.setdefault((cause.failure.kind, name_of(cause.failure)), []).append(cause)
        rows = sorted(
            (FailureRow.of(causes, now) for causes in by_name.values()), key=lambda row: -row.agents
        )
        sessions = len({story.session_id for story in stories})
        agents_text, sessions_text = counted(len(stories), "agent"), counted(sessions, "session")
        if rows:
            stopped = sum(row.agents for row in rows)
            misled = sum(row.reported_success + row.not_reported for row in rows)
            were = "was" if stopped == 1 else "were"
            verdict = (
                f"{stopped:,} of {agents_text} in {sessions_text} {were}"
                f" stopped, most by {rows[0].name}; for {misled:,} of them no error was reported."
            )
        else:
            verdict = f"No agent was stopped by a failure: {agents_text}, {sessions_text}."
        cut = [s for s in stories if s.ending is TranscriptEnd.CUT]
        return cls(
            since=since,
            now=now,
            verdict=verdict,
            rows=tuple(rows),
            agents=len(stories),
            sessions=sessions,
            silent=len(judgement.unexplained) + len(cut),
            problems=tuple(evidence.problems),
            files_read=evidence.files_read,
            bytes_read=evidence.bytes_read,
        )

    def as_text(self, *, width: int = 100) -> str:
        """The table as plain text, or a list where the terminal is too narrow for a table."""
        lines = [self.verdict]
        table = [("cause", _HEADINGS), *((row.name, row.cells(self.now)) for row in self.rows)]
        widths = [
            max(map(len, column)) for column in zip(*(cells for _, cells in table), strict=True)
        ]
        name_width = width - sum(widths) - 2 * len(widths)
        if self.rows and name_width >= _NARROWEST_NAME:
            # The three last columns have a heading of their own.
            indent = width - sum(widths[-3:]) - 4
            lines += ["", " " * indent + "reported as"]
            for name, cells in table:
                figures = "".join(
                    f"  {cell:>{size}}" for cell, size in zip(cells, widths, strict=True)
                )
                first, *rest = textwrap.wrap(name, name_width)
                lines += [f"{first:<{name_width}}{figures}", *rest]
        elif self.rows:
            lines.append("")
            for name, (agents, sessions, first, last, tokens, *reported) in table[1:]:
                figures = ", ".join(
                    f"{n} {c}" for n, c in zip(_HEADINGS[5:], reported, strict=True)
                )
                lines += [
                    name,
                    f"  agents {agents}, sessions {sessions}, tokens at least {tokens}",
                    f"  {first} to {last}",
                    f"  reported: {figures}",
                ]
        if self.silent:
            lines += ["", f"{counted(self.silent, 'more agent')} stopped silently."]
        return "\n".join(lines) + "\n"

    def as_document(self) -> dict[str, object]:
        """The table as one JSON document."""
        return {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "since": iso(self.since),
            "now": iso(self.now),
            "agents_total": self.agents,
            "sessions_total": self.sessions,
            "agents_stopped_silently": self.silent,
            "rows": [
                {**asdict(row), "first_at": iso(row.first_at), "last_at": iso(row.last_at)}
                for row in self.rows
            ],
            "looked_at": {"files": self.files_read, "bytes": self.bytes_read},
            "problems": [problem.to_json() for problem in self.problems],
        }
