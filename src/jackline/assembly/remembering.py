"""Carry what the lanes have learned over a restart, through the journal.

Laws: (1) a wall that was known before is known after; (2) what cannot be read is left out, never
guessed, and so is what was learned of another upstream; (3) memory is told when a lane changes,
and every few seconds while calls pass.
Not here: what lanes learn (lanes/memory.py), storing it (journal/).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path

from jackline.assembly.words_kept import fit_to_keep
from jackline.calls import Carrier
from jackline.clock import Clock
from jackline.errors import JournalError
from jackline.events import Announce, LanesLearned
from jackline.failures import Json
from jackline.gateway.lane_book import MOST_IDLE, LaneBook, shown
from jackline.journal import JournalReader
from jackline.lanes import export, restore

_log = logging.getLogger("jackline")
EVERY = 5.0


def remember(
    carrier: Carrier, book: LaneBook, upstream: str, clock: Clock, announce: Announce
) -> None:
    """Tell what the lanes know of the upstream at this address."""
    memory = {
        "upstream": upstream,
        "lanes": export(carrier.controller, clock.steady()),
        "walls": fit_to_keep(carrier.walls.export()),
        "clients": book.clients.export(),
        "logins": book.logins.export(),
    }
    announce(LanesLearned(clock.wall(), json.dumps(memory).encode()))


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
    book.clients.restore(told.get("clients"))
    book.logins.restore(told.get("logins"))
    return taught


class LaneMemory:
    """The memory of one service's lanes; `keep_remembering` must run for as long as it does."""

    def __init__(
        self,
        carrier: Carrier,
        book: LaneBook,
        addresses: Callable[[], str],
        announce: Announce,
        clock: Clock,
    ) -> None:
        """`addresses` names the upstreams that are learned of."""
        self._carrier = carrier
        self._book = book
        self._addresses = addresses
        self._announce = announce
        self._clock = clock
        self._due = False

    def recall(self, journal: Path) -> None:
        """Take up what the journal knows."""
        try:
            with JournalReader(journal) as reader:
                memory = reader.lane_memory()
        except JournalError as error:
            _log.warning("what the lanes knew cannot be read: %s", error.message)
            return
        if memory is not None:
            self._carrier.follow_clock()
            where, now = self._addresses(), self._clock.steady()
            for name in recall(self._carrier, self._book, where, memory[1], now):
                _log.info("%s goes on from what was known", shown(name))

    def remember(self) -> None:
        """Tell what the lanes know by now."""
        self._due = False
        remember(self._carrier, self._book, self._addresses(), self._clock, self._announce)

    def remember_soon(self) -> None:
        """Tell it at the end of this moment: once for all lanes that change in it."""
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self.remember)

    async def keep_remembering(self) -> None:
        """Tell it again and again while there is something new, until cancelled."""
        before = -1
        while True:
            await self._clock.sleep(EVERY)
            self._carrier.close_idle_lanes(self._clock.steady(), MOST_IDLE)
            events = self._carrier.reports
            if events != before:
                before = events
                self.remember()
