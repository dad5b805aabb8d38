"""Render a report as one self-contained HTML page: verdict, causes, timeline, reported vs. actual.

Rules: (1) no network and no script: the page's own policy forbids both; (2) elements escape every
plain string, and there is no style attribute, so that the policy can forbid those too; (3) the
first line is the verdict; (4) positions are percentages, so that the drawing fits any width; (5)
state is shown by colour, sign and text together, and a screen reader can read every row.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, TypeAlias

from jackline import __version__
from jackline.autopsy.figures import clock, counted, duration, size, times
from jackline.autopsy.lapsed_caches import LONGER_LIFE_ADVICE, waits_sentence
from jackline.autopsy.report import AgentFate, CauseReport, Fate, WhyReport
from jackline.transcripts.story import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ROW, _TOP, _BOTTOM = 16, 18, 22
# More lines would hide the rows.
_MOST_CAUSE_LINES = 3
_MOST_CAUSES = 6
_MOST_MARKS = 7
# Above this many rows the finished agents are folded away.
_MOST_ROWS = 150
# The sign of each fate, and its class in page.css.
_SIGNS = {
    Fate.FINISHED: ("✓", "finished"),
    Fate.STOPPED: ("✕", "stopped"),
    Fate.UNEXPLAINED: ("!", "stopped"),
    Fate.CUT: ("◌", "cut"),
    Fate.RUNNING: ("▸", "running"),
}
_STEPS = tuple(
    timedelta(seconds=seconds)
    for seconds in (1, 2, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)
)


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


HtmlChild: TypeAlias = "str | Markup | None"


def page(report: WhyReport) -> str:
    """The whole page."""
    css = files("jackline.autopsy").joinpath("page.css").read_text(encoding="utf-8")
    digest = b64encode(hashlib.sha256(css.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="dark light"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"jackline why: {report.verdict}"),
        # Our own style sheet comes from the package and must not be escaped.
        element("style", Markup(css)),
    )
    return f"<!doctype html>\n{element('html', head, _Page(report).body(), lang='en')}\n"


def element(name: str, /, *children: HtmlChild, **attributes: str | float | None) -> Markup:
    """One element; in attribute names `_` means `-`, and a trailing one is dropped."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name == "meta":
        return Markup(f"<{name}{shown}>")
    inner = (
        child if isinstance(child, Markup) else escape(child, quote=False)
        for child in children
        if child is not None
    )
    return Markup(f"<{name}{shown}>{''.join(inner)}</{name}>")


