"""Save what the lanes have learned in the journal, and restore it after a restart.

Rules: (1) a quota limit that was known before the restart is known after it; (2) what cannot be
read is left out, never guessed, and so is what was learned of another upstream; (3) it is saved
when a lane changes, and every few seconds while calls pass, as long as that takes a small share of
the time: outsiders can make lanes and change them; (4) of a vendor's answer at a wall only what
other callers get is saved (calls/wall_words.py).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from jackline.calls import CallManager
from jackline.clock import Clock
from jackline.errors import JournalError
from jackline.events import Announce, LanesLearned
from jackline.failures import Json
from jackline.gateway.lane_registry import MOST_IDLE, LaneRegistry
from jackline.journal import JournalReader
from jackline.lanes import export, restore, saved_lanes

_log = logging.getLogger("jackline")
EVERY = 5.0
# Saving may take one part in so many of the time; the next one waits for that.
_SHARE = 20


class LaneMemory:
    """The memory of one service's lanes; `keep_remembering` must run for as long as it does."""

    def __init__(
        self,
        carrier: CallManager,
        registry: LaneRegistry,
        addresses: Callable[[], str],
        announce: Announce,
        clock: Clock,
    ) -> None:
        """`addresses` names the upstreams that are learned of."""
        self._carrier = carrier
        self._registry = registry
        self._addresses = addresses
        self._announce = announce
        self._clock = clock
        self._saving: asyncio.Handle | None = None
        self._not_before = 0.0

    def recall(self, journal: Path) -> None:
        """Restore what the journal knows."""
        try:
            with JournalReader(journal) as reader:
                memory = reader.lane_memory()
        except JournalError as error:
            _log.warning("what the lanes knew cannot be read: %s", error.message)
            return
        if memory is None:
            return
        carrier, registry = self._carrier, self._registry
        carrier.follow_clock()
        try:
            saved: Json = json.loads(memory[1])
        except ValueError:
            return
        if not isinstance(saved, dict) or saved.get("upstream") != self._addresses():
            return
        lanes, now = saved.get("lanes"), self._clock.steady()
        known = saved_lanes(lanes)
        if known is None:
            _log.warning("what the lanes knew is dropped: another version of Jackline saved it")
        for lane_id in known or ():
            registry.open(lane_id, now)
        taught = restore(carrier.controller, lanes, now)
        carrier.walls.restore(saved.get("walls"))
        registry.clients.restore(saved.get("clients"))
        registry.logins.restore(saved.get("logins"))
        for lane in taught:
            _log.info("%s goes on from what was known", lane)

    def remember(self) -> None:
        """Announce what the lanes know by now."""
        self.close()
        time = asyncio.get_running_loop().time
        began = time()
        memory = {
            "upstream": self._addresses(),
            "lanes": export(self._carrier.controller, self._clock.steady()),
            "walls": self._carrier.walls.export(),
            "clients": self._registry.clients.export(),
            "logins": self._registry.logins.export(),
        }
        self._announce(LanesLearned(self._clock.wall(), json.dumps(memory).encode()))
        self._not_before = began + _SHARE * (time() - began)

    def remember_soon(self) -> None:
        """Announce it at the end of this turn, or when that is no burden: once for all changes."""
        if self._saving is None:
            loop = asyncio.get_running_loop()
            pause = self._not_before - loop.time()
            later = loop.call_soon if pause <= 0 else partial(loop.call_later, pause)
            self._saving = later(self.remember)

    def close(self) -> None:
        """Cancel what is planned."""
        saving, self._saving = self._saving, None
        if saving is not None:
            saving.cancel()

    async def keep_remembering(self) -> None:
        """Announce it again and again while there is something new, until cancelled."""
        before = -1
        while True:
            await self._clock.sleep(EVERY)
            self._carrier.close_idle_lanes(self._clock.steady(), MOST_IDLE)
            events = self._carrier.reports
            if events != before:
                before = events
                self.remember_soon()
