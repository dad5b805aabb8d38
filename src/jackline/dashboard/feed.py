"""Send every open page what has changed, about once a second, over one event stream each.

Rules: (1) a stream begins with everything, then come changes; (2) while nobody watches nothing is
gathered; the work of a second is done once, however many watch or come; (3) a watcher that is
behind misses changes, and gets everything again when it has caught up; (4) the number of watchers
is bounded; (5) no open page prevents a service from stopping.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from jackline.clock import Clock
from jackline.control.board import Board, Facts, FlowFacts
from jackline.control.http_handler import ServiceRequest
from jackline.control.stored_runs import StoredRuns

MOST_WATCHERS = 64
_EVERY = 1.0
# Many pages that come back at once, after a restart say, are served together.
_LEAST = 0.1
# In looks: a stream that sends nothing for longer may be dead (proxies, sleeping laptops).
_KEEP_ALIVE = 10
_HEAD = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class _Watcher:
    """One open page; a `new` one needs everything before it may get changes."""

    def __init__(self, request: ServiceRequest) -> None:
        self.request = request
        self.new = True


class Feed:
    """All open pages; `serve` must run for as long as the service does."""

    def __init__(
        self,
        facts: Callable[[FlowFacts], Facts],
        flows: StoredRuns,
        clock: Clock,
        stopping: Callable[[], bool],
    ) -> None:
        self._facts = facts
        self._flows = flows
        self._clock = clock
        self._stopping = stopping
        self._board = Board(float(round(clock.wall())))
        self._watchers: dict[int, _Watcher] = {}
        self._somebody = asyncio.Event()
        self._new = asyncio.Event()
        self._quiet = 0
        # By how much the service's time is ahead of our own, as pages know it.
        self._ahead = 0.0
        self.looks = 0
        """How often the facts were gathered."""

    @property
    def watchers(self) -> int:
        """How many pages are open."""
        return len(self._watchers)

    def open(self, request: ServiceRequest) -> None:
        """Add a page."""
        if request.method == b"HEAD":
            request.respond(200, _HEAD)
            return
        if self._stopping():
            request.respond(503, [(b"content-type", b"text/plain")], b"the service is stopping\n")
            return
        if len(self._watchers) >= MOST_WATCHERS:
            text = b"as many pages are open as this service updates; close one\n"
            request.respond(503, [(b"content-type", b"text/plain"), (b"retry-after", b"30")], text)
            return
        watcher = _Watcher(request)
        name = id(watcher)
        self._watchers[name] = watcher
        request.on_gone = lambda: self._remove(name)
        request.begin(200, _HEAD)
        request.send(b"retry: 1000\n\n")
        self._somebody.set()
        self._new.set()

    def _remove(self, name: int) -> None:
        self._watchers.pop(name, None)
        if not self._watchers:
            self._somebody.clear()

    async def serve(self) -> None:
        """Update all pages, again and again, while there are any."""
        try:
            while True:
                await self._somebody.wait()
                if self._stopping():
                    self._end_all()
                elif await self._update():
                    # Whoever comes and goes and comes again gets everything once a second at most.
                    await self._clock.sleep(_EVERY)
                    continue
                await self._pause()
        finally:
            self._end_all()
            await self._flows.close()

    def _end_all(self) -> None:
        for watcher in list(self._watchers.values()):
            watcher.request.finish()
        self._watchers.clear()
        self._somebody.clear()

    async def _pause(self) -> None:
        """Until the next look is due, or somebody new has come."""
        await self._clock.sleep(_LEAST)
        self._new.clear()
        if any(watcher.new and not watcher.request.paused for watcher in self._watchers.values()):
            return
        due = asyncio.ensure_future(self._clock.sleep(_EVERY - _LEAST))
        new = asyncio.ensure_future(self._new.wait())
        try:
            await asyncio.wait((due, new), return_when=asyncio.FIRST_COMPLETED)
        finally:
            due.cancel()
            new.cancel()
            await asyncio.gather(due, new, return_exceptions=True)

    async def _update(self) -> bool:
        """Send what is new; whether that was everything for somebody."""
        flows = await self._flows.look()
        facts = self._facts(flows)
        change = self._board.update(facts)
        self.looks += 1
        changes = [message(change)]
        while (more := self._board.more()) is not None:
            # A turn for everyone else: after a storm thousands of agents may have changed.
            await asyncio.sleep(0)
            changes.append(message(more))
        # A page that counts down in whole seconds needs to know when the service's time leaps.
        ahead = facts.at - self._clock.monotonic()
        leaps = abs(ahead - self._ahead) > 0.5
        if leaps:
            self._ahead = ahead
        # The time alone is no change, but the page must know that the service is alive.
        quiet = len(change) == 1 and not leaps
        self._quiet = self._quiet + 1 if quiet else 0
        news = b"".join(changes) if self._quiet % _KEEP_ALIVE == 0 else b""
        beginners: list[_Watcher] = []
        for watcher in list(self._watchers.values()):
            if watcher.request.paused:
                watcher.new = True
            elif watcher.new:
                watcher.new = False
                beginners.append(watcher)
            elif news:
                watcher.request.send(news)
        has_made_all = bool(beginners)
        # New watchers get everything, a piece each turn, so that no call waits for it.
        for piece in self._board.pieces() if beginners else ():
            beginners = [each for each in beginners if not each.request.gone]
            if not beginners:
                break
            data = message(piece)
            for watcher in beginners:
                watcher.request.send(data)
            await asyncio.sleep(0)
        return has_made_all


def message(data: object) -> bytes:
    """One event of the stream."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"
