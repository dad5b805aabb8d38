"""Say why one waiting call goes before another, in one sentence.

Rules: (1) pure: what the lanes tell of a call, and the time, come in; (2) a sentence changes only
when what it says does, or by the minute: whoever follows many calls is not told of every second,
but for caches that are about to lapse.
Not here: the order (lanes/queue.py), what a call waits for (lanes/lane.py).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from jackline.control.picture import TurnShown
from jackline.control.whole_seconds import whole_second
from jackline.failures.sentences import duration_in_words, moment_in_words
from jackline.lanes.queue import Rank
from jackline.lanes.turns import Turn


def turn_shown(turn: Turn, wall_ahead: float, since: float, now: datetime) -> TurnShown:
    """Where a call stands that waits since `since`; moments of the lanes become dates."""
    cached_until = None if turn.cached_until is None else turn.cached_until + wall_ahead
    out_of_turn = None if turn.out_of_turn_at is None else turn.out_of_turn_at + wall_ahead
    return TurnShown(
        rank=turn.rank.name.lower(),
        place=turn.place,
        cached_tokens=turn.cached,
        cached_until=cached_until,
        cost_tokens=round(turn.cost),
        out_of_turn_at=out_of_turn,
        why=_why(turn, cached_until, out_of_turn, now.timestamp() - since, now),
    )


def _why(
    turn: Turn,
    cached_until: float | None,
    out_of_turn: float | None,
    waited: float,
    now: datetime,
) -> str:
    later = ""
    if out_of_turn is not None and out_of_turn > now.timestamp():
        later = f"; it may go out of turn at {_moment(out_of_turn, now)}"
    cache = f"its cache of {turn.cached:,} tokens"
    if turn.rank is Rank.LEAVING:
        return "its client will soon wait no longer: it goes before those that can wait"
    if turn.rank is Rank.AGED:
        minutes = timedelta(minutes=max(1, int(waited // 60)))
        return f"it has waited for {duration_in_words(minutes)}: it goes out of turn"
    if turn.rank is Rank.CLOSING and cached_until is not None:
        left = timedelta(seconds=max(1, whole_second(cached_until) - int(now.timestamp())))
        return f"{cache} lapses in {duration_in_words(left)}: it goes before those that can wait"
    if turn.rank is Rank.LAPSED:
        return f"it lost {cache}; warm conversations go first{later}"
    if turn.rank is Rank.NEW:
        return f"it begins a conversation; those that have begun go first{later}"
    if turn.cached and cached_until is not None:
        return f"{cache} holds until {_moment(cached_until, now)}; the most urgent goes first"
    return "the most urgent goes first"


def _moment(at: float, now: datetime) -> str:
    return moment_in_words(datetime.fromtimestamp(whole_second(at), now.tzinfo), now)
