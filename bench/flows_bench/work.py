"""The work that every engine is given: a fake model of some milliseconds, and a line for each call.

Rules: (1) no package is needed: it runs inside each engine's own Python; (2) a line is written when
a call's work is done, so that lines beyond the number of calls are work done again; (3) time counts
from the moment at which the engine is asked, imports left out.
Not here: the engines (with_*.py), starting them (runs.py).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORKED, HOLD, REACHED = "worked.log", "hold", "reached"
ANSWER = "What a model says in about a kilobyte, as an agent of a fan-out would report it. " * 12


@dataclass(frozen=True, slots=True)
class Order:
    """What to do: so many calls, so many at once, each about so many seconds long."""

    folder: Path
    count: int
    at_once: int
    delay: float

    def words(self) -> list[str]:
        """The same as arguments of a program."""
        return [str(self.folder), str(self.count), str(self.at_once), str(self.delay)]


def order_of(words: Sequence[str]) -> Order:
    """The order that a program was given."""
    folder, count, at_once, delay = words
    return Order(Path(folder), int(count), int(at_once), float(delay))


async def ask(order: Order, place: int) -> dict[str, Any]:
    """What the fake model answers to one call."""
    if order.delay:
        # From half to one and a half of it: calls that all end at once are nobody's daily life.
        await asyncio.sleep(order.delay * (0.5 + place * 37 % 100 / 100))
    note_work(order, place)
    return {"place": place, "text": ANSWER}


def note_work(order: Order, place: int) -> None:
    """Write down that this call's work is done."""
    file = os.open(order.folder / WORKED, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{place}\n".encode())
    finally:
        os.close(file)


async def last(order: Order) -> None:
    """The call after the fan; it hangs as long as the bench wants to kill the process there."""
    while (order.folder / HOLD).exists():
        (order.folder / REACHED).touch()
        await asyncio.sleep(0.01)


class Stopwatch:
    """Wall and processor time since it was made."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()
        self.wall = 0.0
        self.cpu = 0.0

    def stop(self) -> None:
        """Take the time."""
        self.wall = time.perf_counter() - self._wall
        self.cpu = time.process_time() - self._cpu

    def report(self, places: Sequence[int]) -> None:
        """Print what was measured; results that are not those of their calls end the program."""
        if list(places) != list(range(len(places))):
            sys.exit("results were swapped or lost")
        print(json.dumps({"calls": len(places), "wall": self.wall, "cpu": self.cpu}))
