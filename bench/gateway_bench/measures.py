"""What is asked of the load generator, what it reads off, and how readings become one figure.

Rules: (1) a figure is the median over the rounds, and keeps what each round gave, so that two
subjects can be compared round by round; (2) a percentile is a value that was measured, never one
between two; (3) times are seconds here, microseconds only in the table.
Not here: judging figures (targets.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Order:
    """One measurement: where to send, how, how long, and whose processor time to read."""

    port: int
    watched: int
    connections: int
    size: int
    stream: bool
    key: str
    headers: tuple[tuple[str, str], ...] = ()
    first_number: int = 0
    warm_seconds: float = 0.3
    warm_answers: int = 1
    seconds: float = 1.0
    least_answers: int = 1
    # Slow peers get longer than asked, up to this.
    cap: float = 30.0
    calls_per_session: int = -1
    mark_every: int = 0

    def to_json(self) -> dict[str, object]:
        """As the load generator takes it."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Order:
        """What `to_json` was made from."""
        headers = tuple((name, value) for name, value in fields["headers"])
        return cls(**{**fields, "headers": headers})


@dataclass(frozen=True, slots=True)
class Reading:
    """What one timed window gave. `marks`: answers so far, resident bytes then."""

    answers: int
    errors: int
    error: str
    seconds: float
    cpu_seconds: float | None
    p50: float
    p99: float
    first_p50: float
    first_p99: float
    last_number: int
    marks: tuple[tuple[int, int | None], ...] = ()

    def to_json(self) -> dict[str, object]:
        """As the load generator prints it."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Reading:
        """What `to_json` was made from."""
        return cls(**{**fields, "marks": tuple((count, size) for count, size in fields["marks"])})


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One line of the table: body size, streaming or not, concurrency."""

    size: int
    stream: bool
    connections: int

    def __str__(self) -> str:
        kind = "stream" if self.stream else "json"
        return f"{self.size // 1024} KB {kind} c{self.connections}"


@dataclass(frozen=True, slots=True)
class Figure:
    """The medians of one subject in one cell; `rates` and `costs` are those of each round.

    A cost is the processor time of one answer, of the process with all its children.
    """

    subject: str
    cell: Cell
    rates: tuple[float, ...]
    costs: tuple[float | None, ...]
    p50: float
    p99: float
    first: float
    errors: int

    @property
    def rps(self) -> float:
        """Answers per second."""
        return median(self.rates)

    @property
    def cpu(self) -> float | None:
        """Processor time of one answer."""
        known = [cost for cost in self.costs if cost is not None]
        return median(known) if known else None


def percentile(values: Sequence[float], part: float) -> float:
    """The smallest value that at least this part of the values does not exceed; 0 of none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(0, -int(-part * len(ordered) // 1) - 1)]


def figure(subject: str, cell: Cell, readings: Sequence[Reading]) -> Figure:
    """The rounds of one subject in one cell, as one."""
    return Figure(
        subject=subject,
        cell=cell,
        rates=tuple(reading.answers / reading.seconds for reading in readings),
        costs=tuple(map(_cost, readings)),
        p50=median(reading.p50 for reading in readings),
        p99=median(reading.p99 for reading in readings),
        first=median(reading.first_p50 for reading in readings),
        errors=sum(reading.errors for reading in readings),
    )


def _cost(reading: Reading) -> float | None:
    if reading.cpu_seconds is None or not reading.answers:
        return None
    return reading.cpu_seconds / reading.answers


@dataclass(frozen=True, slots=True)
class StreamOrder:
    """So many slow streams through this port, each with so many events, one a second."""

    port: int
    watched: int
    streams: int
    events: int
    key: str
    headers: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, object]:
        """As the stream holder takes it."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> StreamOrder:
        """What `to_json` was made from."""
        headers = tuple((name, value) for name, value in fields["headers"])
        return cls(**{**fields, "headers": headers})


@dataclass(frozen=True, slots=True)
class StreamReading:
    """What became of the streams, and what they took."""

    good: int
    errors: int
    error: str
    peak_live: int
    events: int
    lag_p50: float
    lag_p99: float
    lag_max: float
    bytes_before: int | None
    bytes_most: int | None
    cpu_seconds: float | None

    def to_json(self) -> dict[str, object]:
        """As the stream holder prints it."""
        return asdict(self)

    def bytes_per_stream(self) -> float | None:
        """The growth of memory, shared among the streams that were open at once."""
        if self.bytes_before is None or self.bytes_most is None or not self.peak_live:
            return None
        return (self.bytes_most - self.bytes_before) / self.peak_live
