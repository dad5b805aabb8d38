"""Run the provider model on the real clock: requests go in, events come out when they are due.

Rules: (1) the only place that turns real time into the model's; (2) events of an exchange go to
the one who entered it, and to nobody once it has left; (3) all methods are called from one event
loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from jackline.clock import SystemClock
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.exchange import ProviderEvent, ProviderRefusal, SimRequest
from jackline.simulator.faults import Fault
from jackline.simulator.provider import ProviderModel, ProviderSettings
from jackline.simulator.reply_script import Reply, ReplyScript
from jackline.simulator.time_model import Calendar, seeded_random

SMOOTH = 0.2
"""Real seconds between the pieces of a stream."""

EventQueue: TypeAlias = asyncio.Queue[ProviderEvent | None]


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request as the script saw it, and its reply; stored in memory for tests."""

    request: ClientRequest
    reply: Reply


class LiveProvider:
    """A running provider and its reply script; None ends the queue of an exchange."""

    def __init__(
        self,
        settings: ProviderSettings,
        script: ReplyScript,
        *,
        seed: int,
        speed: float,
        clients_hurry: bool = False,
    ) -> None:
        self.script = script
        self.settings = settings
        self.speed = speed
        self.recorded: deque[RecordedRequest] = deque(maxlen=10_000)
        self._serial = 0
        # The encrypted reasoning that this server has sent, and can read again.
        self.encrypted_reasoning: set[str] = set()
        self._seed = seed
        self._clock = SystemClock()
        self._began = self._clock.monotonic()
        # Clients that run as fast as the model get its times unscaled.
        announced_speed = 1.0 if clients_hurry else speed
        self.calendar = Calendar(self._clock.now().timestamp(), announced_speed)
        self._calls: Counter[tuple[str, str]] = Counter()
        self._waiting: dict[int, EventQueue] = {}
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()
        self._over = False
        # Without a server there are no connections.
        self.drop_connections: Callable[[], None] = lambda: None
        self.provider = self._new_provider()

    def now(self) -> float:
        """The model's time."""
        return (self._clock.monotonic() - self._began) * self.speed

    # --- exchanges ------------------------------------------------------------------

    def next_serial(self) -> int:
        """A number that no other request has."""
        self._serial += 1
        return self._serial

    def reply_to(self, request: ClientRequest) -> Reply:
        """The script's reply to this request, which counts as a call of its agent."""
        agent = (request.session, request.agent)
        counted = replace(request, call=self._calls[agent])
        self._calls[agent] += 1
        reply = self.script.reply(counted)
        self.recorded.append(RecordedRequest(counted, reply))
        return reply

    def submit(
        self, request: SimRequest, forced: ProviderRefusal | Fault | None = None
    ) -> tuple[int, EventQueue]:
        """Pass a request to the model; its events come out of the queue."""
        queue: EventQueue = asyncio.Queue()
        id = self.provider.arrive(self.now(), request, forced)  # noqa: A001
        self._waiting[id] = queue
        self._wake()
        return id, queue

    def finish(self, id: int, queue: EventQueue) -> None:  # noqa: A002
        """The client is served or gone."""
        if self._waiting.get(id) is queue:
            del self._waiting[id]
            self.provider.cancel(self.now(), id)
            self._wake()

    # --- commands ---------------------------------------------------------------------

    def add_fault(self, fault: Fault) -> int:
        """Add a fault, its window counted from now."""
        now = self.now()
        handle = self.provider.add_fault(now, fault.later(now))
        self._wake()
        return handle

    def clear_faults(self, handle: int | None = None) -> None:
        """End one fault, or all."""
        self.provider.clear_faults(self.now(), handle)
        self._wake()

    def restart(
        self, settings: ProviderSettings | None = None, script: ReplyScript | None = None
    ) -> None:
        """Start again: empty ledger and caches, full buckets; open exchanges are dropped."""
        for queue in self._waiting.values():
            queue.put_nowait(None)
        self._waiting.clear()
        self._calls.clear()
        self.recorded.clear()
        self.settings = settings or self.settings
        self.script = script or self.script
        self.provider = self._new_provider()
        self._wake()

    def _new_provider(self) -> ProviderModel:
        now = self.now()
        settings = replace(
            self.settings,
            service=replace(self.settings.service, bytes_every=SMOOTH * self.speed),
            calendar=self.calendar,
            faults=tuple(fault.later(now) for fault in self.settings.faults),
        )
        return ProviderModel(settings, seeded_random(self._seed), now)

    # --- time -----------------------------------------------------------------------

    def _wake(self) -> None:
        if not self._over:
            self._settled.clear()
        self._changed.set()

    async def settled(self) -> None:
        """Wait until every command so far has taken effect, also on the listening port."""
        await self._settled.wait()

    async def drive(self, set_listening: Callable[[bool], Awaitable[None]]) -> None:
        """Deliver events for ever; `set_listening` is called with whether clients may connect."""
        try:
            while True:
                self._changed.clear()
                now = self.now()
                for event in self.provider.advance(now):
                    queue = self._waiting.get(event.id)
                    if queue is not None:
                        queue.put_nowait(event)
                can_connect, changes_at = self.provider.can_connect(now)
                await set_listening(can_connect)
                upcoming = (self.provider.next_at(), changes_at)
                if not self._changed.is_set():
                    self._settled.set()
                at = min((each for each in upcoming if each is not None), default=None)
                seconds = None if at is None else max(0.0, (at - self.now()) / self.speed)
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._changed.wait()
        finally:
            # Nothing may wait for a driver that has stopped.
            self._over = True
            self._settled.set()
