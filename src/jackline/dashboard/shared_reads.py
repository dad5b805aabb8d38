"""Answer requests whose documents take long to read: few at a time, each for all who want it.

Rules: (1) whoever wants the same document meanwhile, or within half a second, gets the same bytes;
(2) no more than `MOST_READERS` documents are read at once, and none waits in line: others are asked
to come back; (3) a read that nobody waits for any more is told so, and its place is free when it
has really ended; (4) what is kept is bounded.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from jackline.control.http_handler import ServiceRequest
from jackline.errors import JacklineError

Key = TypeVar("Key")
MOST_READERS = 2
_SHARED_SECONDS = 0.5
_MOST_KEPT = 16
_NO_STORE = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
_BUSY = (
    b'{"error":{"message":"this service reads as many documents as it can: ask again in a second"}}'
)

IsWanted: TypeAlias = Callable[[], bool]
"""Whether somebody still waits; may be asked in any thread."""


class NotWantedError(Exception):
    """Raised by a read that nobody waits for any more."""


@dataclass(eq=False, slots=True)
class _Reading:
    waiting: list[ServiceRequest] = field(default_factory=list)

    def is_wanted(self) -> bool:
        return bool(self.waiting)


class SharedReads(Generic[Key]):
    """The documents that are being read, and those that have just been."""

    def __init__(self, read: Callable[[Key, IsWanted], Awaitable[bytes]]) -> None:
        """`read` returns a document; it raises NotWantedError where it gives up."""
        self._read = read
        self._readings: dict[Key, _Reading] = {}
        self._kept: dict[Key, tuple[float, bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def answer(self, request: ServiceRequest, key: Key) -> None:
        """Send the document, now or when it is read."""
        read_at, body = self._kept.get(key, (float("-inf"), b""))
        if self._now() - read_at < _SHARED_SECONDS:
            request.respond(200, _NO_STORE, body)
            return
        reading = self._readings.get(key)
        if reading is None:
            if len(self._readings) >= MOST_READERS:
                request.respond(503, [*_NO_STORE, (b"retry-after", b"1")], _BUSY)
                return
            reading = self._readings[key] = _Reading()
            task = asyncio.get_running_loop().create_task(self._carry_out(key, reading))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        reading.waiting.append(request)
        request.on_gone = partial(self._forget, reading, request)

    async def close(self) -> None:
        """Give all reads up, and return when they have ended."""
        for reading in self._readings.values():
            reading.waiting.clear()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _carry_out(self, key: Key, reading: _Reading) -> None:
        status, headers = 500, [(b"content-type", b"text/plain")]
        body = b"Jackline: no answer was made.\n"
        try:
            body = await self._read(key, reading.is_wanted)
            status, headers = 200, _NO_STORE
            self._keep(key, body)
        except NotWantedError:
            # For who has come in the very moment when it gave up.
            status, headers, body = 503, [*_NO_STORE, (b"retry-after", b"1")], _BUSY
        except JacklineError as error:
            status, headers = error.http_status, _NO_STORE
            body = json.dumps({"error": error.to_json()}, ensure_ascii=False).encode()
        finally:
            del self._readings[key]
            for request in reading.waiting:
                request.on_gone = None
                request.respond(status, headers, body)

    def _keep(self, key: Key, body: bytes) -> None:
        now = self._now()
        fresh = {k: v for k, v in self._kept.items() if now - v[0] < _SHARED_SECONDS}
        self._kept = dict(list(fresh.items())[-(_MOST_KEPT - 1) :])
        self._kept[key] = (now, body)

    @staticmethod
    def _forget(reading: _Reading, request: ServiceRequest) -> None:
        with suppress(ValueError):
            reading.waiting.remove(request)

    @staticmethod
    def _now() -> float:
        # Of whoever asks: in a drill the service's own clock may run much faster.
        return asyncio.get_running_loop().time()
