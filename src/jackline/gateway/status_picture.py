"""Build the picture of the running gateway and its calls that `status` and the dashboard show.

Rules: (1) building it changes nothing; (2) long lists are cut, with their true length beside them;
(3) waiting calls are listed in the order in which they would be sent; (4) no prompt, answer, key or
token is in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from itertools import islice

from jackline import __version__
from jackline.control import CallStatus, GatewayStatus, LaneStatus, LimitStatus
from jackline.control.fleet import LiveCall, waited_for
from jackline.control.status import TurnStatus
from jackline.control.text import counted, whole_second
from jackline.failures.sentences import duration_in_words
from jackline.gateway.call_intake import CallIntake
from jackline.gateway.client_call import ClientCall
from jackline.gateway.control_plane import OperatorOrders
from jackline.journal import JournalHealth
from jackline.lane_id import LaneId
from jackline.lanes import Call, LimitOrigin
from jackline.lanes.breaker import FLOWING
from jackline.lanes.lane import Lane
from jackline.lanes.queue_positions import QueuePosition
from jackline.states import AgentState, LaneState

_MOST_CALLS = 200
_ANY_CALL = Call(0, ())


def picture(
    desk: CallIntake,
    health: JournalHealth,
    *,
    url: str,
    started: float,
    connections: int,
    at: datetime,
    notes: tuple[str, ...] = (),
) -> GatewayStatus:
    """The state of everything now, which is `at`, in the reader's time zone."""
    carrier, counts = desk.carrier, desk.counts
    now = desk.now()
    waiting_on: dict[LaneId, int] = {}
    calls = [call for call in desk.calls if call.carried is not None]
    waiting = [call for call in calls if call.waiting]
    for call in waiting:
        for name in () if call.carried is None else carrier.lanes_of(call.carried):
            waiting_on[name] = waiting_on.get(name, 0) + 1
    lanes = carrier.controller.lanes.values()
    return GatewayStatus(
        at=at.timestamp(),
        version=__version__,
        url=url,
        upstream=desk.settings.upstream.url,
        started=started,
        lanes=tuple(_lane(desk, lane, waiting_on.get(lane.id, 0), now) for lane in lanes),
        waiting=tuple(_waiting(desk, waiting, at, now)),
        calls_waiting=len(waiting),
        calls_in_flight=carrier.controller.calls_in_flight,
        connections=connections,
        outcomes=dict(counts.outcomes),
        held_and_delivered=counts.held_and_delivered,
        joined=counts.joined,
        input_tokens=counts.input_tokens,
        output_tokens=counts.output_tokens,
        journal_ok=health.ok,
        journal_problem=health.problem,
        journal_lost=health.dropped,
        journal_gap=health.gap,
        notes=(*notes, *filter(None, (health.notice,)), *_orders(desk, now), *_substitutions(desk)),
    )


def _orders(desk: CallIntake, now: float) -> Iterator[str]:
    """The orders by hand that are in force."""
    for order in desk.chooser.orders:
        if order.until is not None and order.until <= now:
            continue
        named = (("models", order.model), ("session", order.session), ("agent", order.agent))
        about = ", ".join(f"{what} {name}" for what, name in named if name)
        end = "until told otherwise" if order.until is None else f"for {_left(order.until - now)}"
        yield f"by hand, {end}: {about or 'all calls'} to {order.upstream}"


def _substitutions(desk: CallIntake) -> Iterator[str]:
    """Which models were answered by others."""
    for one in desk.substitutions:
        times = "once" if one.times == 1 else f"{one.times} times"
        ago = _left(desk.now() - one.last)
        yield f"another model stood in: {one.lane} for {one.model}, {times}, last {ago} ago"


def _left(seconds: float) -> str:
    return duration_in_words(timedelta(seconds=max(1, round(seconds))))


def _lane(desk: CallIntake, lane: Lane, waiting: int, now: float) -> LaneStatus:
    flows = lane.state in FLOWING and not lane.paused
    reason = None if flows else lane.waiting(_ANY_CALL, now)
    return LaneStatus(
        name=lane.label,
        upstream=lane.id.upstream,
        state=lane.state.value,
        why="" if reason is None else reason.why,
        until=None if reason is None else desk.carrier.controller.date_of(reason.until),
        in_flight=len(lane.attempts),
        window=lane.limit(now),
        waiting=waiting,
        cause=None if lane.cause is None else (lane.cause.kind.value, lane.cause.sub),
        limits={name: bucket.level_at(now) / bucket.cap for name, bucket in lane.buckets.items()},
        known_limits=_known_limits(desk, lane),
    )


