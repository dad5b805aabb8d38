"""Find out that a lane is silent as a whole, from calls on it that hear nothing.

Rules: (1) one silent call proves nothing; (2) whoever is not streamed, or may still be thinking, is
no witness; (3) anything heard on the lane clears it.
Not here: how long each may be silent (patience.py), what follows (controller.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice

from jackline.lanes.attempt import Attempt
from jackline.lanes.patience import LearnedPatience
from jackline.lanes.settings import Patience


def is_silent(
    attempts: Mapping[int, Attempt],
    heard_at: float,
    settings: Patience,
    learned: LearnedPatience,
    now: float,
) -> bool:
    """Whether enough calls have heard nothing for long enough."""
    if now - heard_at < settings.lane_silence or len(attempts) < settings.lane_silence_calls:
        return False
    witnesses = sum(
        each.call.stream
        and not each.doubted
        and now - each.heard_at >= learned.proves_silence(each, now)
        for each in attempts.values()
    )
    return witnesses >= settings.lane_silence_calls


def silence_check_at(
    attempts: Mapping[int, Attempt], heard_at: float, patience: Patience, now: float
) -> float:
    """When it is worth looking for silence; infinity while too few calls are in flight."""
    enough = patience.lane_silence_calls
    if len(attempts) < enough:
        return math.inf
    last_needed = next(islice(attempts.values(), enough - 1, None))
    due = max(heard_at, last_needed.sent_at) + patience.lane_silence
    return due if due > now else now + 1.0