@dataclass(frozen=True, slots=True)
class Axis:
    """A stretch of time laid over the width of the drawing."""

    start: datetime
    end: datetime
    zone: tzinfo | None

    @classmethod
    def over(cls, agents: Iterable[AgentFate], causes: Sequence[CauseReport]) -> Axis | None:
        """The time from the first start to the last end, and to a reset if that is not far."""
        moments = [m for a in agents for m in (a.story.started_at, a.story.ended_at) if m]
        if not moments:
            return None
        start, end = min(moments), max(moments)
        span = max(end - start, timedelta(seconds=1))
        resets = [c.cause.resets_at for c in causes if c.cause.resets_at is not None]
        near = [reset for reset in resets if end < reset <= end + span / 2]
        zone = resets[0].tzinfo if resets else start.tzinfo
        return cls(start, max([end + span / 50, *(reset + span / 20 for reset in near)]), zone)

    def at(self, moment: datetime) -> float:
        """The position of a moment, in percent of the width."""
        share = (moment - self.start) / (self.end - self.start) * 100
        return round(min(max(share, 0.0), 100.0), 3)

    def line(self, moment: datetime, top: float, bottom: float, kind: str | None) -> Markup:
        """A vertical line at a moment."""
        x = f"{self.at(moment)}%"
        return element("line", x1=x, x2=x, y1=top, y2=bottom, class_=kind)

    def marks(self) -> list[tuple[datetime, str]]:
        """Round moments with their labels: seconds or days only where they differ."""
        span = self.end - self.start
        step = next((s for s in _STEPS if span / s <= _MOST_MARKS), None)
        if step is None:
            step = timedelta(days=-(-span // timedelta(days=_MOST_MARKS)))
        form = "%H:%M:%S" if span < timedelta(minutes=5) else "%H:%M"
        form = f"%m-%d {form}" if span > timedelta(days=1) else form
        start = self.start.astimezone(self.zone)
        midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
        moment = midnight + ((self.start - midnight) // step + 1) * step
        marks = []
        while moment < self.end:
            marks.append((moment, moment.astimezone(self.zone).strftime(form)))
            moment += step
        return marks


class _Timeline:
    """The drawing with one row per agent."""

    def __init__(self, axis: Axis, causes: Sequence[CauseReport]) -> None:
        self.axis = axis
        self._causes = causes

    def draw(self, agents: Sequence[AgentFate]) -> Markup:
        """The rows, with their names beside them."""
        height = _TOP + len(agents) * _ROW + _BOTTOM
        names = []
        for agent in agents:
            story = agent.story
            name = agent.label or ("main session" if story.role is Role.MAIN else story.agent_id)
            title = f"{story.agent_id}, {agent.fate.value}"
            names.append(element("li", _glyph(agent.fate), " ", name, title=title))
        drawing = element(
            "svg",
            *self._grid(height),
            *self._cause_lines(height),
            *(self._row(agent, position) for position, agent in enumerate(agents)),
            role="list",
            aria_label="Timeline, one row per agent",
            class_="drawing",
            width="100%",
            height=height,
        )
        canvas = element("div", drawing, class_="canvas")
        return element("div", element("ol", *names, class_="names"), canvas, class_="timeline")

    def _grid(self, height: int) -> list[Markup]:
        parts = []
        for number, (moment, label) in enumerate(self.axis.marks()):
            x, kind = f"{self.axis.at(moment)}%", f"mark {'odd' if number % 2 else ''}"
            parts.append(self.axis.line(moment, _TOP, height - _BOTTOM, "grid"))
            parts.append(element("text", label, x=x, y=height - 6, class_=kind))
        return parts

    def _cause_lines(self, height: int) -> list[Markup]:
        axis, parts = self.axis, []
        for described in self._causes[:_MOST_CAUSE_LINES]:
            spending = described.spending
            moments = (
                (spending.point if spending else None, "no-return", "no success after"),
                (described.cause.resets_at, "reset", "reset"),
            )
            for moment, kind, name in moments:
                if moment is None or not axis.start <= moment <= axis.end:
                    continue
                local = moment.astimezone(axis.zone)
                title = f"{name}: {clock(local, beside=axis.start, seconds=True)}"
                side = "end" if axis.at(moment) > 50 else "start"
                text = element(
                    "text",
                    f" {name} {local:%H:%M} ",
                    x=f"{axis.at(moment)}%",
                    y=12,
                    class_=f"wall-name {side}",
                )
                line = axis.line(moment, 4, height - _BOTTOM, "wall-line")
                group = element("g", element("title", title), line, text, class_=f"wall {kind}")
                parts.append(group)
        return parts

    def _row(self, agent: AgentFate, position: int) -> Markup:
        axis, story, top = self.axis, agent.story, _TOP + position * _ROW
        left = axis.at(story.started_at or axis.start)
        right = axis.at(story.ended_at or axis.end)
        width = f"{max(right - left, 0.25):.3f}%"
        bar = element("rect", x=f"{left}%", width=width, y=top + 4, height=_ROW - 8, rx=2)
        ticks = [
            axis.line(seen.at, top + 1, top + _ROW - 1, "tick fatal" if seen.fatal else "tick")
            for seen in story.failures
            if seen.at is not None
        ]
        text = self.describe(agent)
        return element(
            "g",
            element("title", text),
            bar,
            *ticks,
            role="listitem",
            aria_label=text,
            class_=f"row {_SIGNS[agent.fate][1]}",
        )

    def describe(self, agent: AgentFate) -> str:
        """One agent's row as text."""
        story, fate = agent.story, agent.fate.value
        if agent.cause is not None:
            fate = f"stopped by {self._causes[agent.cause - 1].name}"
        parts = [f"{story.agent_id}: {fate}"]
        if story.started_at is not None and story.ended_at is not None:
            begun = story.started_at.astimezone(self.axis.zone)
            took = duration(story.ended_at - story.started_at)
            start = clock(begun, beside=self.axis.start, seconds=True)
            parts.append(f"began {start}, lasted {took}")
        parts.append(f"at least {story.tokens:,} tokens")
        return "; ".join(parts)


def _glyph(fate: Fate) -> Markup:
    sign, kind = _SIGNS[fate]
    return element("span", sign, class_=f"glyph {kind}")


def _card(title: str, *children: HtmlChild, command: str | None = None, kind: str = "") -> Markup:
    aside = element("code", command, class_="twin") if command else None
    heading = element("div", element("h2", title), aside, class_="card-head")
    return element("section", heading, *children, class_=f"card {kind}".strip())


def _table(headings: Iterable[str], rows: Iterable[Markup]) -> Markup:
    head = element("tr", *(element("th", name, scope="col") for name in headings))
    table = element("table", element("thead", head), element("tbody", *rows))
    return element("div", table, class_="scroll")


class _Page:
    """The parts of the page, each None where the report has nothing for it."""

    def __init__(self, report: WhyReport) -> None:
        self._report = report
        axis = Axis.over(report.agents, report.causes)
        self._timeline = None if axis is None else _Timeline(axis, report.causes)

    def body(self) -> Markup:
        report = self._report
        brand = element("p", element("b", "jackline"), f" {__version__} · why", class_="brand")
        synthetic = None
        if report.synthetic:
            text = "Synthetic replica: no real agent, no real account."
            synthetic = element("p", text, class_="note")
        more = None
        if len(report.causes) > _MOST_CAUSES:
            rest = report.causes[_MOST_CAUSES:]
            summary = element("summary", f"{counted(len(rest), 'more cause')}")
            more = element("details", summary, self._causes(rest), class_="more")
        side = (
            self._advice(),
            self._resume(),
            self._caches(),
            self._finished(),
            self._looked_at(),
        )
        columns = (
            element("div", self._reported(), self._agents(), class_="wide"),
            element("div", *side, class_="side"),
        )
        footer = (
            f"Written {clock(report.now, seconds=True)} by jackline why. "
            "Prompts, answers and tool output are left out unless --show-content is given."
        )
        return element(
            "body",
            element("header", element("h1", report.verdict), brand, synthetic),
            element(
                "main",
                self._causes(report.causes[:_MOST_CAUSES]),
                more,
                element("div", *columns, class_="columns"),
                self._agent_table(),
            ),
            element("footer", footer),
        )

    def _causes(self, causes: Sequence[CauseReport]) -> Markup:
        return element(
            "section", *(self._cause(described) for described in causes), class_="causes"
        )

    def _cause(self, described: CauseReport) -> Markup:
        rows = [
            part
            for name, text in described.facts()
            for part in (element("dt", name), element("dd", text))
        ]
        quotes = [
            element("blockquote", text, " ", element("small", times(count)))
            for text, count in described.texts[:2]
        ]
        return _card(
            f"{_SIGNS[Fate.STOPPED][0]} {described.name}",
            self._figures(described),
            *quotes,
            self._strip(described),
            element("dl", *rows),
            kind="cause wall" if described.cause.resets_at is not None else "cause broken",
        )

    def _figures(self, described: CauseReport) -> Markup:
        """The most important numbers, large."""
        cause, pattern = described.cause, described.pattern
        agents = "agent stopped" if len(cause.agents) == 1 else "agents stopped"
        shown = [(f"{len(cause.agents):,}", agents)]
        if cause.resets_at is not None:
            full = clock(cause.resets_at, beside=cause.first_at)
            shown.append((f"{cause.resets_at:%H:%M}", f"reset: {full}"))
        if pattern.span is not None and pattern.median_interval is not None:
            every = f", every {duration(pattern.median_interval)}" if pattern.count > 2 else ""
            shown.append((duration(pattern.span), f"{pattern.count:,} occurrences{every}"))
        if described.spending is not None:
            spent = described.spending.before + described.spending.after
            shown.append((f"{spent:,}", "tokens at least, before and after"))
        items = [
            element("li", element("b", big), " ", element("span", small)) for big, small in shown
        ]
        return element("ul", *items, class_="figures")

    def _strip(self, described: CauseReport) -> Markup | None:
        """One tick per occurrence, from the first to the last."""
        cause, pattern = described.cause, described.pattern
        if pattern.first is None or pattern.last is None or pattern.first == pattern.last:
            return None
        zone = cause.resets_at.tzinfo if cause.resets_at else None
        span = pattern.last - pattern.first
        axis = Axis(pattern.first - span / 50, pattern.last + span / 50, zone)
        times_seen = [o.seen.at for o in cause.occurrences if o.seen.at is not None]
        first, last = (f"{m.astimezone(zone):%H:%M:%S}" for m in (pattern.first, pattern.last))
        return element(
            "svg",
            *(axis.line(at, 4, 24, None) for at in times_seen),
            element("text", first, x="0", y=40),
            element("text", last, x="100%", y=40, class_="end"),
            role="img",
            aria_label=f"{pattern.count} occurrences in {duration(span)}",
            class_="strip",
            width="100%",
            height=46,
        )

    def _reported(self) -> Markup | None:
        rows = []
        for row, actual, is_wrong in self._report.reported_rows():
            kind = "glyph stopped" if is_wrong else "glyph"
            mark = element("span", "≠ " if is_wrong else "= ", class_=kind)
            rows.append(
                element(
                    "tr",
                    element("td", f"{row.count:,}", class_="figure"),
                    element("td", row.reported_text()),
                    element("td", mark, actual),
                )
            )
        return (
            _card("Reported vs. actual", _table(("times", "reported", "actual"), rows))
            if rows
            else None
        )

    def _agents(self) -> Markup | None:
        report, timeline = self._report, self._timeline
        if timeline is None:
            return None
        finished = report.having(Fate.FINISHED)
        if len(report.agents) <= _MOST_ROWS:
            drawings = [timeline.draw(report.agents)]
        else:
            summary = element("summary", f"{counted(len(finished), 'agent')} finished")
            others = [a for a in report.agents if a.fate is not Fate.FINISHED]
            drawings = [
                timeline.draw(others),
                element("details", summary, timeline.draw(finished)),
            ]
        axis = timeline.axis
        count = Counter(agent.fate for agent in report.agents)
        legend = [
            element("li", _glyph(fate), f" {fate.value} {count[fate]:,}")
            for fate in Fate
            if count[fate]
        ]
        if any(described.spending for described in report.causes):
            glyph = element("span", "│", class_="glyph no-return")
            legend.append(element("li", glyph, " no success after"))
        resets = [c.cause.resets_at for c in report.causes if c.cause.resets_at is not None]
        for reset in dict.fromkeys(resets):
            drawn = axis.start <= reset <= axis.end
            text = " reset" if drawn else f" reset {reset:%H:%M}, outside this picture"
            sign = "│" if drawn else "→" if reset > axis.end else "←"
            legend.append(element("li", element("span", sign, class_="glyph reset"), text))
        begun = clock(axis.start.astimezone(axis.zone), seconds=True)
        span = element("p", f"{duration(axis.end - axis.start)} from {begun}", class_="quiet")
        shown_legend = element("ul", *legend, class_="legend")
        return _card("Agents", shown_legend, *drawings, span, command="jackline why")

    def _advice(self) -> Markup | None:
        causes = self._report.causes
        parts: list[HtmlChild] = []
        for described in causes:
            parts.append(element("h3", described.name) if len(causes) > 1 else None)
            parts += [element("p", sentence) for sentence in described.advice]
        return _card("What to do now", *parts) if causes else None

    def _caches(self) -> Markup | None:
        waits = self._report.lapsed_waits
        texts = (waits_sentence(waits), LONGER_LIFE_ADVICE)
        return _card("Prompt caches", *(element("p", text) for text in texts)) if waits else None

    def _resume(self) -> Markup | None:
        options = self._report.resume_options
        parts: list[HtmlChild] = []
        for option in options:
            parts.append(element("p", option.heading(self._report.now)))
            if option.command is not None:
                parts.append(element("pre", element("code", option.command)))
            if option.then:
                parts.append(element("p", option.then_text, class_="quiet"))
        return _card("To resume", *parts) if options else None

    def _finished(self) -> Markup | None:
        found = self._report.result_files()
        items = [
            element("li", element("code", file), f" ({count})" if count > 1 else None)
            for file, count in found[:12]
        ]
        rest = len(found) - len(items)
        more = element("p", f"and {rest} more, listed below", class_="quiet") if rest > 0 else None
        finished = counted(len(self._report.having(Fate.FINISHED)), "agent")
        title = f"{finished} finished; results are in"
        return _card(title, element("ul", *items), more) if found else None

    def _looked_at(self) -> Markup:
        report = self._report
        read = (
            f"{counted(report.files_read, 'file')}, {size(report.bytes_read)}, "
            f"{report.tokens_text}."
        )
        items = [
            element("li", element("code", str(p.path)), f" {p.what} ({times(p.count)})")
            for p in report.problems[:50]
        ]
        return _card("Looked at", element("p", read), element("ul", *items) if items else None)

    def _agent_table(self) -> Markup | None:
        if self._timeline is None:
            return None
        rows = []
        for agent in self._report.agents:
            story = agent.story
            content = [
                element("p", text, class_="quiet")
                for text in (agent.label, agent.last_words)
                if text
            ]
            rows.append(
                element(
                    "tr",
                    element("td", element("code", story.agent_id)),
                    element("td", _glyph(agent.fate), f" {agent.fate.value}"),
                    element("td", element("code", story.result_at or str(story.path))),
                    element("td", self._timeline.describe(agent), *content),
                )
            )
        table = _table(("agent", "fate", "result or transcript", "summary"), rows)
        summary = element("summary", f"All {counted(len(rows), 'agent')}, as a table")
        return element("section", element("details", summary, table), class_="card")
