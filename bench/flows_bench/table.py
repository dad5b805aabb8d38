"""Put the figures into one table, as ratios to plain asyncio where rates depend on the machine.

Rules: (1) pure; (2) a figure that could not be taken is a dash, with its reason below the table.
Not here: taking them (runs.py).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from flows_bench.runs import Killed, Took

BASE = "plain asyncio"


@dataclass(slots=True)
class Figures:
    """What was measured of one engine, a value for each round."""

    cost: list[Took] = field(default_factory=list)
    replay: list[Took] = field(default_factory=list)
    killed: list[Killed] = field(default_factory=list)
    burst: list[Killed] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    """By measure, why there is no figure."""

    def wall_per_call(self) -> float | None:
        """Milliseconds of wall time for each call, the median of the rounds."""
        return _median([1000 * one.wall / one.calls for one in self.cost])

    def cpu_per_call(self) -> float | None:
        """Milliseconds of processor time for each call, the median of the rounds."""
        return _median([1000 * one.cpu / one.calls for one in self.cost])

    def replay_seconds(self) -> float | None:
        """Seconds until the last call of a finished fan runs again, the median of the rounds."""
        return _median([one.wall for one in self.replay])


def done_again(kills: Sequence[Killed]) -> str:
    """Of the calls that were done at the kills, how many were done again."""
    if not kills:
        return "-"
    again, done = sum(one.again for one in kills), sum(one.done_before for one in kills)
    return f"{again:,} of {done:,} ({100 * again / max(done, 1):.0f} %)"


def markdown(figures: Mapping[str, Figures], calls: int, replayed: int) -> str:
    """The table for people."""
    head = (
        "engine",
        f"wall ms per call ({calls:,} calls)",
        "CPU ms per call",
        "CPU beside asyncio",
        f"replay of {replayed:,} finished calls, s",
        "finished work done again after a kill -9 in the middle",
        "the same in a burst",
    )
    base = figures[BASE].cpu_per_call() if BASE in figures else None
    rows = [head, tuple("---" for _ in head)]
    for name, one in figures.items():
        rows.append(
            (
                name,
                _shown(one.wall_per_call()),
                _shown(one.cpu_per_call()),
                _ratio(one.cpu_per_call(), base),
                "starts anew" if name == BASE else _shown(one.replay_seconds()),
                done_again(one.killed),
                done_again(one.burst),
            )
        )
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    notes = [
        f"{name}, {what}: {why}"
        for name, one in figures.items()
        for what, why in one.missing.items()
    ]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def as_json(figures: Mapping[str, Figures]) -> dict[str, object]:
    """Every figure of every round."""
    return {name: asdict(one) for name, one in figures.items()}


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _ratio(value: float | None, base: float | None) -> str:
    return "-" if value is None or not base else f"{value / base:.3g} ×"
