"""Give each part of the simulation lots of its own, all from one seed.

Laws: (1) a part that draws more or less often does not change what the others draw.
Not here: what is drawn (the parts).
"""

from __future__ import annotations

import random


def branch(draw: random.Random) -> random.Random:
    """Lots of one's own, settled by one draw from the given ones."""
    return from_seed(draw.getrandbits(64))


def from_seed(seed: int) -> random.Random:
    """The lots of this seed."""
    return random.Random(seed)  # noqa: S311 -- a simulation needs repeatable lots, not secret ones
