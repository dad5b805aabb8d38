"""Render a report as plain text for a terminal or a log.

Rules: (1) pure: returns text; colour comes from the caller's `paint`; (2) prose wraps, commands and
paths never do, so that they can be copied; (3) long lists are cut here and complete in `--json`;
(4) no control character of a transcript gets into the text, because a terminal would obey it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from jackline.autopsy.figures import counted, listed, size, times
from jackline.autopsy.lapsed_caches import LONGER_LIFE_ADVICE, waits_sentence
from jackline.autopsy.report import CauseReport, Fate, WhyReport

if TYPE_CHECKING:
    from jackline.transcripts.story import ReadProblem

_MARGIN = 15
# C0 without tab and line feed, DEL, C1, and what reverses the direction of writing.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_FIGURE = re.compile(r"(\d|HTTP) (s\b|min\b|h\b|d\b|UTC\b|\d{3}\b)")
_MOST_IDS = 6
_MOST_FILES = 5


class Tone(StrEnum):
    """What a piece of text is, for whoever paints it."""

    VERDICT = "verdict"
    HEADING = "heading"
    WRONG = "wrong"
    COMMAND = "command"
    QUIET = "quiet"


Paint = Callable[[str, Tone], str]


def unpainted(text: str, _tone: Tone) -> str:
    """No colour at all."""
    return text


def render(report: WhyReport, *, width: int = 100, paint: Paint = unpainted) -> str:
    """The whole report as text, ending with a line feed."""
    page = _TextPage(report, width, paint)
    page.verbatim(report.verdict, Tone.VERDICT, indent=0)
    if report.synthetic:
        page.prose(
            "This is a synthetic replica of a real incident, as if read five minutes later: no real"
            " agent, no real account.",
            Tone.QUIET,
        )
    for described in report.causes:
        page.add_cause(described)
    page.add_reports()
    page.add_other_agents()
    page.add_content()
    if report.survived:
        page.heading("Survived")
    for described in report.survived:
        page.prose(f"{described.name}: {described.pattern}", indent="  ")
    if report.lapsed_waits:
        page.heading("Prompt caches")
        page.prose(waits_sentence(report.lapsed_waits), indent="  ")
        page.prose(LONGER_LIFE_ADVICE, indent="  ")
    page.add_next_steps()
    page.heading(
        f"Looked at {counted(report.files_read, 'file')} ({size(report.bytes_read)}), "
        f"{counted(len(report.agents), 'agent')}, "
        f"{report.tokens_text}."
    )
    for line in problem_lines(report.problems):
        page.verbatim(line, indent=2)
    return "\n".join(page.lines) + "\n"


class _TextPage:
    """The lines of one report, wrapped and painted as they are added."""

    def __init__(self, report: WhyReport, width: int, paint: Paint) -> None:
        self._report = report
        self._width = max(width, 40)
        self._paint = paint
        self.lines: list[str] = []

    def verbatim(self, text: str, tone: Tone | None = None, *, indent: int) -> None:
        shown = _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)
        self.lines.append(" " * indent + (shown if tone is None else self._paint(shown, tone)))

    def _wrapped(self, text: str, width: int) -> list[str]:
        harmless = _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)
        # A figure and its unit stay on one line.
        joined = _FIGURE.sub("\\1\N{NO-BREAK SPACE}\\2", harmless)
        lines = textwrap.wrap(joined, width, break_long_words=False, break_on_hyphens=False)
        return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]

    def prose(self, text: str, tone: Tone | None = None, *, indent: str = "") -> None:
        for line in self._wrapped(text, self._width - len(indent)):
            self.lines.append(indent + (line if tone is None else self._paint(line, tone)))

    def heading(self, text: str) -> None:
        self.lines.append("")
        self.prose(text, Tone.HEADING)

    def field(self, name: str, text: str, tone: Tone | None = None) -> None:
        head = self._paint(f"  {name:<{_MARGIN - 2}}", Tone.QUIET)
        for line in self._wrapped(text, self._width - _MARGIN) or [""]:
            self.lines.append(head + (line if tone is None else self._paint(line, tone)))
            head = " " * _MARGIN

    def add_cause(self, described: CauseReport) -> None:
        cause, causes = described.cause, len(self._report.causes)
        number = "The cause" if causes == 1 else f"Cause {described.rank} of {causes}"
        self.heading(f"{number}: {described.name}")
        for position, (text, count) in enumerate(described.texts[:3]):
            self.field("" if position else "Error text", f"“{text}” ({times(count)})")
        for name, fact in described.facts():
            self.field(name, fact)
        ids = [story.agent_id for story in cause.agents]
        self.field("Stopped", f"{counted(len(ids), 'agent')}: {listed(ids, most=_MOST_IDS)}")
        request_ids = [o.seen.request_id for o in cause.occurrences if o.seen.request_id]
        if request_ids:
            self.field("Request ids", listed(request_ids, most=3))

    def add_reports(self) -> None:
        rows = self._report.reported_rows()
        if rows:
            self.heading("Reported vs. actual")
        for row, actual, is_wrong in rows:
            tone = Tone.WRONG if is_wrong else None
            self.field(f"{row.count:>3} reported", row.reported_text(), tone)
            self.field("    actual", actual)

    def add_other_agents(self) -> None:
        report = self._report
        finished = report.having(Fate.FINISHED)
        if finished:
            self.heading(f"{counted(len(finished), 'agent')} finished; results are in")
            files = report.result_files()
            for file, count in files[:_MOST_FILES]:
                self.verbatim(file + (f"  ({count} results)" if count > 1 else ""), indent=2)
            if len(files) > _MOST_FILES:
                self.verbatim(
                    f"and {len(files) - _MOST_FILES} more files (--json has all)", indent=2
                )
        for fate, what in (
            (Fate.UNEXPLAINED, "failed without a stated reason"),
            (Fate.CUT, "stopped silently (killed, closed, or the machine slept)"),
            (Fate.RUNNING, "may still be running"),
        ):
            agents = report.having(fate)
            if agents:
                self.heading(f"{counted(len(agents), 'agent')} {what}")
                ids = [agent.story.agent_id for agent in agents]
                self.prose(listed(ids, most=_MOST_IDS), indent="  ")
            if fate is Fate.UNEXPLAINED:
                texts = {a.story.failures[-1].text for a in agents if a.story.failures}
                for text in sorted(texts)[:3]:
                    self.prose(f"with an error that Jackline does not know: “{text}”", indent="  ")

    def add_content(self) -> None:
        shown = [agent for agent in self._report.agents if agent.label or agent.last_words]
        if shown:
            self.heading("Content (shown because of --show-content)")
        for agent in shown:
            self.field(agent.story.agent_id[: _MARGIN - 3], agent.label or "")
            if agent.last_words:
                self.field("", f"“{agent.last_words}”")

    def add_next_steps(self) -> None:
        report = self._report
        if report.resume_options:
            self.heading("To resume")
        for option in report.resume_options:
            self.prose(option.heading(report.now), indent="  ")
            if option.command is not None:
                self.verbatim(option.command, Tone.COMMAND, indent=4)
            if option.then:
                self.prose(option.then_text, indent="    ")
        if report.causes:
            self.heading("What to do now")
        for described in report.causes:
            prefix = "" if len(report.causes) == 1 else f"{described.rank}. {described.name}: "
            self.prose(prefix + " ".join(described.advice), indent="  ")


def problem_lines(problems: Sequence[ReadProblem]) -> list[str]:
    """What could not be read: the first few by name, the others as a count."""
    if not problems:
        return []
    lines = [f"{counted(len(problems), 'problem')} while reading:"]
    lines += [f"{p.path}: {p.what} ({times(p.count)})" for p in problems[:_MOST_FILES]]
    rest = len(problems) - _MOST_FILES
    return [*lines, f"and {rest:,} more (--json has all)"] if rest > 0 else lines
