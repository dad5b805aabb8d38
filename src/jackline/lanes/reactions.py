"""Decide what each kind of failure means for lanes and calls, and apply it to the lanes.

Rules: (1) every kind of failure has exactly one reaction; (2) a quota limit of the account parks
every lane of the account; (3) a call waits only if more waiting or another lane can help; otherwise
it is hopeless.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from jackline.failures import Failure, Kind, Scope
from jackline.lane_id import LaneId
from jackline.lanes.call import LaneAttempt
from jackline.lanes.lane import Lane
from jackline.lanes.queue import QueueEntry


class Reaction(Enum):
    """What a failure asks for."""

    PARK = auto()
    THROTTLE = auto()
    OUTAGE = auto()
    BROKEN_ANSWER = auto()
    CALL = auto()


_BY_KIND = {
    Kind.ACCOUNT_QUOTA: Reaction.PARK,
    Kind.BILLING: Reaction.CALL,
    Kind.SERVER_THROTTLE: Reaction.THROTTLE,
    Kind.RATE_LIMIT: Reaction.THROTTLE,
    Kind.OVERLOADED: Reaction.THROTTLE,
    Kind.UPSTREAM_5XX: Reaction.OUTAGE,
    Kind.NETWORK_EDGE: Reaction.OUTAGE,
    Kind.TIMEOUT: Reaction.OUTAGE,
    Kind.TRUNCATED_STREAM: Reaction.BROKEN_ANSWER,
    Kind.AUTH: Reaction.CALL,
    Kind.INVALID_REQUEST: Reaction.CALL,
    Kind.MODEL_NOT_FOUND: Reaction.CALL,
    Kind.CONTENT_POLICY: Reaction.CALL,
    Kind.TOOL_ERROR: Reaction.CALL,
    Kind.MISSING_STRUCTURED_OUTPUT: Reaction.CALL,
    Kind.CLIENT_CANCEL: Reaction.CALL,
    Kind.NOT_A_FAILURE: Reaction.CALL,
}


def reaction_to(failure: Failure) -> Reaction:
    """What to do about `failure`."""
    reaction = _BY_KIND[failure.kind]
    if failure.kind is Kind.BILLING and failure.resets_at is not None:
        return Reaction.PARK
    if failure.kind is Kind.AUTH and failure.retry_same:
        return Reaction.OUTAGE
    if failure.kind is Kind.NETWORK_EDGE and not failure.retry_same:
        return Reaction.CALL
    return reaction


def apply_failure(
    lanes: Mapping[LaneId, Lane],
    attempt: LaneAttempt,
    failure: Failure,
    headers: Mapping[str, str],
    now: float,
    wall_ahead: float,
    *,
    lost: bool,
) -> list[LaneId]:
    """Close the attempt on its lane; the names of all lanes on which more may be possible now.

    It was `lost` if the provider had begun to answer it, and is paid for that.

    Dates are brought onto the time line of `now`, which the wall clock is `wall_ahead` of.
    """
    lane = lanes[attempt.lane]
    match reaction_to(failure):
        case Reaction.PARK:
            lane.quota_refused(attempt, now)
            resets_at, resets_in = failure.resets_at, failure.resets_in
            reset_at = None if resets_at is None else resets_at.timestamp() - wall_ahead
            if resets_in is not None:
                reset_at = now + resets_in.total_seconds()
            whole_account = failure.scope is Scope.ACCOUNT
            for each in lanes.values():
                if each is lane or (whole_account and each.id.account == lane.id.account):
                    each.park(failure, reset_at, now, is_date=resets_in is None)
            # Whoever waited for these lanes may now go elsewhere.
            return list(lanes)
        case Reaction.THROTTLE:
            lane.throttled(attempt, failure, headers, now)
        case Reaction.OUTAGE if not lost:
            lane.failed_hard(attempt, failure, now)
        case Reaction.OUTAGE | Reaction.BROKEN_ANSWER:
            lane.cut(attempt, failure, now)
        case Reaction.CALL:
            lane.refused_call(attempt, now)
    return list(attempt.call.lanes)


def hopeless(entry: QueueEntry, lane: LaneId, failure: Failure, identical_failures: int) -> bool:
    """Remember what the call met on this lane: whether waiting cannot help it any more.

    A lane that refused the call itself is taken from those it may go to.
    """
    alike = entry.last_failure is not None and (
        (entry.last_failure.kind, entry.last_failure.sub) == (failure.kind, failure.sub)
    )
    entry.alike = entry.alike + 1 if alike else 1
    entry.last_failure = failure
    reaction = reaction_to(failure)
    if all(name in entry.refused_by for name in entry.lanes):
        return True
    if reaction is Reaction.PARK:
        return False
    if reaction is Reaction.CALL:
        entry.refused_by += (lane,)
        entry.refusal = failure
        entry.lanes = tuple(name for name in entry.lanes if name != lane)
        return not (failure.failover_helps and entry.lanes)
    return not failure.retry_same and entry.alike >= identical_failures
