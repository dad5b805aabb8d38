"""Bound what one call pays for answers that begin and are never whole.

Rules: (1) a first loss is chance and is asked for again at once; from then on the pause before each
further attempt doubles; (2) after six losses, or once they have cost three times the prompt, the
pause is a long one, up to ten minutes; (3) no loss is hopeless: the call waits, and its own hold
limits end it, with words that say what was lost.
Not here: leaving a lane alone that cuts everything (breaker.py, lane.py).
"""

from __future__ import annotations

from jackline.lane_id import LaneId
from jackline.lanes.prompt_caches import prompt_tokens
from jackline.lanes.queue import QueueEntry

# In seconds.
_SHORTEST = 1.0
_LONG = 60.0
_LONGEST = 600.0
# An outage of a minute takes about so many.
_MOST = 6
_MOST_PROMPTS = 3.0
# Of tokens: so little is worth another try.
_CHEAP = 50_000


def count_loss(entry: QueueEntry, lane: LaneId, tokens: int) -> None:
    """An attempt of the call was accepted on that lane, has cost so much, and is lost."""
    entry.lost += 1
    entry.lost_tokens += tokens
    if lane not in entry.lost_on:
        entry.lost_on += (lane,)


def has_lost_enough(entry: QueueEntry) -> bool:
    """Whether the next attempts are to be rare, or on another lane."""
    costly = max(_CHEAP, _MOST_PROMPTS * prompt_tokens(entry.call))
    return entry.lost >= _MOST or entry.lost_tokens >= costly


def pause_after(entry: QueueEntry, draw: float) -> float:
    """For how long the call rests after its latest loss; no two rest for the same time."""
    if entry.lost <= 1:
        return 0.0
    shortest = _LONG if has_lost_enough(entry) else _SHORTEST
    doubled = _SHORTEST * 2.0 ** min(entry.lost - 2, 20)
    return min(max(shortest, doubled), _LONGEST) * (0.75 + 0.5 * draw)


def why_it_rests(entry: QueueEntry) -> str:
    """What happened to the call, what that has cost, and what can be done."""
    times = "1 answer" if entry.lost == 1 else f"{entry.lost} answers"
    paid = f", with {entry.lost_tokens:,} tokens" if entry.lost_tokens else ""
    lanes = ", ".join(map(str, entry.lost_on))
    text = f"{times} to it began on {lanes} and broke off{paid}; it is asked again after a pause"
    if not has_lost_enough(entry):
        return text
    return f"{text}; see what cuts the connection, or name another upstream to fall back on"
