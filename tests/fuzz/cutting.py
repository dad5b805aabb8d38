"""Cut fuzzed bytes into packets in a way that the bytes themselves decide."""

from __future__ import annotations

import hashlib
import random
from itertools import pairwise

_MOST_CUTS = 12


def in_packets(data: bytes) -> list[bytes]:
    """The same bytes in some packets, none of them empty; the same input gives the same cuts."""
    draw = random.Random(hashlib.sha256(data).digest())  # noqa: S311 -- no secrets
    count = min(draw.randint(0, _MOST_CUTS), max(0, len(data) - 1))
    cuts = sorted({draw.randint(1, len(data) - 1) for _ in range(count)})
    return [data[a:b] for a, b in pairwise([0, *cuts, len(data)]) if a < b]


def one_by_one(data: bytes) -> list[bytes]:
    """The same bytes, each in a packet of its own."""
    return [data[place : place + 1] for place in range(len(data))]
