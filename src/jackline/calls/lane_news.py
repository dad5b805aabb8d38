"""Announce every change of a lane's state, once.

Laws: (1) a change is told when it is first seen, with its reason and until when; (2) looking costs
next to nothing while nothing changes.
Not here: the changes themselves (lanes/).
"""

from __future__ import annotations

from collections.abc import Iterable

from jackline.events import Announce, LaneChanged
from jackline.lanes import Call, LaneController
from jackline.lanes.states import FLOWING, State

_ANY_CALL = Call(0, ())


class LaneNews:
    """Compares the lanes with how they were last told."""

    def __init__(self, controller: LaneController, announce: Announce) -> None:
        self._controller = controller
        self._announce = announce
        self._told: dict[str, State] = {}

    def look(self, now: float, names: Iterable[str] | None = None) -> bool:
        """Whether anything has changed on these lanes; it has been announced then."""
        lanes = self._controller.lanes
        changed = False
        for name in lanes if names is None else names:
            lane = lanes[name]
            if self._told.get(name, State.OPEN) is lane.state:
                continue
            self._told[name] = lane.state
            changed = True
            if lane.state in FLOWING:
                self._announce(LaneChanged(now, name, lane.state.value, "", None))
            else:
                told = lane.waiting(_ANY_CALL, now)
                self._announce(LaneChanged(now, name, lane.state.value, told.why, told.until))
        return changed
