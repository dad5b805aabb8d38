"""Which upstream answers which model, by the answers of the last minutes.

Rules: (1) pure: events and `now` come in; (2) only whole answers count, never what is configured;
(3) bounded: the models and lanes that answered last.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from jackline.events import CallEnded
from jackline.lane_id import LaneId

LATELY_MINUTES = 5
"""Over how many minutes answers are counted."""
_SHOWN_SECONDS = 3600.0
_MOST_PAIRS = 128
_ANSWERED = frozenset(("answered", "shortened"))


@dataclass(slots=True)
class _Answering:
    """Answers of one lane to calls that asked for one model."""

    last: float = 0.0
    minutes: OrderedDict[int, int] = field(default_factory=OrderedDict)


class AnswerCounts:
    """Who answered lately."""

    def __init__(self) -> None:
        # By the model that was asked for, and the lane; the one that answered last is the last.
        self._pairs: OrderedDict[tuple[str, LaneId], _Answering] = OrderedDict()

    def call_ended(self, event: CallEnded) -> None:
        """Count a call that was answered."""
        if event.lane is None or event.outcome not in _ANSWERED:
            return
        key = (event.model, event.lane)
        found = self._pairs.get(key)
        if found is None:
            found = self._pairs[key] = _Answering()
            if len(self._pairs) > _MOST_PAIRS:
                self._pairs.popitem(last=False)
        self._pairs.move_to_end(key)
        found.last = max(found.last, event.at)
        minute = int(event.at // 60)
        found.minutes[minute] = found.minutes.get(minute, 0) + 1
        while len(found.minutes) > LATELY_MINUTES + 1:
            found.minutes.popitem(last=False)

    def follow_clock(self, set_by: float) -> None:
        """The wall clock was set by so much: answers stay as long ago as they are."""
        moved = round(set_by / 60)
        for each in self._pairs.values():
            each.last += set_by
            minutes = each.minutes.items()
            each.minutes = OrderedDict((minute + moved, count) for minute, count in minutes)

    def rows(self, now: float) -> list[dict[str, object]]:
        """Each model and lane that answered within an hour, the latest answer first."""
        first = int(now // 60) - LATELY_MINUTES + 1
        return [
            {
                "model": model,
                "lane": lane.label,
                "upstream": lane.upstream,
                "calls": sum(count for minute, count in each.minutes.items() if minute >= first),
                # What changes with every answer would be sent with every answer.
                "last": int(each.last // 10) * 10,
            }
            for (model, lane), each in reversed(self._pairs.items())
            if now - each.last < _SHOWN_SECONDS
        ]
