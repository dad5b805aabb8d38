"""Write metrics as the text that Prometheus reads, version 0.0.4.

Laws: (1) pure: families in, bytes out; (2) every family is told with its help and type, also while
it has no samples; (3) whatever a label holds, a line stays a line.
Not here: which metrics there are (catalogue.py), where the values come from (scrape.py).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

Values: TypeAlias = tuple[str, ...]
"""The values of a sample's labels, in the order of the metric's."""


class Kind(StrEnum):
    """What Prometheus may do with a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric's name, meaning and labels."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


class Histogram:
    """How often a value fell into which bucket."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    @classmethod
    def of(cls, bounds: tuple[float, ...], counts: Sequence[int], total: float) -> Histogram:
        """One that was counted elsewhere."""
        made = cls(bounds)
        made.counts = list(counts)
        made.sum = total
        return made

    def observe(self, value: float) -> None:
        """One more value."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Each bucket's upper bound, and how many values were not above it."""
        so_far = 0
        for bound, count in zip((*self._bounds, math.inf), self.counts, strict=True):
            so_far += count
            yield number(bound), so_far


@dataclass(frozen=True, slots=True)
class Mean:
    """A sum and a count, from which a mean over any stretch of time can be had."""

    sum: float
    count: int


Value: TypeAlias = float | Histogram | Mean
Samples: TypeAlias = Mapping[Values, Value]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its values of now."""

    metric: Metric
    samples: Samples = field(default_factory=dict)


def render(families: Iterable[Family]) -> bytes:
    """The page that Prometheus is given."""
    lines: list[str] = []
    for family in families:
        metric = family.metric
        lines.append(f"# HELP {metric.name} {_help(metric.help)}")
        lines.append(f"# TYPE {metric.name} {metric.kind.value}")
        for values, value in family.samples.items():
            lines.extend(_sample(metric, values, value))
    return ("\n".join(lines) + "\n").encode()


def number(value: float) -> str:
    """A number as Prometheus writes it."""
    if value == math.inf:
        return "+Inf"
    if value == -math.inf:
        return "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def _sample(metric: Metric, values: Values, value: Value) -> Iterator[str]:
    pairs = [f'{n}="{_label(v)}"' for n, v in zip(metric.labels, values, strict=True)]
    if isinstance(value, Histogram):
        for bound, count in value.cumulative():
            labels = _labels([*pairs, f'le="{bound}"'])
            yield f"{metric.name}_bucket{labels} {count}"
    if isinstance(value, Histogram | Mean):
        yield f"{metric.name}_sum{_labels(pairs)} {number(value.sum)}"
        yield f"{metric.name}_count{_labels(pairs)} {value.count}"
    else:
        yield f"{metric.name}{_labels(pairs)} {number(value)}"


def _labels(pairs: list[str]) -> str:
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
