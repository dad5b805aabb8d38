"""Carry out what a failure means: teach the lanes, and say whether the call may still hope.

Laws: (1) a wall of the account parks every lane of the account; (2) only what cannot be healed by
waiting or by another lane is hopeless.
Not here: which failure means what (reactions.py), how a lane learns (lane.py), refusing a call
(controller.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from jackline.failures import Failure
from jackline.lanes.attempt import Attempt
from jackline.lanes.lane import Lane
from jackline.lanes.queue import Entry
from jackline.lanes.reactions import Reaction, parks_account, reaction_to


def teach(
    lanes: Mapping[str, Lane],
    attempt: Attempt,
    failure: Failure,
    headers: Mapping[str, str],
    now: float,
    wall_ahead: float,
    *,
    lost: bool,
) -> list[str]:
    """Close the attempt on its lane; the names of all lanes on which more may be possible now.

    It was `lost` if the provider had begun to answer it, and is paid for that.

    Dates are brought onto the time line of `now`, which the wall clock is `wall_ahead` of.
    """
    lane = lanes[attempt.lane]
    match reaction_to(failure):
        case Reaction.PARK:
            lane.quota_refused(attempt, now)
            _park(lanes, lane, failure, now, wall_ahead)
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


def hopeless(entry: Entry, lane: str, failure: Failure, identical_failures: int) -> bool:
    """Remember what the call met on this lane: whether waiting cannot help it any more.

    A lane that refused the call itself is taken from those it may go to.
    """
    alike = entry.last_failure is not None and (
        (entry.last_failure.kind, entry.last_failure.sub) == (failure.kind, failure.sub)
    )
    entry.alike = entry.alike + 1 if alike else 1
    entry.last_failure = failure
    reaction = reaction_to(failure)
    if reaction is Reaction.PARK:
        return False
    if reaction is Reaction.CALL:
        entry.lanes = tuple(name for name in entry.lanes if name != lane)
        return not (failure.failover_helps and entry.lanes)
    return not failure.retry_same and entry.alike >= identical_failures


def _park(
    lanes: Mapping[str, Lane], lane: Lane, failure: Failure, now: float, wall_ahead: float
) -> None:
    reset_at = None if failure.resets_at is None else failure.resets_at.timestamp() - wall_ahead
    is_date = failure.resets_in is None
    if failure.resets_in is not None:
        reset_at = now + failure.resets_in.total_seconds()
    for each in lanes.values():
        if each is lane or (parks_account(failure) and each.account == lane.account):
            each.park(failure, reset_at, now, is_date=is_date)
