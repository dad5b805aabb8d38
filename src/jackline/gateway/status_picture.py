"""Build the picture of the running gateway that `status` and the dashboard show.

Rules: (1) building it changes nothing; (2) long lists are cut, with their true length beside them;
(3) waiting calls are listed in the order in which they would be sent.
Not here: the words of the verdict (control/).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from itertools import islice

from jackline import __version__
from jackline.control import CallStatus, GatewayStatus, LaneStatus, LimitStatus
from jackline.control.status import TurnStatus
from jackline.failures.sentences import duration_in_words
from jackline.gateway.call_intake import CallIntake
from jackline.gateway.client_call import ClientCall
from jackline.journal import JournalHealth
from jackline.lane_id import LaneId
from jackline.lanes import Call, LimitOrigin
from jackline.lanes.breaker import FLOWING
from jackline.lanes.lane import Lane
from jackline.lanes.queue_positions import QueuePosition

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
    """How everything stands now, which is `at`, in the zone of whoever is told."""
    carrier, counts = desk.carrier, desk.counts
    now = desk.now()
    waiting_on: dict[LaneId, int] = {}
    calls = [call for call in desk.calls if call.carried is not None]
    waiting = [call for call in calls if call.waiting]
    for call in waiting:
        for name in call.request.lanes:
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
        notes=(*notes, *_journal(health), *_orders(desk, now), *_stand_ins(desk, now)),
    )


def _journal(health: JournalHealth) -> Iterator[str]:
    """What happened to the journal's file earlier."""
    if health.notice:
        yield health.notice


def _orders(desk: CallIntake, now: float) -> Iterator[str]:
    """What somebody has ordered by hand, and is in force."""
    for order in desk.chooser.orders:
        if order.until is not None and order.until <= now:
            continue
        named = (("models", order.model), ("session", order.session), ("agent", order.agent))
        about = ", ".join(f"{what} {name}" for what, name in named if name)
        end = "until told otherwise" if order.until is None else f"for {_left(order.until - now)}"
        yield f"by hand, {end}: {about or 'all calls'} to {order.upstream}"


def _stand_ins(desk: CallIntake, now: float) -> Iterator[str]:
    """Where quality was given up for an answer."""
    for stood in desk.stand_ins:
        times = "once" if stood.times == 1 else f"{stood.times} times"
        ago = _left(now - stood.last)
        yield f"another model stood in: {stood.lane} for {stood.model}, {times}, last {ago} ago"


def _left(seconds: float) -> str:
    return duration_in_words(timedelta(seconds=max(1, round(seconds))))


def _lane(desk: CallIntake, lane: Lane, waiting: int, now: float) -> LaneStatus:
    flows = lane.state in FLOWING and not lane.paused
    told = None if flows else lane.waiting(_ANY_CALL, now)
    return LaneStatus(
        name=lane.label,
        upstream=lane.id.upstream,
        state=lane.state.value,
        why="" if told is None else told.why,
        until=None if told is None else desk.carrier.controller.date_of(told.until),
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
    """Who waits, as they would go; those who stand in no line come last."""
    if not calls:
        return
    controller = desk.carrier.controller
    turns = {turn.call: turn for turn in controller.turns(now, _MOST_CALLS)}
    standing = {number: call for call in calls if (number := _number(call)) in turns}
    for number in turns:
        if number in standing:
            yield _call(desk, standing[number], at, now, turns)
    others = (call for call in calls if _number(call) not in turns)
    for call in islice(others, _MOST_CALLS - len(standing)):
        yield _call(desk, call, at, now, turns)


def _number(call: ClientCall) -> int:
    """The controller's number of the call."""
    return 0 if call.carried is None else call.carried.number


def _call(
    desk: CallIntake, call: ClientCall, at: datetime, now: float, turns: Mapping[int, QueuePosition]
) -> CallStatus:
    told = None if call.carried is None else desk.carrier.waiting(call.carried)
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
        why="" if told is None else told.why,
        until=None if told is None else told.until,
        since=since,
        attempts=0 if call.carried is None else len(call.carried.story),
        turn=None if turn is None else TurnStatus.of(turn, ahead, since, at),
    )
