"""Hold many slow streams open at once and watch each of them to its end: a program of the bench.

Rules: (1) a stream is good when every event came and it ended as a whole message; anything else is
an error; (2) an event's lag is the time from its sending, which it carries, to its arrival here;
(3) memory is read from just before the first stream to when the last one ends.
Not here: short answers at full speed (load.py), the sending of the events (upstream.py).
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from typing import cast

from gateway_bench.loops import run
from gateway_bench.measures import StreamOrder, StreamReading, percentile
from gateway_bench.proc import cpu_seconds, resident_bytes
from gateway_bench.traffic import SMALL, body_text, build

OPEN_PER_SECOND = 500
_SENT = re.compile(rb"sent=(\d+);")
_LAST_CHUNK = b"0\r\n\r\n"


class Crowd:
    """What all streams share and count."""

    def __init__(self, order: StreamOrder) -> None:
        self.order = order
        self.body = body_text(SMALL, stream=True)
        self.live = self.peak_live = self.good = self.events = self.errors = 0
        self.example = ""
        self.lags: list[float] = []

    def failed(self, what: str) -> None:
        """Count an error, and keep the first as an example."""
        self.errors += 1
        self.example = self.example or what


class Listener(asyncio.Protocol):
    """One stream."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        self._crowd = crowd
        self._number = number
        self._rest = b""
        self._events = 0
        self._stopped = False
        self._over = False
        self._transport: asyncio.Transport | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the stream."""
        self._transport = cast(asyncio.Transport, transport)
        order = self._crowd.order
        session = f"00000000-0000-4000-8001-{self._number:012x}"
        request = build(
            self._crowd.body,
            port=order.port,
            session=session,
            key=order.key,
            extra=order.headers,
        )
        self._transport.writelines(request.numbered(self._number))

    def data_received(self, data: bytes) -> None:
        """Take what came; note how late each event is."""
        now = time.monotonic_ns()
        crowd = self._crowd
        seen = self._rest + data
        if not self._events and not self._rest:
            crowd.live += 1
            crowd.peak_live = max(crowd.peak_live, crowd.live)
        cut = seen.rfind(b"\n\n") + 2
        for sent in _SENT.findall(seen, 0, cut):
            self._events += 1
            crowd.lags.append((now - int(sent)) / 1e9)
        self._stopped = self._stopped or b"event: message_stop" in seen
        if seen.endswith(_LAST_CHUNK):
            self._finish(seen)
        # Never empty once something came: that is how the first bytes are told from later ones.
        self._rest = seen[cut - 2 :] if cut >= 2 else seen

    def _finish(self, tail: bytes) -> None:
        crowd = self._crowd
        self._over = True
        crowd.live -= 1
        crowd.events += self._events
        if not self._stopped:
            crowd.failed(f"ended without message_stop: {tail[:300]!r}")
        elif self._events != crowd.order.events:
            crowd.failed(f"{self._events} of {crowd.order.events} events came")
        else:
            crowd.good += 1
        cast(asyncio.Transport, self._transport).close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count a stream that was cut."""
        if not self._over:
            self._crowd.failed(f"cut after {self._events} events ({exc}): {self._rest[:300]!r}")
        self.closed.set_result(None)


async def _open(crowd: Crowd, number: int) -> None:
    await asyncio.sleep(number / OPEN_PER_SECOND)
    loop = asyncio.get_running_loop()
    try:
        _, listener = await loop.create_connection(
            lambda: Listener(crowd, number), "127.0.0.1", crowd.order.port
        )
    except OSError as refused:
        crowd.failed(f"could not connect: {refused}")
    else:
        await listener.closed


async def _watch(order: StreamOrder, sizes: list[int]) -> None:
    while True:
        sizes.append(resident_bytes(order.watched) or 0)
        await asyncio.sleep(1.0)


async def _hold(order: StreamOrder) -> StreamReading:
    crowd = Crowd(order)
    before, used = resident_bytes(order.watched), cpu_seconds(order.watched)
    sizes: list[int] = []
    watch = asyncio.create_task(_watch(order, sizes))
    async with asyncio.timeout(order.streams / OPEN_PER_SECOND + order.events * 2 + 60.0):
        await asyncio.gather(*(_open(crowd, number) for number in range(order.streams)))
    watch.cancel()
    spent = cpu_seconds(order.watched)
    return StreamReading(
        good=crowd.good,
        errors=crowd.errors,
        error=crowd.example,
        peak_live=crowd.peak_live,
        events=crowd.events,
        lag_p50=percentile(crowd.lags, 0.50),
        lag_p99=percentile(crowd.lags, 0.99),
        lag_max=max(crowd.lags, default=0.0),
        bytes_before=before,
        bytes_most=None if before is None else max(sizes),
        cpu_seconds=None if used is None or spent is None else spent - used,
    )


if __name__ == "__main__":
    wanted = StreamOrder.from_json(json.loads(sys.argv[1]))
    print(json.dumps(run(_hold(wanted)).to_json()))
