"""Render a report as one self-contained HTML page: verdict, causes, timeline, reported vs. actual.

Rules: (1) no network and no script: the page's own policy forbids both; (2) elements escape every
plain string, and there is no style attribute, so that the policy can forbid those too; (3) the
first line is the verdict; (4) positions are percentages, so that the drawing fits any width; (5)
state is shown by colour, sign and word together, and a screen reader can read every row.
Not here: the styles (page.css).
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
from jackline.autopsy.agent_reports import ReportedOutcome
from jackline.autopsy.figures import clock, clock_span, counted, duration, size, times
from jackline.autopsy.lapsed_caches import LIVES_LONGER, waits_sentence
from jackline.autopsy.report import AgentFate, CauseReport, Fate, WhyReport, result_places
from jackline.autopsy.sentences import (
    happened_phrase,
    in_its_zone,
    reported_phrase,
    retry_sentence,
    spending_sentence,
    tokens_phrase,
)
from jackline.transcripts.story import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_VOID = frozenset({"meta", "br", "link"})


class Markup(str):
    """Text that is already HTML; only `element` makes it."""

    __slots__ = ()


HtmlChild: TypeAlias = "str | Markup | None"


def element(name: str, /, *children: HtmlChild, **attributes: str | float | None) -> Markup:
    """One element; in attribute names `_` stands for `-`, a trailing one for nothing."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{shown}>")
    return Markup(f"<{name}{shown}>{together(*children)}</{name}>")


def together(*children: HtmlChild) -> Markup:
    """Several parts as one, each plain string escaped."""
    return Markup(
        "".join(
            child if isinstance(child, Markup) else escape(child, quote=False)
            for child in children
            if child is not None
        )
    )


def trusted(text: str) -> Markup:
    """Our own style sheet, which comes from the package and must not be escaped."""
    return Markup(text)


ROW = 16
TOP = 18
AXIS = 22
# More lines would hide the rows.
MANY_WALLS = 3
GLYPHS = {
    Fate.FINISHED: "✓",
    Fate.STOPPED: "✕",
    Fate.UNEXPLAINED: "!",
    Fate.CUT: "◌",
    Fate.RUNNING: "▸",
}
CLASSES = {
    Fate.FINISHED: "finished",
    Fate.STOPPED: "stopped",
    Fate.UNEXPLAINED: "stopped",
    Fate.CUT: "cut",
    Fate.RUNNING: "running",
}
_STEPS = tuple(
    timedelta(seconds=seconds)
    for seconds in (1, 2, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)
)


