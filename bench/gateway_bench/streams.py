"""Hold thousands of slow streams through each subject, and judge ours.

Rules: (1) the subjects are measured one after the other, each before an upstream of its own;
(2) all streams are open at once for the whole time asked for.
Not here: the streams themselves (stream_load.py, upstream.py).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from gateway_bench.children import Children, Cores, on
from gateway_bench.measures import StreamOrder, StreamReading
from gateway_bench.peer import MissingError
from gateway_bench.peers import PEERS
from gateway_bench.stream_load import OPEN_PER_SECOND
from gateway_bench.subjects import HERE, own_program, start_subject, start_upstream
from gateway_bench.targets import Verdict

MOST_BYTES = 40_000.0


def hold_streams(
    streams: int,
    hold: int,
    names: Sequence[str],
    children: Children,
    cores: Cores,
    state: Path,
    tell: Callable[[str], None],
) -> dict[str, StreamReading]:
    """What became of the streams through each subject that could be started."""
    readings = {}
    for name in names:
        own = state / f"streams-{name}"
        own.mkdir()
        tell(f"{streams:,} slow streams through {name}")
        try:
            reading = _through(name, streams, hold, children, cores, own)
        except MissingError as missing:
            tell(f"left out: {name}: {missing}")
            continue
        readings[name] = reading
        if reading.errors:
            tell(f"  {reading.errors} errors, the first: {reading.error[:300]}")
    return readings


def _through(
    name: str, streams: int, hold: int, children: Children, cores: Cores, state: Path
) -> StreamReading:
    peer = PEERS[name]
    if not peer.installed():
        peer.install()
    # The streams that were opened first have to wait for those that are opened last.
    events = hold + -(-streams // OPEN_PER_SECOND)
    upstream = start_upstream(children, cores, state, "--slow-events", str(events))
    subject = start_subject(
        peer, upstream, children, cores, state, ask_streams=False
    )  # that would take a whole slow stream
    order = StreamOrder(
        port=subject.port,
        watched=subject.child.pid,
        streams=streams,
        events=events,
        key=subject.key,
        headers=subject.headers,
    )
    with on(cores.others):
        done = subprocess.run(
            own_program("stream_load", json.dumps(order.to_json())),
            env={**os.environ, "PYTHONPATH": str(HERE)},
            stdout=subprocess.PIPE,
            check=True,
        )
    children.stop(subject.child)
    children.stop(upstream.child)
    return StreamReading(**json.loads(done.stdout))


def judge_streams(reading: StreamReading | None, wanted: int) -> list[Verdict]:
    """All open at once, none broken, none heavy."""
    if reading is None:
        return [Verdict(None, "slow streams through jackline: not measured")]
    each = reading.bytes_per_stream()
    heavy = None if each is None else each <= MOST_BYTES
    said = "not measured" if each is None else f"{each:,.1f}"
    return [
        Verdict(reading.peak_live == wanted, f"streams open at once: {reading.peak_live:,}"),
        Verdict(reading.errors == 0, f"errors in streams: {reading.errors}"),
        Verdict(heavy, f"bytes per stream: {said} (target ≤ {MOST_BYTES:,.0f})"),
    ]
