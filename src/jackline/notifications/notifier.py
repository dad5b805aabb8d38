"""Look for incidents of the running service, and send a message about each.

Rules: (1) while no way to notify is set, nothing is looked at; (2) messages are sent in a thread; a
failed one is logged and tried a few times, only by the ways that failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from jackline.clock import Clock
from jackline.control.board import Facts, FlowFacts
from jackline.control.observatory import Observatory
from jackline.control.stored_runs import StoredRuns
from jackline.flows.settings import parse_hours
from jackline.notifications.delivery import DeliveryResult, send
from jackline.notifications.incidents import ConditionFinder, IncidentMessage, Incidents
from jackline.notifications.settings import NotifySettings

_log = logging.getLogger(__name__)
_EVERY = 5.0
_TRIES = 3
_BETWEEN_TRIES = 30.0


class Notifier:
    """The messages of one service; `watch` must run for as long as it does."""

    def __init__(
        self,
        settings: Callable[[], NotifySettings],
        facts: Callable[[FlowFacts], Facts],
        observatory: Observatory,
        book: StoredRuns,
        clock: Clock,
        send: Callable[[IncidentMessage, NotifySettings], Sequence[DeliveryResult]] = send,
    ) -> None:
        self._settings = settings
        self._facts = facts
        self._observatory = observatory
        self._book = book
        self._clock = clock
        self._send = send
        self._noticing = ConditionFinder()
        self._incidents = Incidents()
        self._sending: set[asyncio.Task[None]] = set()

    async def watch(self) -> None:
        """Look for incidents, and send what is due, until cancelled."""
        try:
            while True:
                await self.look()
                await self._clock.sleep(_EVERY)
        finally:
            for task in self._sending:
                task.cancel()
            await asyncio.gather(*self._sending, return_exceptions=True)

    async def look(self) -> list[IncidentMessage]:
        """The messages that are due now; they are being sent."""
        settings = self._settings()
        if not settings.has_ways:
            return []
        self._noticing.budget_share = settings.budget_share
        facts = self._facts(await self._book.look())
        now = self._clock.now()
        holding = self._noticing.look(facts, self._observatory.tally.lanes, now)
        wanted = [each for each in holding if each.about in settings.on]
        quiet = settings.quiet is not None and parse_hours(settings.quiet).next_from(now) == now
        messages = self._incidents.look(self._clock.steady(), wanted, quiet=quiet)
        # How long something holds is a duration; when its message is sent, a date.
        due = [replace(message, at=now.timestamp()) for message in messages]
        for message in due:
            task = asyncio.get_running_loop().create_task(
                self._send_with_retries(message, settings)
            )
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        return due

    async def _send_with_retries(self, message: IncidentMessage, settings: NotifySettings) -> None:
        for tries_left in range(_TRIES - 1, -1, -1):
            sent = await asyncio.to_thread(self._send, message, settings)
            failed = [each for each in sent if each.trouble]
            if not failed:
                return
            for each in failed:
                _log.warning("a message was not sent by %s: %s", each.way, each.trouble)
            # What went is not sent again.
            settings = settings.only([each.way for each in failed])
            if tries_left:
                await self._clock.sleep(_BETWEEN_TRIES)
