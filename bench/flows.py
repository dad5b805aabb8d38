"""Measure flows beside plain asyncio, DBOS on SQLite and LangGraph's SQLite checkpointer.

    python bench/flows.py [--quick] [--json]

Rules: (1) everything is measured in one interleaved run on one machine, so ratios mean something
where rates do not; (2) what cannot be installed or does not end is named and left out.
Not here: how anything is measured (flows_bench/).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from flows_bench.engines import ENGINES, Engine, MissingError
from flows_bench.runs import cost, kill_in_the_middle, replay
from flows_bench.table import BASE, Figures, as_json, markdown
from flows_bench.work import Order

T = TypeVar("T")
NOWHERE = Path()


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    rounds: int = 3
    calls: int = 1_000
    replayed: int = 10_000
    killed: int = 400
    at_once: int = 100

    def fan(self) -> Order:
        """The fan whose cost is taken: the work itself takes no time."""
        return Order(NOWHERE, self.calls, self.at_once, 0.0)

    def finished(self) -> Order:
        """The fan that is replayed."""
        return Order(NOWHERE, self.replayed, self.at_once, 0.0)

    def struck(self) -> Order:
        """The fan that is killed: some fifty calls end in a second, as in a large fleet."""
        return Order(NOWHERE, self.killed, 50, 1.0)

    def struck_in_a_burst(self) -> Order:
        """The same when calls end faster than any engine writes: what is not durable yet shows."""
        return Order(NOWHERE, self.calls, self.at_once, 0.02)


QUICK = Sizes(rounds=1, calls=200, replayed=1_000, killed=100)


def main() -> int:
    """Run what the arguments ask for, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one small round; installs nothing")
    parser.add_argument("--json", action="store_true", help="every figure as JSON, not as a table")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, help="only these")
    parser.add_argument("--rounds", type=int, help="rounds of everything (default: 3)")
    arguments = parser.parse_args()
    sizes = QUICK if arguments.quick else Sizes()
    if arguments.rounds:
        sizes = replace(sizes, rounds=arguments.rounds)
    engines = list(_there(arguments.engines or list(ENGINES), quick=arguments.quick))
    figures = measure(engines, sizes)
    if arguments.json:
        print(json.dumps(as_json(figures), indent=1))
    else:
        print(markdown(figures, sizes.calls, sizes.replayed))
    return 0


def measure(engines: list[Engine], sizes: Sizes) -> dict[str, Figures]:
    """All figures of all engines, taken in turn."""
    figures = {engine.name: Figures() for engine in engines}
    for number in range(1, sizes.rounds + 1):
        for engine in engines:
            _tell(f"round {number} of {sizes.rounds}: {engine.name}")
            one = figures[engine.name]
            _take(one, "cost", one.cost, partial(cost, engine, sizes.fan()))
            if engine.name != BASE:
                _take(one, "replay", one.replay, partial(replay, engine, sizes.finished()))
            _take(one, "kill", one.killed, partial(kill_in_the_middle, engine, sizes.struck()))
            burst = sizes.struck_in_a_burst()
            _take(one, "burst", one.burst, partial(kill_in_the_middle, engine, burst))
    return figures


def _take(figures: Figures, what: str, into: list[T], measured: Callable[[], T]) -> None:
    if what in figures.missing:
        return
    try:
        into.append(measured())
    except MissingError as missing:
        figures.missing[what] = str(missing)
        _tell(f"  {what}: {missing}")


def _there(names: list[str], *, quick: bool) -> list[Engine]:
    found = []
    for name in names:
        engine = ENGINES[name]
        try:
            _make_sure_of(engine, quick=quick)
        except MissingError as missing:
            _tell(f"left out: {name}: {missing}")
        else:
            found.append(engine)
    return found


def _make_sure_of(engine: Engine, *, quick: bool) -> None:
    if engine.installed():
        return
    if quick:
        raise MissingError("not installed; a run without --quick installs it")
    _tell(f"installing {engine.name} (once)")
    engine.install()


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
