"""Send requests as fast as they are answered, and check every answer: a program of the bench.

Rules: (1) each connection sends one request at a time over keep-alive, under a session of its own;
(2) an answer that is not whole counts as an error, and so does a closed connection, which is opened
again; (3) measuring begins when every connection has been answered and the warm-up is over; (4) the
counts of the timed window come from inside it: answers, processor time, latencies.
Not here: slow streams (stream_load.py), what requests look like (traffic.py).

`wrk` would be cheaper, but cannot tell whether a stream was whole nor when its first byte came; one
generator for both kinds keeps them comparable.
"""

from __future__ import annotations

import asyncio
import json
import sys
from time import perf_counter
from typing import cast

from gateway_bench.framing import FramingError, Message
from gateway_bench.loops import run
from gateway_bench.measures import Order, Reading, percentile
from gateway_bench.proc import cpu_seconds, resident_bytes
from gateway_bench.traffic import Request, body_text, build, is_whole

# A refused or closed connection is tried again so much later.
AGAIN = 0.05


class Run:
    """The whole run: what all connections share and count."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.body = body_text(order.size, stream=order.stream)
        self.counter = order.first_number
        self.answers = 0
        self.errors = 0
        self.example = ""
        self.timed = False
        self.done = False
        self.latencies: list[float] = []
        self.first_bytes: list[float] = []
        self.marks: list[tuple[int, int | None]] = []
        self.sessions = 0

    def request(self) -> Request:
        """A request under a new session."""
        self.sessions += 1
        session = f"{self.order.first_number:08x}-0000-4000-8000-{self.sessions:012x}"
        order = self.order
        return build(
            self.body, port=order.port, session=session, key=order.key, extra=order.headers
        )

    def number(self) -> int:
        """The next request's number."""
        self.counter += 1
        return self.counter

    def answered(self, sent: float, first: float, now: float) -> None:
        """Count a whole answer."""
        self.answers += 1
        if self.timed:
            self.latencies.append(now - sent)
            self.first_bytes.append(first - sent)
        if self.order.mark_every and self.answers % self.order.mark_every == 0:
            self.marks.append((self.answers, resident_bytes(self.order.watched)))

    def failed(self, what: str) -> None:
        """Count an error, and keep the first as an example."""
        self.errors += 1
        self.example = self.example or what


class Caller(asyncio.Protocol):
    """One connection."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._request = run.request()
        self._left = run.order.calls_per_session
        self._message = Message()
        self._transport: asyncio.Transport | None = None
        self._sent = 0.0
        self._first = 0.0
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def _send(self) -> None:
        transport = cast(asyncio.Transport, self._transport)
        if self._left == 0 and self._run.order.calls_per_session == 1:
            # Connections that last for one call would measure the system's, not the gateway's.
            self._request, self._left = self._run.request(), 1
        if self._run.done or self._left == 0:
            transport.close()
            return
        self._left -= 1
        self._first = 0.0
        self._sent = perf_counter()
        transport.writelines(self._request.numbered(self._run.number()))

    def data_received(self, data: bytes) -> None:
        """Take the answer; send the next request when it is whole."""
        now = perf_counter()
        if not self._first:
            self._first = now
        message = self._message
        try:
            if not message.complete_with(data):
                return
        except FramingError as wrong:
            self._run.failed(str(wrong))
            cast(asyncio.Transport, self._transport).abort()
            return
        self._message = Message()
        answer = message.whole
        if is_whole(answer, stream=self._run.order.stream):
            self._run.answered(self._sent, self._first, now)
        else:
            self._run.failed(answer[:600].decode("ascii", "replace"))
        self._sent = 0.0
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count a connection that was closed while an answer was due."""
        if self._sent and not self._run.done:
            self._run.failed(f"connection closed before the answer was whole ({exc})")
        if not self.closed.done():
            self.closed.set_result(None)


async def _keep_calling(run: Run) -> None:
    loop = asyncio.get_running_loop()
    while not run.done:
        try:
            _, caller = await loop.create_connection(
                lambda: Caller(run), "127.0.0.1", run.order.port
            )
        except OSError as refused:
            run.failed(f"could not connect: {refused}")
            await asyncio.sleep(AGAIN)
        else:
            await caller.closed


async def _until(run: Run, seconds: float, answers: int, cap: float) -> float:
    """Wait for both the time and the answers, at most `cap`; how long it took."""
    began = perf_counter()
    target = run.answers + answers
    while True:
        spent = perf_counter() - began
        if spent >= cap or (spent >= seconds and run.answers >= target):
            return spent
        # Precise at the end of the window, and no busy loop before it.
        left = seconds - spent
        await asyncio.sleep(min(0.05, left) if left > 0.0 else 0.01)


async def _measure(order: Order) -> Reading:
    run = Run(order)
    callers = [asyncio.create_task(_keep_calling(run)) for _ in range(order.connections)]
    await _until(run, order.warm_seconds, order.warm_answers, order.cap)
    before, errors, used = run.answers, run.errors, cpu_seconds(order.watched)
    run.timed = True
    seconds = await _until(run, order.seconds, order.least_answers, order.cap)
    run.timed = False
    answers, spent = run.answers - before, cpu_seconds(order.watched)
    errors = run.errors - errors
    run.done = True
    for caller in callers:
        caller.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    return Reading(
        answers=answers,
        errors=errors,
        error=run.example,
        seconds=seconds,
        cpu_seconds=None if used is None or spent is None else spent - used,
        p50=percentile(run.latencies, 0.50),
        p99=percentile(run.latencies, 0.99),
        first_p50=percentile(run.first_bytes, 0.50),
        first_p99=percentile(run.first_bytes, 0.99),
        last_number=run.counter,
        marks=tuple(run.marks),
    )


if __name__ == "__main__":
    wanted = Order.from_json(json.loads(sys.argv[1]))
    print(json.dumps(run(_measure(wanted)).to_json()))
