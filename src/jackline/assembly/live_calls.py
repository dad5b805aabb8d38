"""Tell what each call that is under way does, or waits for.

Laws: (1) looking changes nothing; (2) a call is looked at once a turn of the event loop, however
many ask; (3) no prompt, answer, key or token.
Not here: what becomes of it (watching.py, self_report.py).
"""

from __future__ import annotations

import asyncio

from jackline.control.fleet import Doing, Live, waited_for
from jackline.control.whole_seconds import whole_second
from jackline.gateway.desk import Desk
from jackline.gateway.lane_book import shown
from jackline.gateway.messages import MessagesCall
from jackline.lanes.states import State

# A lane that comes back takes ever more calls: who waits then waits for its turn.
_CLOSED = {
    State.PARKED: Doing.PARKED,
    State.BROKEN: Doing.DOWN,
    State.LIMITED: Doing.THROTTLED,
    State.PROBING: Doing.QUEUED,
}


class LiveCalls:
    """The calls of one desk."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._seen: list[Live] | None = None

    def look(self) -> list[Live]:
        """Every call that was taken in and has not ended."""
        if self._seen is None:
            ahead = self._desk.wall() - self._desk.now()
            under_way = [call for call in self._desk.calls if call.carried is not None]
            self._seen = [self._live(call, call.since + ahead) for call in under_way]
            asyncio.get_running_loop().call_soon(self._forget)
        return self._seen

    def _forget(self) -> None:
        self._seen = None

    def _live(self, call: MessagesCall, since: float) -> Live:
        who = call.identity
        carried = call.carried
        if carried is None or not call.waiting:
            return self._answering(call, since)
        told = self._desk.carrier.waiting(carried)
        return Live(
            who.session or "",
            who.agent or "",
            who.tag or "",
            call.model,
            call.lane,
            since,
            self._waits_for(call),
            "" if told is None else told.why.replace(call.lane, shown(call.lane)),
            None if told is None or told.until is None else float(whole_second(told.until)),
        )

    def _answering(self, call: MessagesCall, since: float) -> Live:
        who, carried = call.identity, call.carried
        waited = None
        if carried is not None and carried.waited >= 1.0:
            waited = (since, self._waited_for(call))
            since += carried.waited
        return Live(
            who.session or "",
            who.agent or "",
            who.tag or "",
            call.model,
            call.lane,
            since,
            Doing.ANSWERING,
            "",
            None,
            waited,
        )

    def _waits_for(self, call: MessagesCall) -> Doing:
        lane = self._desk.carrier.controller.lanes.get(call.lane)
        closed = None if lane is None else _CLOSED.get(lane.state)
        return self._waited_for(call) if closed is None else closed

    def _waited_for(self, call: MessagesCall) -> Doing:
        story = [] if call.carried is None else call.carried.story
        failure = story[-1].failure if story else None
        return Doing.QUEUED if failure is None else waited_for(failure.kind.value)
