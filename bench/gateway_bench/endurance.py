"""Watch the gateway's memory over a great many calls.

Rules: (1) streamed calls over thirty-two connections, each renewed with a new session every few
hundred calls, as sessions come and go, or kept with a new session at every call; (2) the slope is
that of the best straight line behind the first quarter, where caches have filled.
Not here: speed (rounds.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gateway_bench.children import Children, Cores
from gateway_bench.measures import Cell, Order, Reading
from gateway_bench.peers import PEERS
from gateway_bench.rounds import Loads
from gateway_bench.subjects import start_subject, start_upstream
from gateway_bench.targets import Verdict
from gateway_bench.traffic import SMALL

CALLS_PER_SESSION = 250
MARKS = 20
# What an allocator's own unrest may look like over some ten thousand calls.
MOST_BYTES_PER_CALL = 16.0


def endure(calls: int, per_session: int, children: Children, cores: Cores, state: Path) -> Reading:
    """Make the calls, and note the memory as they go."""
    peer = PEERS["jackline"]
    if not peer.installed():
        peer.install()
    upstream = start_upstream(children, cores, state)
    subject = start_subject(peer, upstream, children, cores, state)
    cell = Cell(SMALL, stream=True, connections=32)
    order = Order(
        port=subject.port,
        watched=subject.child.pid,
        connections=cell.connections,
        size=cell.size,
        stream=cell.stream,
        key=subject.key,
        warm_seconds=0.0,
        warm_answers=0,
        seconds=0.0,
        least_answers=calls,
        cap=3_600.0,
        calls_per_session=per_session,
        mark_every=max(1, calls // MARKS),
    )
    return Loads(cores).run(order)


def judge_endurance(reading: Reading, calls: int) -> list[Verdict]:
    """No call lost, and no growth behind the first quarter."""
    marks = [(count, size) for count, size in reading.marks if size is not None]
    growth = slope([(count, size) for count, size in marks if count * 4 >= calls])
    flat = None if growth is None else growth <= MOST_BYTES_PER_CALL
    said = "not measured" if growth is None else f"{growth:.3f}"
    return [
        Verdict(reading.answers >= calls, f"calls answered: {reading.answers:,}"),
        Verdict(reading.errors == 0, f"errors: {reading.errors} {reading.error[:300]}".rstrip()),
        Verdict(flat, f"bytes per call: {said} (target ≤ {MOST_BYTES_PER_CALL:g})"),
    ]


def slope(points: Sequence[tuple[int, int]]) -> float | None:
    """Of the best straight line through the points; None when there are too few."""
    if len(points) < 2:
        return None
    middle = sum(x for x, _ in points) / len(points)
    height = sum(y for _, y in points) / len(points)
    spread = sum((x - middle) ** 2 for x, _ in points)
    return sum((x - middle) * (y - height) for x, y in points) / spread
