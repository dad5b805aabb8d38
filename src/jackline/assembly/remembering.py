"""Carry what the lanes have learned over a restart, through the journal.

Laws: (1) a wall that was known before is known after; (2) what cannot be read is left out, never
guessed, and so is what was learned of another upstream; (3) memory is told when a lane changes,
and every few seconds while calls pass.
Not here: what lanes learn (lanes/memory.py), storing it (journal/).
"""

from __future__ import annotations

import json
from collections.abc import Callable

from jackline.assembly.words_kept import fit_to_keep
from jackline.calls import Carrier
from jackline.clock import Clock
from jackline.events import Announce, LanesLearned
from jackline.failures import Json
from jackline.gateway.lane_book import LaneBook
from jackline.lanes import export, restore

EVERY = 5.0


def remember(carrier: Carrier, upstream: str, now: float, announce: Announce) -> None:
    """Tell what the lanes know of the upstream at this address."""
    memory = {
        "upstream": upstream,
        "lanes": export(carrier.controller, now),
        "walls": fit_to_keep(carrier.walls.export()),
    }
    announce(LanesLearned(now, json.dumps(memory).encode()))


def recall(carrier: Carrier, book: LaneBook, upstream: str, memory: bytes, now: float) -> list[str]:
    """Take up what an earlier gateway knew of this upstream; the lanes that remember something."""
    try:
        told: Json = json.loads(memory)
    except ValueError:
        return []
    if not isinstance(told, dict) or told.get("upstream") != upstream:
        return []
    lanes = told.get("lanes")
    known = lanes.get("lanes") if isinstance(lanes, dict) else None
    for name in known if isinstance(known, dict) else ():
        book.open(name, now)
    taught = restore(carrier.controller, lanes, now)
    carrier.walls.restore(told.get("walls"))
    return taught


async def keep_remembering(carrier: Carrier, clock: Clock, tell: Callable[[], None]) -> None:
    """Let it be told again and again while there is something new, until cancelled."""
    before = -1
    while True:
        await clock.sleep(EVERY)
        events = carrier.reports
        if events != before:
            before = events
            tell()
