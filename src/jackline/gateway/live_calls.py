"""Calls in flight: what each of them does or waits for, and draining lanes until none is left.

Rules: (1) looking changes nothing; a call is looked at once a turn of the event loop, however
many callers there are; (2) no prompt, answer, key or token; (3) draining is pausing: calls in
flight end by themselves, waiting calls are rerouted or wait on, and `resume` ends it.
Not here: who shows them (gateway/status_report.py), pausing itself (control_plane.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from jackline.control.fleet import LiveCall, waited_for
from jackline.control.text import counted, whole_second
from jackline.gateway.call_intake import CallIntake
from jackline.gateway.client_call import ClientCall
from jackline.gateway.control_plane import OperatorOrders
from jackline.states import AgentState, LaneState

# A lane that comes back takes ever more calls: who waits then waits for its turn.
_CLOSED = {
    LaneState.PARKED: AgentState.PARKED,
    LaneState.DOWN: AgentState.DOWN,
    LaneState.THROTTLED: AgentState.THROTTLED,
    LaneState.RECOVERING: AgentState.QUEUED,
}


class LiveCalls:
    """The calls of one desk."""

    def __init__(self, desk: CallIntake) -> None:
        self._desk = desk
        self._seen: list[LiveCall] | None = None

    def look(self) -> list[LiveCall]:
        """Every call that was taken in and has not ended."""
        if self._seen is None:
            ahead = self._desk.wall() - self._desk.now()
            under_way = [call for call in self._desk.calls if call.carried is not None]
            self._seen = [self._live(call, call.since + ahead) for call in under_way]
            asyncio.get_running_loop().call_soon(self._forget)
        return self._seen

    def _forget(self) -> None:
        self._seen = None

    def _live(self, call: ClientCall, since: float) -> LiveCall:
        who = call.identity
        carried = call.carried
        if carried is None or not call.waiting:
            return self._answering(call, since)
        told = self._desk.carrier.waiting(carried)
        return LiveCall(
            who.session or "",
            who.agent or "",
            who.tag or "",
            call.model,
            call.lane,
            since,
            self._waits_for(call),
            "" if told is None else told.why,
            None if told is None or told.until is None else float(whole_second(told.until)),
        )

    def _answering(self, call: ClientCall, since: float) -> LiveCall:
        who, carried = call.identity, call.carried
        waited = None
        if carried is not None and carried.waited >= 1.0:
            waited = (since, self._waited_for(call))
            since += carried.waited
        return LiveCall(
            who.session or "",
            who.agent or "",
            who.tag or "",
            call.model,
            call.lane,
            since,
            AgentState.ANSWERING,
            "",
            None,
            waited,
        )

    def _waits_for(self, call: ClientCall) -> AgentState:
        lane = self._desk.carrier.controller.lanes.get(call.lane)
        closed = None if lane is None else _CLOSED.get(lane.state)
        return self._waited_for(call) if closed is None else closed

    def _waited_for(self, call: ClientCall) -> AgentState:
        story = [] if call.carried is None else call.carried.story
        failure = story[-1].failure if story else None
        return AgentState.QUEUED if failure is None else waited_for(failure.kind.value)


class LaneDrain:
    """The order to drain, for the lanes of one desk."""

    def __init__(self, desk: CallIntake, orders: OperatorOrders) -> None:
        self._desk = desk
        self._orders = orders

    def drain(self, asked: Mapping[str, object]) -> dict[str, object]:
        """Pause matching lanes; the answer counts the calls in flight on each."""
        told = self._orders.pause(asked)
        names = told["lanes"]
        flying = dict.fromkeys(map(str, names), 0) if isinstance(names, list) else {}
        for lane in self._desk.carrier.controller.lanes.values():
            if lane.label in flying:
                flying[lane.label] += len(lane.attempts)
        left = sum(flying.values())
        said = f"{counted(left, 'call')} in flight" if left else "drained: nothing is in flight"
        return told | {"in_flight": flying, "says": f"{', '.join(flying)}: {said}."}
