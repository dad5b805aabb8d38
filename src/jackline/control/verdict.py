"""Say in one sentence how the gateway stands.

Laws: (1) what waits comes with its reason and its hour; (2) calm when nothing is wrong.
Not here: the figures (picture.py).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from jackline.control.picture import LaneShown, Picture
from jackline.failures.sentences import duration_in_words, moment_in_words

_TROUBLED = ("parked", "broken")


def verdict(picture: Picture, now: datetime) -> str:
    """The sentence that every face begins with."""
    parts = [_calls(picture)]
    parts += [_lane(lane, now) for lane in picture.lanes if lane.state in _TROUBLED]
    limited = [lane.name for lane in picture.lanes if lane.state == "limited" and lane.waiting]
    if limited:
        parts.append(f"{', '.join(limited)} asked to slow down.")
    delivered = picture.held_and_delivered
    lost = picture.outcomes.get("refused", 0) + picture.outcomes.get("broken", 0)
    parts.append(f"{_count(delivered, 'call')} held and delivered, {lost} passed on as failed.")
    if not picture.journal_ok:
        parts.append(f"The journal is not written: {picture.journal_problem}.")
    return " ".join(parts)


def _calls(picture: Picture) -> str:
    running, waiting = picture.calls_in_flight, picture.calls_waiting
    if not running and not waiting:
        return "Nothing is under way."
    if not waiting:
        return f"{_count(running, 'call')} running, none waiting."
    return f"{_count(running, 'call')} running, {waiting} waiting."


def _lane(lane: LaneShown, now: datetime) -> str:
    word = "is parked" if lane.state == "parked" else "is down"
    if lane.until is None:
        return f"{lane.name} {word}; when it comes back is not known."
    until = datetime.fromtimestamp(lane.until, now.tzinfo)
    left = duration_in_words(max(timedelta(0), until - now))
    if lane.state == "parked":
        return f"{lane.name} {word} until {moment_in_words(until, now)} (in {left})."
    return f"{lane.name} {word}; it is tried again in {left}."


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
