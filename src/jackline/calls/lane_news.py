"""Announce every change of a lane's state, once.

Laws: (1) a change is told when it is first seen, with its reason and until when; (2) looking costs
next to nothing while nothing changes.
Not here: the changes themselves (lanes/).
"""

from __future__ import annotations

from collections.abc import Callable

from jackline.events import Announce, LaneChanged
from jackline.lanes import Call, LaneController
from jackline.lanes.states import FLOWING, State

_ANY_CALL = Call(0, ())
_OPEN = State.OPEN


class LaneNews:
    """Compares the lanes with how they were last told."""

    def __init__(
        self, controller: LaneController, announce: Announce, wall: Callable[[], float]
    ) -> None:
        self._controller = controller
        self._announce = announce
        self._wall = wall
        self._told: dict[str, State] = {}

    def look(self, now: float) -> bool:
        """Whether anything has changed on any lane; it has been announced then."""
        changed = False
        if len(self._told) > len(self._controller.lanes):
            self._told = {n: s for n, s in self._told.items() if n in self._controller.lanes}
        for name in self._controller.lanes:
            changed |= self.look_at(name, now)
        return changed

    def look_at(self, name: str, now: float) -> bool:
        """The same for one lane."""
        lane = self._controller.lanes[name]
        state = lane.state
        if self._told.get(name, _OPEN) is state:
            return False
        self._told[name] = state
        if state in FLOWING:
            self._announce(LaneChanged(self._wall(), name, state.value, "", None))
        else:
            told = lane.waiting(_ANY_CALL, now)
            until = self._controller.date_of(told.until)
            self._announce(LaneChanged(self._wall(), name, state.value, told.why, until))
        return True
