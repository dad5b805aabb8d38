"""Find out that a lane is dead because several calls on it hear nothing.

Laws: (1) one silent call proves nothing; (2) whoever is not streamed, or may still be thinking
about a long prompt, is no witness; (3) anything heard on the lane clears it.
Not here: the patience with a single call (attempt.py), what follows (controller.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice

from jackline.lanes.attempt import Attempt
from jackline.lanes.settings import Patience

# Of its patience with the first byte, what must have passed before a call is a witness.
_THOUGHT_ENOUGH = 0.4


def silent_attempts(
    attempts: Mapping[int, Attempt], heard_at: float, patience: Patience, now: float
) -> list[Attempt]:
    """The attempts that prove the lane dead, if there are enough of them."""
    if now - heard_at < patience.lane_silence:
        return []
    silent = [
        each
        for each in attempts.values()
        if each.call.stream
        and now - each.heard_at >= patience.lane_silence
        and (each.confirmed or now - each.sent_at >= _THOUGHT_ENOUGH * each.patience(patience))
    ]
    return silent if len(silent) >= patience.lane_silence_calls else []


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