def _known_limits(desk: CallIntake, lane: Lane) -> dict[str, LimitStatus]:
    origins = lane.allowance.origins
    reading = desk.limit_readings.get(lane.id.upstream)
    read_at = None if reading is None else reading.read_at
    return {
        name: LimitStatus(
            bucket.cap,
            origins[name].value,
            read_at if origins[name] is LimitOrigin.VENDOR else None,
        )
        for name, bucket in lane.buckets.items()
    }


def _waiting(
    desk: CallIntake, calls: list[ClientCall], at: datetime, now: float
) -> Iterator[CallStatus]:
    """Waiting calls in the order in which they would be sent; those in no queue come last."""
    if not calls:
        return
    controller = desk.carrier.controller
    turns = {turn.call: turn for turn in controller.turns(now, _MOST_CALLS)}
    queued = {number: call for call in calls if (number := _number(call)) in turns}
    for number in turns:
        if number in queued:
            yield _call(desk, queued[number], at, now, turns)
    others = (call for call in calls if _number(call) not in turns)
    for call in islice(others, _MOST_CALLS - len(queued)):
        yield _call(desk, call, at, now, turns)


def _number(call: ClientCall) -> int:
    return 0 if call.carried is None else call.carried.number


def _call(
    desk: CallIntake, call: ClientCall, at: datetime, now: float, turns: Mapping[int, QueuePosition]
) -> CallStatus:
    reason = None if call.carried is None else desk.carrier.waiting(call.carried)
    turn = turns.get(_number(call))
    since = at.timestamp() - (now - call.since)
    ahead = desk.carrier.controller.wall_ahead
    return CallStatus(
        call=call.request.id,
        session=call.identity.session,
        agent=call.identity.agent,
        tag=call.identity.tag,
        model=call.model,
        lane=call.lane.label,
        state="waiting",
        why="" if reason is None else reason.why,
        until=None if reason is None else reason.until,
        since=since,
        attempts=0 if call.carried is None else len(call.carried.story),
        turn=None if turn is None else TurnStatus.of(turn, ahead, since, at),
    )


# A recovering lane accepts ever more calls: who waits for it is in its queue.
_CLOSED = {
    LaneState.PARKED: AgentState.PARKED,
    LaneState.DOWN: AgentState.DOWN,
    LaneState.THROTTLED: AgentState.THROTTLED,
    LaneState.RECOVERING: AgentState.QUEUED,
}


class LiveCalls:
    """The calls of one gateway, each described once a turn of the event loop."""

    def __init__(self, desk: CallIntake) -> None:
        self._desk = desk
        self._seen: list[LiveCall] | None = None

    def look(self) -> list[LiveCall]:
        """Every call that was submitted and has not ended."""
        if self._seen is None:
            ahead = self._desk.wall() - self._desk.now()
            under_way = [call for call in self._desk.calls if call.carried is not None]
            self._seen = [self._live(call, call.since + ahead) for call in under_way]
            asyncio.get_running_loop().call_soon(self._forget)
        return self._seen

    def _forget(self) -> None:
        self._seen = None

    def _live(self, call: ClientCall, since: float) -> LiveCall:
        who, carried = call.identity, call.carried
        state, why, until, waited = AgentState.ANSWERING, "", None, None
        if carried is not None and call.waiting:
            lane = self._desk.carrier.controller.lanes.get(call.lane)
            closed = None if lane is None else _CLOSED.get(lane.state)
            state = self._waited_for(call) if closed is None else closed
            reason = self._desk.carrier.waiting(carried)
            if reason is not None:
                why = reason.why
                until = None if reason.until is None else float(whole_second(reason.until))
        elif carried is not None and carried.waited >= 1.0:
            waited = (since, self._waited_for(call))
            since += carried.waited
        return LiveCall(
            who.session or "",
            who.agent or "",
            who.tag or "",
            call.model,
            call.lane,
            since,
            state,
            why,
            until,
            waited,
        )

    def _waited_for(self, call: ClientCall) -> AgentState:
        story = [] if call.carried is None else call.carried.story
        failure = story[-1].failure if story else None
        return AgentState.QUEUED if failure is None else waited_for(failure.kind.value)


class LaneDrain:
    """The order to drain lanes: draining is pausing, and `resume` ends it."""

    def __init__(self, desk: CallIntake, orders: OperatorOrders) -> None:
        self._desk = desk
        self._orders = orders

    def drain(self, order: Mapping[str, object]) -> dict[str, object]:
        """Pause matching lanes; the answer counts the calls in flight on each."""
        paused = self._orders.pause(order)
        names = paused["lanes"]
        flying = dict.fromkeys(map(str, names), 0) if isinstance(names, list) else {}
        for lane in self._desk.carrier.controller.lanes.values():
            if lane.label in flying:
                flying[lane.label] += len(lane.attempts)
        left = sum(flying.values())
        state = f"{counted(left, 'call')} in flight" if left else "drained: nothing is in flight"
        return paused | {"in_flight": flying, "says": f"{', '.join(flying)}: {state}."}
