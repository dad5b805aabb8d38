"""Measure all subjects in all cells, turn by turn, so that noise falls on all of them alike.

Rules: (1) within a round every cell is measured on one subject after the other, and the order moves
on from round to round; (2) every subject is warmed up first, since Node compiles while it runs;
(3) no number is sent twice to the same subject.
Not here: starting the subjects (subjects.py), medians (measures.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway_bench.children import Cores, on
from gateway_bench.measures import Cell, Figure, Order, Reading, figure
from gateway_bench.proc import busy_seconds, own_seconds
from gateway_bench.subjects import HERE, Subject, own_program
from gateway_bench.traffic import LARGE, SMALL

SIZES = (SMALL, LARGE)
CONNECTIONS = (1, 32, 256)
WARM_UP_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How long and how often each cell is measured."""

    rounds: int = 3
    seconds: float = 2.0
    warm_seconds: float = 0.5
    cap: float = 20.0
    connections: tuple[int, ...] = CONNECTIONS

    def cells(self) -> list[Cell]:
        """Every line of the table."""
        return [
            Cell(size, stream, connections)
            for size in SIZES
            for stream in (False, True)
            for connections in self.connections
        ]


QUICK = Pace(rounds=3, seconds=0.5, warm_seconds=0.2, cap=6.0, connections=(1, 32))


class Neighbours:
    """How much of the machine others use meanwhile: figures taken beside them are noisy."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._busy, self._own = busy_seconds(), own_seconds()

    def share(self) -> float | None:
        """The part of all processors that others have used since; None where nobody counts."""
        busy = busy_seconds()
        if busy is None or self._busy is None:
            return None
        others = busy - self._busy - (own_seconds() - self._own)
        return max(0.0, others) / ((time.monotonic() - self._began) * (os.cpu_count() or 1))


class Loads:
    """Runs the load generator, and counts so that no request repeats an earlier one."""

    def __init__(self, cores: Cores) -> None:
        self._cores = cores
        self._number = 0

    def run(self, order: Order) -> Reading:
        """What came of it."""
        with on(self._cores.others):
            done = subprocess.run(
                own_program("load", json.dumps(order.to_json())),
                env={**os.environ, "PYTHONPATH": str(HERE)},
                stdout=subprocess.PIPE,
                check=True,
            )
        reading = Reading.from_json(json.loads(done.stdout))
        self._number = reading.last_number
        return reading

    def order(self, subject: Subject, cell: Cell, pace: Pace) -> Order:
        """The measurement of one subject in one cell."""
        return Order(
            port=subject.port,
            watched=subject.child.pid,
            connections=cell.connections,
            size=cell.size,
            stream=cell.stream,
            key=subject.key,
            headers=subject.headers,
            first_number=self._number,
            warm_seconds=pace.warm_seconds,
            warm_answers=cell.connections,
            seconds=pace.seconds,
            # Of fewer, too large a part would have begun before the window or ended behind it.
            least_answers=2 * cell.connections,
            cap=pace.cap,
        )


def measure(
    subjects: Sequence[Subject], pace: Pace, loads: Loads, tell: Callable[[str], None]
) -> list[Figure]:
    """A figure for each subject and cell."""
    readings: dict[tuple[str, Cell], list[Reading]] = {}
    for subject in subjects:
        tell(f"warming up {subject.name}")
        warm = Pace(seconds=0.1, warm_seconds=WARM_UP_SECONDS, cap=WARM_UP_SECONDS + 3.0)
        for stream in (False, True):
            loads.run(loads.order(subject, Cell(SMALL, stream, 8), warm))
    for number in range(pace.rounds):
        for cell in pace.cells():
            turn = number % len(subjects)
            for subject in (*subjects[turn:], *subjects[:turn]):
                reading = loads.run(loads.order(subject, cell, pace))
                readings.setdefault((subject.name, cell), []).append(reading)
                rate = reading.answers / reading.seconds
                tell(f"round {number + 1}  {cell!s:<22} {subject.name:<9} {rate:>9,.0f} rps")
                if reading.errors:
                    tell(f"  {reading.errors} errors, the first: {reading.error[:200]!r}")
    return [figure(name, cell, found) for (name, cell), found in readings.items()]
