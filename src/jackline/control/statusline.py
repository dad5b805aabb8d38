"""One short line on how calls get through, for a client's status line.

Laws: (1) pure; (2) calm is short: a glyph and a word; what waits says until when, and what needs a
person is never left out; (3) state by glyph and word, never by colour alone.
Not here: the verdict of other faces (verdict.py), asking for it (quick/statusline.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from jackline.control.crew import NOBODY, Crew
from jackline.control.fleet import Doing
from jackline.control.forecast import Forecast
from jackline.control.picture import LaneShown, Picture
from jackline.control.verdict import own_network

_GLYPHS = {"open": "●", "limited": "◐", "parked": "■", "broken": "✗", "probing": "◌"}
_WORDS = {"limited": "throttled", "broken": "down"}
# Worst first: the line has room for one.
_ORDER = ("parked", "broken", "probing", "limited")
_WORTH_TELLING = 0.5


def status_line(
    picture: Picture,
    forecasts: Sequence[Forecast],
    now: datetime,
    crew: Crew = NOBODY,
    needs: Sequence[str] = (),
) -> str:
    """The line."""
    parts = [_standing(picture, now)]
    if needs:
        parts.append(f"{len(needs)} {'needs' if len(needs) == 1 else 'need'} you")
    if crew.held:
        parts.append(f"{crew.answering} of {crew.total} {Doing.ANSWERING.value}")
    elif picture.calls_waiting:
        parts.append(f"{picture.calls_waiting} waiting")
    fullest = max(forecasts, key=lambda each: each.used, default=None)
    if fullest is not None and fullest.used >= _WORTH_TELLING:
        ends = ""
        if fullest.ends_at is not None and fullest.used < 1.0:
            ends = f", ends {_clock(fullest.ends_at, now)}"
        parts.append(f"{fullest.window} window {fullest.used:.0%}{ends}")
    return "jackline " + " · ".join(parts)


def _standing(picture: Picture, now: datetime) -> str:
    if own_network(picture.lanes) is not None:
        return "✗ your network seems down"
    troubled = [lane for lane in picture.lanes if lane.state in _ORDER]
    if not troubled:
        return f"{_GLYPHS['open']} open"
    worst = min(troubled, key=lambda lane: _ORDER.index(lane.state))
    return f"{_GLYPHS[worst.state]} {worst.name} {_lane_words(worst, now)}"


def _lane_words(lane: LaneShown, now: datetime) -> str:
    if lane.paused:
        return "paused by hand"
    word = _WORDS.get(lane.state, lane.state)
    if lane.state == "parked" and lane.until is not None:
        return f"{word} until {_clock(lane.until, now)}"
    return word


def _clock(moment: float, now: datetime) -> str:
    at = datetime.fromtimestamp(moment, now.tzinfo)
    return f"{at:%H:%M}" if at.date() == now.date() else f"{at:%a %H:%M}"