@dataclass(frozen=True, slots=True)
class Axis:
    """A stretch of time laid over the width of the drawing."""

    start: datetime
    end: datetime
    zone: tzinfo | None

    def at(self, moment: datetime) -> float:
        """Where a moment stands, in percent of the width."""
        share = (moment - self.start) / (self.end - self.start) * 100
        return round(min(max(share, 0.0), 100.0), 3)

    def percent(self, moment: datetime) -> str:
        """The same, as SVG wants it."""
        return f"{self.at(moment)}%"

    def marks(self, most: int = 7) -> list[datetime]:
        """Round moments to label the axis with."""
        span = self.end - self.start
        step = next((s for s in _STEPS if span / s <= most), None)
        if step is None:
            step = timedelta(days=-(-span // timedelta(days=most)))
        midnight = self.start.astimezone(self.zone).replace(
            hour=0, minute=0, second=0, microsecond=0
        )
        moment = midnight + ((self.start - midnight) // step + 1) * step
        marks = []
        while moment < self.end:
            marks.append(moment)
            moment += step
        return marks

    def label(self, moment: datetime) -> str:
        """A mark's words: seconds or days only where they differ between marks."""
        span = self.end - self.start
        form = "%H:%M:%S" if span < timedelta(minutes=5) else "%H:%M"
        return (
            f"{moment.astimezone(self.zone):{'%m-%d ' if span > timedelta(days=1) else ''}{form}}"
        )


def axis_over(agents: Iterable[AgentFate], causes: Sequence[CauseReport]) -> Axis | None:
    """The time from the first start to the last end, and to a reset if that is not far."""
    moments = [m for a in agents for m in (a.story.started_at, a.story.ended_at) if m is not None]
    if not moments:
        return None
    start, end = min(moments), max(moments)
    room = max(end - start, timedelta(seconds=1))
    resets = [c.cause.resets_at for c in causes if c.cause.resets_at is not None]
    near = [reset for reset in resets if end < reset <= end + room / 2]
    zone = resets[0].tzinfo if resets else start.tzinfo
    return Axis(start, max([end + room / 50, *(reset + room / 20 for reset in near)]), zone)


def draw_agents(agents: Sequence[AgentFate], causes: Sequence[CauseReport], axis: Axis) -> Markup:
    """The rows, with their names beside them."""
    height = TOP + len(agents) * ROW + AXIS
    names = element("ol", *(_name(agent) for agent in agents), class_="names")
    drawing = element(
        "svg",
        *_grid(axis, height),
        *_walls(causes, axis, height),
        *(_row(agent, position, axis, causes) for position, agent in enumerate(agents)),
        role="list",
        aria_label="Timeline, one row per agent",
        class_="drawing",
        width="100%",
        height=height,
    )
    return element("div", names, element("div", drawing, class_="canvas"), class_="timeline")


def _name(agent: AgentFate) -> Markup:
    story = agent.story
    name = agent.label or ("main session" if story.role is Role.MAIN else story.agent_id)
    glyph = element("span", GLYPHS[agent.fate], class_=f"glyph {CLASSES[agent.fate]}")
    return element("li", glyph, " ", name, title=f"{story.agent_id}, {agent.fate.value}")


def _grid(axis: Axis, height: int) -> list[Markup]:
    parts = []
    for number, mark in enumerate(axis.marks()):
        x = axis.percent(mark)
        line = element("line", x1=x, x2=x, y1=TOP, y2=height - AXIS, class_="grid")
        text = element(
            "text",
            axis.label(mark),
            x=x,
            y=height - 6,
            class_=f"mark {'odd' if number % 2 else ''}",
        )
        parts += [line, text]
    return parts


def _walls(causes: Sequence[CauseReport], axis: Axis, height: int) -> list[Markup]:
    parts = []
    for described in causes[:MANY_WALLS]:
        moments = (
            (described.spending.point if described.spending else None, "no-return", "no way on"),
            (described.cause.resets_at, "reset", "reset"),
        )
        for moment, kind, words in moments:
            if moment is None or not axis.start <= moment <= axis.end:
                continue
            x = axis.percent(moment)
            title = (
                f"{words}: {clock(moment.astimezone(axis.zone), beside=axis.start, seconds=True)}"
            )
            line = element("line", x1=x, x2=x, y1=4, y2=height - AXIS, class_="wall-line")
            side = "end" if axis.at(moment) > 50 else "start"
            shown = f" {words} {moment.astimezone(axis.zone):%H:%M} "
            text = element("text", shown, x=x, y=12, class_=f"wall-name {side}")
            parts.append(element("g", element("title", title), line, text, class_=f"wall {kind}"))
    return parts


def _row(agent: AgentFate, position: int, axis: Axis, causes: Sequence[CauseReport]) -> Markup:
    story = agent.story
    words = describe(agent, causes, axis)
    begun, ended = story.started_at or axis.start, story.ended_at or axis.end
    left, right = axis.at(begun), axis.at(ended)
    top = TOP + position * ROW
    bar = element(
        "rect",
        x=f"{left}%",
        width=f"{max(right - left, 0.25):.3f}%",
        y=top + 4,
        height=ROW - 8,
        rx=2,
    )
    ticks = [
        element(
            "line",
            x1=axis.percent(sighting.at),
            x2=axis.percent(sighting.at),
            y1=top + 1,
            y2=top + ROW - 1,
            class_="tick fatal" if sighting.fatal else "tick",
        )
        for sighting in story.sightings
        if sighting.at is not None
    ]
    return element(
        "g",
        element("title", words),
        bar,
        *ticks,
        role="listitem",
        aria_label=words,
        class_=f"row {CLASSES[agent.fate]}",
    )


def describe(agent: AgentFate, causes: Sequence[CauseReport], axis: Axis) -> str:
    """One agent's row in words."""
    story = agent.story
    fate = agent.fate.value
    if agent.cause is not None:
        fate = f"stopped by {causes[agent.cause - 1].name}"
    parts = [f"{story.agent_id}: {fate}"]
    if story.started_at is not None and story.ended_at is not None:
        begun = story.started_at.astimezone(axis.zone)
        took = duration(story.ended_at - story.started_at)
        parts.append(f"began {clock(begun, beside=axis.start, seconds=True)}, lasted {took}")
    parts.append(f"at least {story.tokens:,} tokens")
    return "; ".join(parts)


def draw_meetings(described: CauseReport, zone: tzinfo | None) -> Markup | None:
    """A strip with one tick per meeting, from the first to the last: the rhythm, seen."""
    rhythm = described.rhythm
    if rhythm.first is None or rhythm.last is None or rhythm.first == rhythm.last:
        return None
    room = rhythm.last - rhythm.first
    axis = Axis(rhythm.first - room / 50, rhythm.last + room / 50, zone)
    ticks = [
        element("line", x1=axis.percent(met.at), x2=axis.percent(met.at), y1=4, y2=24)
        for met in described.cause.meetings
        if met.at is not None
    ]
    labels = [
        element("text", f"{rhythm.first.astimezone(zone):%H:%M:%S}", x="0", y=40),
        element("text", f"{rhythm.last.astimezone(zone):%H:%M:%S}", x="100%", y=40, class_="end"),
    ]
    return element(
        "svg",
        *ticks,
        together(*labels),
        role="img",
        aria_label=f"{rhythm.count} meetings in {duration(room)}",
        class_="strip",
        width="100%",
        height=46,
    )


# Above so many rows the finished agents, who are no news, are folded away.
MANY_ROWS = 150
MANY_CAUSES = 6


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
        element("style", trusted(css)),
    )
    body = element("body", _header(report), _main(report), _footer(report))
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _header(report: WhyReport) -> Markup:
    brand = element("p", element("b", "jackline"), f" {__version__} · why", class_="brand")
    synthetic = None
    if report.synthetic:
        synthetic = element(
            "p", "Synthetic replica: no real agent, no real account.", class_="note"
        )
    return element("header", element("h1", report.verdict), brand, synthetic)


def _main(report: WhyReport) -> Markup:
    axis = axis_over(report.agents, report.causes)
    wide = [_told(report), _fleet(report, axis) if axis else None]
    parts = (_advice, _resume, _caches, _finished, _troubles)
    side = [part(report) for part in parts]
    return element(
        "main",
        _causes(report.causes[:MANY_CAUSES]),
        _more_causes(report.causes[MANY_CAUSES:]),
        element(
            "div",
            element("div", *wide, class_="wide"),
            element("div", *side, class_="side"),
            class_="columns",
        ),
        _everyone(report, axis) if axis else None,
    )


def _causes(causes: Sequence[CauseReport]) -> Markup:
    return element("section", *(_cause(described) for described in causes), class_="causes")


def _more_causes(causes: Sequence[CauseReport]) -> Markup | None:
    if not causes:
        return None
    summary = element("summary", f"{counted(len(causes), 'more cause')}")
    return element("details", summary, _causes(causes), class_="more")


def _card(title: str, *children: HtmlChild, twin: str | None = None, kind: str = "") -> Markup:
    aside = element("code", twin, class_="twin") if twin else None
    heading = element("div", element("h2", title), aside, class_="card-head")
    return element("section", heading, *children, class_=f"card {kind}".strip())


def _cause(described: CauseReport) -> Markup:
    cause = described.cause
    rows: list[HtmlChild] = []
    if described.rhythm.first is not None and described.rhythm.last is not None:
        began = in_its_zone(cause, described.rhythm.first)
        rows += _pair("When", clock_span(began, described.rhythm.last))
    rows += _pair("How often", retry_sentence(described.rhythm))
    rows += _pair("Spent", spending_sentence(cause, described.spending))
    for miss, count in described.misses:
        rows += _pair("How missed", f"{counted(count, 'agent')}: {miss}")
    words = [
        element("blockquote", text, " ", element("small", times(n)))
        for text, n in described.texts[:2]
    ]
    zone = cause.resets_at.tzinfo if cause.resets_at else None
    title = f"{GLYPHS[Fate.STOPPED]} {described.name}"
    kind = "wall" if cause.resets_at is not None else "broken"
    strip = draw_meetings(described, zone)
    return _card(
        title, _figures(described), *words, strip, element("dl", *rows), kind=f"cause {kind}"
    )


def _figures(described: CauseReport) -> Markup:
    """The few numbers that tell most, large."""
    cause, rhythm = described.cause, described.rhythm
    agents = "agent stopped" if len(cause.agents) == 1 else "agents stopped"
    shown = [(f"{len(cause.agents):,}", agents)]
    if cause.resets_at is not None:
        full = clock(cause.resets_at, beside=cause.first_at)
        shown.append((f"{cause.resets_at:%H:%M}", f"reset: {full}"))
    if rhythm.span is not None and rhythm.median_interval is not None:
        every = f", every {duration(rhythm.median_interval)}" if rhythm.count > 2 else ""
        shown.append((duration(rhythm.span), f"{rhythm.count:,} meetings{every}"))
    if described.spending is not None:
        spent = described.spending.before + described.spending.after
        shown.append((f"{spent:,}", "tokens at least, before and after"))
    return element(
        "ul",
        *(element("li", element("b", big), " ", element("span", small)) for big, small in shown),
        class_="figures",
    )


def _pair(name: str, text: str) -> list[HtmlChild]:
    return [element("dt", name), element("dd", text)]


def _fleet(report: WhyReport, axis: Axis) -> Markup:
    legend = element("ul", *_legend(report, axis), class_="legend")
    if len(report.agents) <= MANY_ROWS:
        drawing = draw_agents(report.agents, report.causes, axis)
    else:
        news = [a for a in report.agents if a.fate is not Fate.FINISHED]
        finished = report.having(Fate.FINISHED)
        summary = element("summary", f"{counted(len(finished), 'agent')} finished")
        drawing = together(
            draw_agents(news, report.causes, axis),
            element("details", summary, draw_agents(finished, report.causes, axis)),
        )
    begun = clock(axis.start.astimezone(axis.zone), seconds=True)
    span = f"{duration(axis.end - axis.start)} from {begun}"
    return _card("Agents", legend, drawing, element("p", span, class_="quiet"), twin="jackline why")


def _legend(report: WhyReport, axis: Axis) -> list[Markup]:
    count = Counter(agent.fate for agent in report.agents)
    items = [
        element(
            "li",
            element("span", GLYPHS[fate], class_=f"glyph {CLASSES[fate]}"),
            f" {fate.value} {count[fate]:,}",
        )
        for fate in Fate
        if count[fate]
    ]
    if any(described.spending for described in report.causes):
        items.append(element("li", element("span", "│", class_="glyph no-return"), " no way on"))
    resets = [c.cause.resets_at for c in report.causes if c.cause.resets_at is not None]
    for reset in dict.fromkeys(resets):
        drawn = axis.start <= reset <= axis.end
        words = " reset" if drawn else f" reset {reset:%H:%M}, outside this picture"
        glyph = "│" if drawn else "→" if reset > axis.end else "←"
        items.append(element("li", element("span", glyph, class_="glyph reset"), words))
    return items


def _told(report: WhyReport) -> Markup | None:
    rows = []
    total = counted(len(report.agents), "agent")
    for row in report.told_to_user if report.causes else ():
        stopped = f"{len(report.having(Fate.STOPPED)):,} of {total} stopped"
        rows.append(
            _told_row(
                row.count, reported_phrase(row), stopped, wrong=row.heard is ReportedOutcome.SUCCESS
            )
        )
    for described in report.causes:
        for row in described.told:
            wrong = row.heard in {
                ReportedOutcome.SUCCESS,
                ReportedOutcome.ANOTHER_CAUSE,
                ReportedOutcome.NOTHING,
            }
            happened = happened_phrase(row, described.name)
            rows.append(_told_row(row.count, reported_phrase(row), happened, wrong=wrong))
    if not rows:
        return None
    names = ("times", "what was told", "what happened")
    head = element("tr", *(element("th", name, scope="col") for name in names))
    table = element("table", element("thead", head), element("tbody", *rows))
    return _card("What was told, beside what happened", element("div", table, class_="scroll"))


def _told_row(count: int, said: str, happened: str, *, wrong: bool) -> Markup:
    mark = element("span", "≠ " if wrong else "= ", class_="glyph stopped" if wrong else "glyph")
    return element(
        "tr",
        element("td", f"{count:,}", class_="figure"),
        element("td", said),
        element("td", mark, happened),
    )


def _advice(report: WhyReport) -> Markup | None:
    if not report.causes:
        return None
    parts: list[HtmlChild] = []
    for described in report.causes:
        if len(report.causes) > 1:
            parts.append(element("h3", described.name))
        parts += [element("p", sentence) for sentence in described.advice]
    return _card("What to do now", *parts)


def _caches(report: WhyReport) -> Markup | None:
    if not report.lapsed_waits:
        return None
    sentence = waits_sentence(report.lapsed_waits)
    return _card("Prompt caches", element("p", sentence), element("p", LIVES_LONGER))


def _resume(report: WhyReport) -> Markup | None:
    if not report.ways:
        return None
    parts: list[HtmlChild] = []
    for way in report.ways:
        when = (
            "now" if way.not_before is None else f"from {clock(way.not_before, beside=report.now)}"
        )
        parts.append(element("p", f"{counted(len(way.agents), 'agent')}, {when}:"))
        if way.command is not None:
            parts.append(element("pre", element("code", way.command)))
        then = f"then {way.then}" if way.command else way.then
        parts.append(element("p", then, class_="quiet") if way.then else None)
    return _card("To resume", *parts)


def _finished(report: WhyReport) -> Markup | None:
    finished = report.having(Fate.FINISHED)
    if not finished:
        return None
    places = result_places(finished)
    items = [
        element("li", element("code", place), f" ({count})" if count > 1 else None)
        for place, count in places[:12]
    ]
    rest = len(places) - len(items)
    more = element("p", f"and {rest} more, listed below", class_="quiet") if rest > 0 else None
    return _card(
        f"{counted(len(finished), 'agent')} finished; results are in", element("ul", *items), more
    )


def _troubles(report: WhyReport) -> Markup:
    looked = (
        f"{counted(report.files_read, 'file')}, {size(report.bytes_read)}, "
        f"{tokens_phrase(report.tokens, report.main_tokens)}."
    )
    items = [
        element(
            "li", element("code", str(trouble.path)), f" {trouble.what} ({times(trouble.count)})"
        )
        for trouble in report.troubles[:50]
    ]
    listing = element("ul", *items) if items else None
    return _card("Looked at", element("p", looked), listing)


def _everyone(report: WhyReport, axis: Axis) -> Markup:
    names = ("agent", "fate", "result or transcript", "in words")
    head = element("tr", *(element("th", name, scope="col") for name in names))
    rows = [_everyone_row(agent, report, axis) for agent in report.agents]
    table = element("table", element("thead", head), element("tbody", *rows))
    summary = element("summary", f"All {counted(len(report.agents), 'agent')}, as a table")
    folded = element("details", summary, element("div", table, class_="scroll"))
    return element("section", folded, class_="card")


def _everyone_row(agent: AgentFate, report: WhyReport, axis: Axis) -> Markup:
    story = agent.story
    content = [
        element("p", text, class_="quiet") for text in (agent.label, agent.last_words) if text
    ]
    glyph = element("span", GLYPHS[agent.fate], class_=f"glyph {CLASSES[agent.fate]}")
    return element(
        "tr",
        element("td", element("code", story.agent_id)),
        element("td", glyph, f" {agent.fate.value}"),
        element("td", element("code", story.result_at or str(story.path))),
        element("td", describe(agent, report.causes, axis), *content),
    )


def _footer(report: WhyReport) -> Markup:
    written = f"Written {clock(report.now, seconds=True)} by jackline why. "
    hidden = "Prompts, answers and tool output are left out unless --show-content is given."
    return element("footer", written, hidden)
