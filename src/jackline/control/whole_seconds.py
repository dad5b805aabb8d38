"""Tell an hour to wait for in whole seconds, as people plan.

Laws: (1) never before it: a reset is not told too early; (2) noise of clocks makes no second.
Not here: the words (failures/sentences.py).
"""

from __future__ import annotations

import math

_NOISE = 0.001


def whole_second(moment: float) -> int:
    """The first whole second at which this moment has come."""
    return math.ceil(moment - _NOISE)
