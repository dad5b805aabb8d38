"""Render a report as plain text for a terminal or a log.

Rules: (1) pure: returns text; colour comes from the caller's `paint`; (2) prose wraps, commands and
paths never do, so that they can be copied; (3) long lists are cut here and complete in `--json`;
(4) no control character of a transcript gets into the text, because a terminal would obey it.
Not here: the sentences that all renderings share (sentences.py).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from jackline.autopsy.agent_reports import ReportedOutcome
from jackline.autopsy.figures import clock, clock_span, counted, listed, size, times
from jackline.autopsy.lapsed_caches import LIVES_LONGER, waits_sentence
from jackline.autopsy.report import (
    AgentFate,
    CauseReport,
    Fate,
    WhyReport,
    last_errors,
    result_places,
)
from jackline.autopsy.sentences import (
    happened_phrase,
    in_its_zone,
    reported_phrase,
    retry_sentence,
    spending_sentence,
    tokens_phrase,
)

if TYPE_CHECKING:
    from jackline.autopsy.next_steps import ResumeOption
    from jackline.transcripts.story import ReadProblem

MARGIN = 15
# C0 without tab and line feed, DEL, C1, and what turns the direction of writing around.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_FIGURE = re.compile(r"(\d|HTTP) (s\b|min\b|h\b|d\b|UTC\b|\d{3}\b)")
MANY_AGENTS = 6
MANY_PLACES = 5


SYNTHETIC = (
    "This is a synthetic replica of a real incident, told as if read five minutes later: no real "
    "agent, no real account."
)


class Tone(StrEnum):
    """What a piece of text is, for whoever paints it."""

    VERDICT = "verdict"
    HEADING = "heading"
    WRONG = "wrong"
    COMMAND = "command"
    QUIET = "quiet"


def unpainted(text: str, _tone: Tone) -> str:
    """No colour at all."""
    return text


Paint = Callable[[str, Tone], str]


def render(report: WhyReport, *, width: int = 100, paint: Paint = unpainted) -> str:
    """The whole report as text, ending with a line feed."""
    page = _Page(width, paint)
    page.verbatim(report.verdict, Tone.VERDICT, indent=0)
    if report.synthetic:
        page.prose(SYNTHETIC, Tone.QUIET)
    for described in report.causes:
        _cause(page, described, len(report.causes))
    _told(page, report)
    _others(page, report)
    _survived(page, report)
    _caches(page, report)
    _resume(page, report)
    _advice(page, report)
    _troubles(page, report)
    return page.text()


class _Page:
    """Lines of text, wrapped and painted as they are added."""

    def __init__(self, width: int, paint: Paint) -> None:
        self._width = max(width, 40)
        self._paint = paint
        self._lines: list[str] = []

    def prose(self, text: str, tone: Tone | None = None, *, indent: str = "") -> None:
        for line in _wrapped(_harmless(text), self._width - len(indent)):
            self._lines.append(indent + (line if tone is None else self._paint(line, tone)))

    def heading(self, text: str) -> None:
        self._lines.append("")
        self.prose(text, Tone.HEADING)

    def field(self, name: str, text: str, tone: Tone | None = None) -> None:
        head = self._paint(f"  {name:<{MARGIN - 2}}", Tone.QUIET)
        lines = _wrapped(_harmless(text), self._width - MARGIN) or [""]
        for position, line in enumerate(lines):
            shown = line if tone is None else self._paint(line, tone)
            self._lines.append((head if position == 0 else " " * MARGIN) + shown)

    def verbatim(self, text: str, tone: Tone | None = None, *, indent: int = MARGIN) -> None:
        shown = _harmless(text)
        self._lines.append(" " * indent + (shown if tone is None else self._paint(shown, tone)))

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def _harmless(text: str) -> str:
    """The text with a mark in the place of every control character."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def _wrapped(text: str, width: int) -> list[str]:
    # A figure stays with its unit: 0.96 s is not read across two lines.
    kept = _FIGURE.sub("\\1\N{NO-BREAK SPACE}\\2", text)
    lines = textwrap.wrap(kept, width, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def _cause(page: _Page, described: CauseReport, causes: int) -> None:
    cause = described.cause
    number = "The cause" if causes == 1 else f"Cause {described.rank} of {causes}"
    page.heading(f"{number}: {described.name}")
    for position, (text, count) in enumerate(described.texts[:3]):
        page.field("" if position else "In its words", f"“{text}” ({times(count)})")
    if described.rhythm.first is not None and described.rhythm.last is not None:
        began = in_its_zone(cause, described.rhythm.first)
        page.field("When", clock_span(began, described.rhythm.last))
    page.field("How often", retry_sentence(described.rhythm))
    page.field("Spent", spending_sentence(cause, described.spending))
    for miss, count in described.misses:
        page.field("How missed", f"{counted(count, 'agent')}: {miss}")
    ids = [story.agent_id for story in cause.agents]
    page.field("Stopped", f"{counted(len(ids), 'agent')}: {listed(ids, most=MANY_AGENTS)}")
    request_ids = [m.sighting.request_id for m in cause.meetings if m.sighting.request_id]
    if request_ids:
        page.field("Request ids", listed(request_ids, most=3))


def _told(page: _Page, report: WhyReport) -> None:
    rows = [(row, described) for described in report.causes for row in described.told]
    if not rows and not (report.causes and report.told_to_user):
        return
    page.heading("What was told, beside what happened")
    stopped = f"{len(report.having(Fate.STOPPED)):,} of {counted(len(report.agents), 'agent')}"
    for row in report.told_to_user if report.causes else ():
        page.field(f"{row.count:>5} × told", reported_phrase(row))
        page.field("    happened", f"{stopped} stopped")
    for row, described in rows:
        wrong = row.heard in {
            ReportedOutcome.SUCCESS,
            ReportedOutcome.ANOTHER_CAUSE,
            ReportedOutcome.NOTHING,
        }
        page.field(f"{row.count:>5} × told", reported_phrase(row), Tone.WRONG if wrong else None)
        page.field("    happened", happened_phrase(row, described.name))


def _others(page: _Page, report: WhyReport) -> None:
    finished = report.having(Fate.FINISHED)
    if finished:
        page.heading(f"{counted(len(finished), 'agent')} finished; results are in")
        _places(page, finished)
    for fate, what in (
        (Fate.UNEXPLAINED, "failed without a stated reason"),
        (Fate.CUT, "stopped without a word (killed, closed, or the machine slept)"),
        (Fate.RUNNING, "may still be running"),
    ):
        agents = report.having(fate)
        if agents:
            page.heading(f"{counted(len(agents), 'agent')} {what}")
            ids = [agent.story.agent_id for agent in agents]
            page.prose(listed(ids, most=MANY_AGENTS), indent="  ")
        for words in last_errors(agents) if fate is Fate.UNEXPLAINED else ():
            page.prose(f"in words that Jackline does not know: “{words}”", indent="  ")
    _content(page, report.agents)


def _places(page: _Page, finished: Sequence[AgentFate]) -> None:
    places = result_places(finished)
    for place, count in places[:MANY_PLACES]:
        page.verbatim(f"{place}" + (f"  ({count} results)" if count > 1 else ""), indent=2)
    if len(places) > MANY_PLACES:
        page.verbatim(f"and {len(places) - MANY_PLACES} more places (--json has all)", indent=2)


def _content(page: _Page, agents: Iterable[AgentFate]) -> None:
    shown = [agent for agent in agents if agent.label or agent.last_words]
    if not shown:
        return
    page.heading("Content (shown because of --show-content)")
    for agent in shown:
        page.field(agent.story.agent_id[: MARGIN - 3], agent.label or "")
        if agent.last_words:
            page.field("", f"“{agent.last_words}”")


def _survived(page: _Page, report: WhyReport) -> None:
    if not report.survived:
        return
    page.heading("Met and survived")
    for described in report.survived:
        page.prose(f"{described.name}: {retry_sentence(described.rhythm)}", indent="  ")


def _caches(page: _Page, report: WhyReport) -> None:
    if report.lapsed_waits:
        page.heading("Prompt caches")
        page.prose(waits_sentence(report.lapsed_waits), indent="  ")
        page.prose(LIVES_LONGER, indent="  ")


def _resume(page: _Page, report: WhyReport) -> None:
    if not report.ways:
        return
    page.heading("To resume")
    for way in report.ways:
        _way(page, way, report)


def _way(page: _Page, way: ResumeOption, report: WhyReport) -> None:
    when = "now" if way.not_before is None else f"from {clock(way.not_before, beside=report.now)}"
    page.prose(f"{counted(len(way.agents), 'agent')}, {when}:", indent="  ")
    if way.command is not None:
        page.verbatim(way.command, Tone.COMMAND, indent=4)
    if way.then:
        page.prose(f"then {way.then}" if way.command else way.then, indent="    ")


def _advice(page: _Page, report: WhyReport) -> None:
    if not report.causes:
        return
    page.heading("What to do now")
    for described in report.causes:
        prefix = "" if len(report.causes) == 1 else f"{described.rank}. {described.name}: "
        page.prose(prefix + " ".join(described.advice), indent="  ")


def _troubles(page: _Page, report: WhyReport) -> None:
    page.heading(
        f"Looked at {counted(report.files_read, 'file')} ({size(report.bytes_read)}), "
        f"{counted(len(report.agents), 'agent')}, "
        f"{tokens_phrase(report.tokens, report.main_tokens)}."
    )
    for line in trouble_lines(report.troubles):
        page.verbatim(line, indent=2)


def trouble_lines(troubles: Sequence[ReadProblem]) -> list[str]:
    """What could not be read: the first few by name, the others by number."""
    if not troubles:
        return []
    lines = [f"{counted(len(troubles), 'trouble')} on the way:"]
    lines += [f"{t.path}: {t.what} ({times(t.count)})" for t in troubles[:MANY_PLACES]]
    rest = len(troubles) - MANY_PLACES
    return [*lines, f"and {rest:,} more (--json has all)"] if rest > 0 else lines
