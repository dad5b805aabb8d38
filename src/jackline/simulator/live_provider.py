"""Run the provider model on the real clock: requests go in, events come out when they are due.

Rules: (1) the only place that turns real time into the model's; (2) events of an exchange go to
the one who entered it, and to nobody once it has left; (3) all methods are called from one event
loop.
Not here: sockets (server.py), what an event looks like on a connection (connection.py).
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
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
    """A request as the mind saw it, and its reply; kept in memory for tests to look at."""

    asked: ClientRequest
    reply: Reply


class LiveProvider:
    """A provider and a mind at work; a queue that gives None has nothing more to give."""

    def __init__(
        self,
        settings: ProviderSettings,
        mind: ReplyScript,
        *,
        seed: int,
        speed: float,
        clients_hurry: bool = False,
    ) -> None:
        self.mind = mind
        self.settings = settings
        self.speed = speed
        self.heard: deque[RecordedRequest] = deque(maxlen=10_000)
        self._serial = 0
        # The encrypted thoughts that this server has given out, and can read again.
        self.seals: set[str] = set()
        self._seed = seed
        self._clock = SystemClock()
        self._began = self._clock.monotonic()
        # Whoever lives as fast as the model is told of its times as they are.
        told_speed = 1.0 if clients_hurry else speed
        self.calendar = Calendar(self._clock.now().timestamp(), told_speed)
        self._calls: Counter[tuple[str, str]] = Counter()
        self._waiting: dict[int, EventQueue] = {}
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()
        self._over = False
        self.drop_connections: Callable[[], None] = _nothing_to_drop
        self.provider = self._fresh_provider()

    def now(self) -> float:
        """The model's time."""
        return (self._clock.monotonic() - self._began) * self.speed

    # --- exchanges ------------------------------------------------------------------

    def next_serial(self) -> int:
        """A number that no other request has."""
        self._serial += 1
        return self._serial

    def hear(self, asked: ClientRequest) -> Reply:
        """What the mind says to this request; it counts as one of its speaker's calls."""
        speaker = (asked.session, asked.agent)
        placed = replace(asked, call=self._calls[speaker])
        self._calls[speaker] += 1
        reply = self.mind.reply(placed)
        self.heard.append(RecordedRequest(placed, reply))
        return reply

    def enter(
        self, request: SimRequest, ordered: ProviderRefusal | Fault | None = None
    ) -> tuple[int, EventQueue]:
        """Hand a request to the model; its events come out of the queue."""
        queue: EventQueue = asyncio.Queue()
        id = self.provider.arrive(self.now(), request, ordered)  # noqa: A001
        self._waiting[id] = queue
        self._stir()
        return id, queue

    def leave(self, id: int, queue: EventQueue) -> None:  # noqa: A002
        """The client is served or gone."""
        if self._waiting.get(id) is queue:
            del self._waiting[id]
            self.provider.cancel(self.now(), id)
            self._stir()

    # --- orders ---------------------------------------------------------------------

    def add_fault(self, fault: Fault) -> int:
        """Let a fault strike, its window counted from now."""
        now = self.now()
        handle = self.provider.add_fault(now, _later(fault, now))
        self._stir()
        return handle

    def clear_faults(self, handle: int | None = None) -> None:
        """End one fault, or all."""
        self.provider.clear_faults(self.now(), handle)
        self._stir()

    def restart(
        self, settings: ProviderSettings | None = None, mind: ReplyScript | None = None
    ) -> None:
        """Begin anew: nothing in ledger and caches, full buckets; open exchanges are dropped."""
        for queue in self._waiting.values():
            queue.put_nowait(None)
        self._waiting.clear()
        self._calls.clear()
        self.heard.clear()
        self.settings = settings or self.settings
        self.mind = mind or self.mind
        self.provider = self._fresh_provider()
        self._stir()

    def _fresh_provider(self) -> ProviderModel:
        now = self.now()
        played = replace(
            self.settings,
            service=replace(self.settings.service, bytes_every=SMOOTH * self.speed),
            calendar=self.calendar,
            faults=tuple(_later(fault, now) for fault in self.settings.faults),
        )
        return ProviderModel(played, seeded_random(self._seed), now)

    # --- time -----------------------------------------------------------------------

    def _stir(self) -> None:
        if not self._over:
            self._settled.clear()
        self._changed.set()

    async def settled(self) -> None:
        """Wait until every order so far has taken effect, the door's among them."""
        await self._settled.wait()

    async def drive(self, door: Callable[[bool], Awaitable[None]]) -> None:
        """Deliver events for ever; `door` is told whether clients may connect."""
        try:
            while True:
                self._changed.clear()
                await self._pass(door)
        finally:
            # Nobody shall wait for a driver that has stopped.
            self._over = True
            self._settled.set()

    async def _pass(self, door: Callable[[bool], Awaitable[None]]) -> None:
        now = self.now()
        for event in self.provider.advance(now):
            queue = self._waiting.get(event.id)
            if queue is not None:
                queue.put_nowait(event)
        is_open, door_moves_at = self.provider.door(now)
        await door(is_open)
        upcoming = [at for at in (self.provider.next_at(), door_moves_at) if at is not None]
        if not self._changed.is_set():
            self._settled.set()
        await self._sleep_until(min(upcoming, default=None))

    async def _sleep_until(self, at: float | None) -> None:
        seconds = None if at is None else max(0.0, (at - self.now()) / self.speed)
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return


def _nothing_to_drop() -> None:
    """Without a server there are no connections."""


def _later(fault: Fault, seconds: float) -> Fault:
    return replace(fault, start=fault.start + seconds, until=fault.until + seconds)
