"""Answer like the vendor, as cheaply as Python can: a program that the bench starts.

Rules: (1) every answer is one of a few fixed byte strings; (2) a slow stream sends an event a
second, each with the time of its sending, and ends as a whole message; (3) slow streams share a
hundred ticks a second, so that they cost no timer each.
Not here: faults and limits (the simulator has those), what is measured (load.py, stream_load.py).
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import deque
from typing import cast

from gateway_bench.framing import FramingError, Message
from gateway_bench.loops import run
from gateway_bench.traffic import (
    EMPTY_ANSWER,
    ENDING,
    LAST_CHUNK,
    OPENING,
    STREAM_HEAD,
    chunk,
    json_answer,
    stream_answer,
    text_event,
)

TICKS = 100
NEAR = 64
_STREAM_KEY = b'"stream"'
_STREAM, _JSON = stream_answer(), json_answer()
_SLOW_START = STREAM_HEAD + b"".join(map(chunk, OPENING))
_SLOW_END = b"".join(map(chunk, ENDING)) + LAST_CHUNK


class Wheel:
    """The slow streams, spread over the ticks of a second."""

    def __init__(self, events: int) -> None:
        self._events = events
        self._slots: list[deque[tuple[asyncio.Transport, int]]] = [deque() for _ in range(TICKS)]
        self._next = 0

    def add(self, transport: asyncio.Transport) -> None:
        """Begin a slow stream here and now."""
        transport.write(_SLOW_START)
        # The slot of the tick that has just passed: its first event comes a second from now.
        self._slots[(self._next - 1) % TICKS].append((transport, self._events))

    async def turn(self) -> None:
        """Send every event at its time, for ever."""
        began = time.monotonic()
        for tick in range(1 << 62):
            await asyncio.sleep(max(0.0, began + tick / TICKS - time.monotonic()))
            self._next = (tick + 1) % TICKS
            self._send(self._slots[tick % TICKS])

    @staticmethod
    def _send(slot: deque[tuple[asyncio.Transport, int]]) -> None:
        for _ in range(len(slot)):
            transport, left = slot.popleft()
            if transport.is_closing():
                continue
            if left == 0:
                transport.write(_SLOW_END)
                continue
            transport.write(chunk(text_event(f"sent={time.monotonic_ns()};")))
            slot.append((transport, left - 1))


def wants_stream(message: Message) -> bool:
    """Whether the request asks for a stream."""
    # The bench's own bodies say it at their end; a peer that writes the body anew may say it
    # anywhere, and only then is it worth looking through all of it.
    text = message.parts[-1]
    found = text.find(_STREAM_KEY, max(0, len(text) - NEAR))
    if found < 0:
        text = message.whole
        found = text.rfind(_STREAM_KEY)
    return found >= 0 and b"true" in text[found : found + len(_STREAM_KEY) + 6]


class Answerer(asyncio.Protocol):
    """One connection from whatever stands before the upstream."""

    def __init__(self, wheel: Wheel | None) -> None:
        self._wheel = wheel
        self._message = Message()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Answer when a request is whole."""
        transport = cast(asyncio.Transport, self._transport)
        message = self._message
        try:
            if not message.complete_with(data):
                return
        except FramingError:
            transport.abort()
            return
        self._message = Message()
        if not message.parts[0].startswith(b"POST "):
            transport.write(EMPTY_ANSWER)
        elif not wants_stream(message):
            transport.write(_JSON)
        elif self._wheel is not None:
            self._wheel.add(transport)
        else:
            transport.write(_STREAM)


async def _serve(port: int, slow_events: int) -> None:
    loop = asyncio.get_running_loop()
    wheel = Wheel(slow_events) if slow_events else None
    server = await loop.create_server(lambda: Answerer(wheel), "127.0.0.1", port, backlog=4096)
    async with server:
        await (server.serve_forever() if wheel is None else wheel.turn())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="the bench's upstream")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--slow-events", type=int, default=0, help="stream so many, one a second")
    chosen = parser.parse_args()
    run(_serve(chosen.port, chosen.slow_events))
