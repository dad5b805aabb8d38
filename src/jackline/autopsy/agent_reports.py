"""Compare what was reported about stopped agents with what happened, and count both.

Rules: (1) pure; only `classify` interprets texts; (2) only error texts are shown: an agent's answer
is content, and content is hidden; (3) reports that differ only in a name or a number are one row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from os.path import commonprefix
from typing import TYPE_CHECKING

from jackline.failures import Failure, Kind, Observation, classify
from jackline.transcripts.story import AgentReport, AgentStory, Role, TranscriptEnd

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

ELISION = "…"
# A shorter label would also match inside other words.
_SHORTEST_LABEL = 4
_MOST_LABELS = 1_000
"""Of more, none is looked for in the reports, whose texts are then not shown."""
_QUOTED = re.compile(r'"[^"]*"')


class ReportedOutcome(StrEnum):
    """What a reader of the reports believes about a stopped agent."""

    THE_CAUSE = "the cause"
    ANOTHER_CAUSE = "another cause"
    AN_ERROR = "an error"
    SUCCESS = "success"
    NOTHING = "nothing"

    @property
    def is_wrong(self) -> bool:
        """Whether the reader is misled."""
        return self not in (ReportedOutcome.THE_CAUSE, ReportedOutcome.AN_ERROR)

    @classmethod
    def of(cls, report: AgentReport | None, kind: Kind | None, now: datetime) -> ReportedOutcome:
        """What a reader of this report believes about an agent that `kind` stopped."""
        if report is None:
            return cls.NOTHING
        if not report.is_error:
            # "Completed", with the error as the result: a reader of the status sees a success.
            return cls.SUCCESS
        named = reported_failure(report, now=now)
        if named is None:
            return cls.AN_ERROR
        return cls.THE_CAUSE if named.kind is kind else cls.ANOTHER_CAUSE


@lru_cache(maxsize=4096)
def reported_failure(report: AgentReport, *, now: datetime) -> Failure | None:
    """The failure that the report's text names, if it names one."""
    failure = classify(Observation.of_text(report.text), now=report.at or now)
    return None if failure.kind is Kind.NOT_A_FAILURE else failure


def error_text(report: AgentReport, labels: Iterable[str]) -> str:
    """The error in a report, without what people and agents wrote around it."""
    # What an agent wrote before it died follows on later lines.
    text = next((line for line in report.text.splitlines() if line.strip()), "")
    # Clients put the name of an agent or a run in quotes; without a label that is the start of the
    # prompt.
    text = _QUOTED.sub(f'"{ELISION}"', text)
    for label in labels:
        if len(label) >= _SHORTEST_LABEL:
            text = text.replace(label, ELISION)
    return text


@dataclass(frozen=True, slots=True)
class ReportRow:
    """Reports of the same content, and how many there were."""

    count: int
    reporter: str
    claim: str
    text: str | None
    names: Kind | None
    outcome: ReportedOutcome
    is_error: bool = False

    def reported_text(self) -> str:
        """The claim, and the error's text where there is one."""
        if self.outcome is ReportedOutcome.NOTHING:
            return "nothing"
        claim = f"“{self.claim}”" if self.claim else "an answer"
        # Clients also give a failed run one of these states.
        if self.is_error and self.claim in ("success", "completed", "done"):
            claim += ", marked as an error,"
        by = f" by {self.reporter}" if self.reporter else ""
        return f"{claim}{by}" + (f": “{self.text}”" if self.text else "")

    def actual_text(self, cause: str) -> str:
        """What really happened, compared with the report."""
        texts = {
            ReportedOutcome.THE_CAUSE: "as reported",
            ReportedOutcome.ANOTHER_CAUSE: f"not that: {cause}",
            ReportedOutcome.AN_ERROR: cause,
        }
        return texts.get(self.outcome, f"stopped by {cause}")

    def to_json(self) -> dict[str, object]:
        """The row as the JSON document shows it."""
        return {
            "times": self.count,
            "by": self.reporter or None,
            "claim": self.claim or None,
            "marked_as_error": self.is_error,
            "text": self.text,
            "names": self.names,
            "suggests": self.outcome.value,
        }


def report_rows(
    agents: Iterable[AgentStory],
    kind: Kind | None,
    *,
    now: datetime,
    hide: Iterable[str] = (),
) -> tuple[ReportRow, ...]:
    """Everything reported about these agents, most frequent first.

    `kind` is what really happened to them; `hide` are people's texts that a report may contain.
    """
    agents = list(agents)
    labels = sorted({s.label for s in agents if s.label} | set(hide), key=len, reverse=True)
    groups: dict[tuple[ReportRow, str | None], list[str | None]] = {}
    unreported = 0
    for story in agents:
        # The user sees the end of a main session.
        unreported += not story.reports and story.role is not Role.MAIN
        for report in story.reports:
            named = reported_failure(report, now=now)
            text = shape = None
            # An answer that mentions errors is content; only an error's text may be shown.
            may_show = report.is_error or story.ending is TranscriptEnd.FAILED
            may_show = may_show and len(labels) <= _MOST_LABELS
            if may_show and named is not None:
                text = error_text(report, [story.label or "", *labels])
                # Ids, indices and times do not make another row.
                shape = " ".join(ELISION if re.search(r"\d", w) else w for w in text.split())
            row = ReportRow(
                0,
                report.reporter,
                report.claim,
                None,
                None if named is None else named.kind,
                ReportedOutcome.of(report, kind, now),
                report.is_error,
            )
            groups.setdefault((row, shape), []).append(text)
    rows = [
        replace(row, count=len(texts), text=shared_text(texts))
        for (row, _), texts in groups.items()
    ]
    if unreported:
        rows.append(ReportRow(unreported, "", "", None, None, ReportedOutcome.NOTHING))
    return tuple(sorted(rows, key=lambda r: (-r.count, r.reporter, r.claim, r.text or "")))


def shared_text(texts: Sequence[str | None]) -> str | None:
    """The words that all texts begin and end with; what differs between them becomes `…`."""
    split = [text.split() for text in {text for text in texts if text}]
    if len(split) < 2:
        return " ".join(split[0]) if split else None
    # On lists of words it compares word by word.
    start = commonprefix(split)  # noqa: RUF071
    rests = [words[len(start) :] for words in split]
    end = commonprefix([rest[::-1] for rest in rests])[::-1]  # noqa: RUF071
    return " ".join([*start, ELISION, *end])
