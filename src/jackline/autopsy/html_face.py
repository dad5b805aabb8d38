"""Show a report as one self-contained page: verdict, causes, timeline, told beside happened.

Laws: (1) no network, no script: the page's own policy forbids both; (2) everything is escaped by
construction (html_parts.py); (3) the first line is the verdict.
Not here: the drawings (html_timeline.py), the looks (page.css).
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections import Counter
from importlib.resources import files
from typing import TYPE_CHECKING

from jackline import __version__
from jackline.autopsy.figures import clock, clock_span, counted, duration, size, times
from jackline.autopsy.hearsay import Heard
from jackline.autopsy.html_parts import Child, Markup, element, together, trusted
from jackline.autopsy.html_timeline import (
    CLASSES,
    GLYPHS,
    Axis,
    axis_over,
    describe,
    draw_agents,
    draw_meetings,
)
from jackline.autopsy.lapsed_waits import LIVES_LONGER, waits_sentence
from jackline.autopsy.report import AgentFate, CauseReport, Fate, Report, result_places
from jackline.autopsy.sentences import (
    happened_phrase,
    in_its_zone,
    rhythm_sentence,
    spending_sentence,
    tokens_phrase,
    told_phrase,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

# Above so many rows the finished agents, who are no news, are folded away.
MANY_ROWS = 150
MANY_CAUSES = 6


def page(report: Report) -> str:
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


def _header(report: Report) -> Markup:
    brand = element("p", element("b", "jackline"), f" {__version__} · why", class_="brand")
    synthetic = None
    if report.synthetic:
        synthetic = element(
            "p", "Synthetic replica: no real agent, no real account.", class_="note"
        )
    return element("header", element("h1", report.verdict), brand, synthetic)


def _main(report: Report) -> Markup:
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


def _card(title: str, *children: Child, twin: str | None = None, kind: str = "") -> Markup:
    aside = element("code", twin, class_="twin") if twin else None
    heading = element("div", element("h2", title), aside, class_="card-head")
    return element("section", heading, *children, class_=f"card {kind}".strip())


def _cause(described: CauseReport) -> Markup:
    cause = described.cause
    rows: list[Child] = []
    if described.rhythm.first is not None and described.rhythm.last is not None:
        began = in_its_zone(cause, described.rhythm.first)
        rows += _pair("When", clock_span(began, described.rhythm.last))
    rows += _pair("How often", rhythm_sentence(described.rhythm))
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


def _pair(name: str, text: str) -> list[Child]:
    return [element("dt", name), element("dd", text)]


def _fleet(report: Report, axis: Axis) -> Markup:
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


def _legend(report: Report, axis: Axis) -> list[Markup]:
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


def _told(report: Report) -> Markup | None:
    rows = []
    total = counted(len(report.agents), "agent")
    for row in report.told_to_user if report.causes else ():
        stopped = f"{len(report.having(Fate.STOPPED)):,} of {total} stopped"
        rows.append(
            _told_row(row.count, told_phrase(row), stopped, wrong=row.heard is Heard.SUCCESS)
        )
    for described in report.causes:
        for row in described.told:
            wrong = row.heard in {Heard.SUCCESS, Heard.ANOTHER_CAUSE, Heard.NOTHING}
            happened = happened_phrase(row, described.name)
            rows.append(_told_row(row.count, told_phrase(row), happened, wrong=wrong))
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


def _advice(report: Report) -> Markup | None:
    if not report.causes:
        return None
    parts: list[Child] = []
    for described in report.causes:
        if len(report.causes) > 1:
            parts.append(element("h3", described.name))
        parts += [element("p", sentence) for sentence in described.advice]
    return _card("What to do now", *parts)


def _caches(report: Report) -> Markup | None:
    if not report.lapsed_waits:
        return None
    sentence = waits_sentence(report.lapsed_waits)
    return _card("Prompt caches", element("p", sentence), element("p", LIVES_LONGER))


def _resume(report: Report) -> Markup | None:
    if not report.ways:
        return None
    parts: list[Child] = []
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


def _finished(report: Report) -> Markup | None:
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


def _troubles(report: Report) -> Markup:
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


def _everyone(report: Report, axis: Axis) -> Markup:
    names = ("agent", "fate", "result or transcript", "in words")
    head = element("tr", *(element("th", name, scope="col") for name in names))
    rows = [_everyone_row(agent, report, axis) for agent in report.agents]
    table = element("table", element("thead", head), element("tbody", *rows))
    summary = element("summary", f"All {counted(len(report.agents), 'agent')}, as a table")
    folded = element("details", summary, element("div", table, class_="scroll"))
    return element("section", folded, class_="card")


def _everyone_row(agent: AgentFate, report: Report, axis: Axis) -> Markup:
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


def _footer(report: Report) -> Markup:
    written = f"Written {clock(report.now, seconds=True)} by jackline why. "
    hidden = "Prompts, answers and tool output are left out unless --show-content is given."
    return element("footer", written, hidden)
