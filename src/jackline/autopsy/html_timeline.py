"""Draw time: one row per agent, a tick per failure, a line where success became impossible.

Laws: (1) positions are percentages, so the drawing fits any width without a script; (2) state is
told by colour, glyph and word together; (3) every row can be read out.
Not here: the page around it (html_face.py), the colours (page.css).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING

from jackline.autopsy.figures import clock, duration
from jackline.autopsy.html_parts import Markup, element, together
from jackline.autopsy.report import AgentFate, CauseReport, Fate
from jackline.autopsy.story import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
