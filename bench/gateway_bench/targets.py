"""Hold the figures to what the gateway promises.

Laws: (1) judged on the figures as measured, never on rounded ones; (2) a target whose peer was not
measured is left open, neither met nor missed; (3) beside nginx the worse of two ratios counts, that
of the rates and that of the processor times, since the load generator may not keep nginx busy.
Not here: measuring (rounds.py), slow streams and endurance, which bring their own (streams.py,
endurance.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway_bench.measures import Cell, Figure

GATEWAYS = ("litellm", "portkey", "ccr")
TIMES_FASTEST = 10.0
TIMES_LITELLM = 100.0
PART_OF_NGINX = 0.15
TIMES_FIRST_BYTE = 6.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target: met, missed, or None when it could not be judged."""

    met: bool | None
    text: str

    def line(self) -> str:
        """As it is printed."""
        return f"{ {True: 'PASS', False: 'FAIL', None: 'OPEN'}[self.met] }  {self.text}"


class Book:
    """The figures, by subject and cell."""

    def __init__(self, figures: Sequence[Figure]) -> None:
        self._figures = {(figure.subject, figure.cell): figure for figure in figures}
        self.cells = sorted({figure.cell for figure in figures})

    def get(self, subject: str, cell: Cell) -> Figure | None:
        """The figure, if it was measured and gave any answer."""
        found = self._figures.get((subject, cell))
        return found if found is not None and found.rps > 0.0 else None

    def rps(self, subject: str, cell: Cell) -> float | None:
        """Its rate."""
        found = self.get(subject, cell)
        return None if found is None else found.rps

    def part_of_nginx(self, cell: Cell) -> float | None:
        """Our share of what nginx can do in this cell."""
        ours, nginx = self.get("jackline", cell), self.get("nginx", cell)
        if ours is None or nginx is None:
            return None
        part = ours.rps / nginx.rps
        # One request at a time keeps nobody busy: there the rate is about latency, and processor
        # time is mostly that of falling asleep and waking up.
        if cell.connections > 1 and ours.cpu and nginx.cpu:
            part = min(part, nginx.cpu / ours.cpu)
        return part

    def fastest(self, cell: Cell) -> tuple[str, float] | None:
        """The fastest of the other gateways."""
        rates = [(name, rate) for name in GATEWAYS if (rate := self.rps(name, cell)) is not None]
        return max(rates, key=lambda pair: pair[1], default=None)

    def added_first_byte(self, subject: str, cell: Cell) -> float | None:
        """What it adds to the time to the first byte."""
        found, direct = self.get(subject, cell), self.get("direct", cell)
        return None if found is None or direct is None else found.first - direct.first


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """One over the other; None when either is missing or means nothing."""
    return None if ours is None or theirs is None or theirs <= 0.0 else ours / theirs


def judge(figures: Sequence[Figure]) -> list[Verdict]:
    """Every target in every cell that it speaks of."""
    book = Book(figures)
    verdicts = [_no_errors(figures)]
    for cell in book.cells:
        ours = book.rps("jackline", cell)
        if cell.connections == 32:
            fastest = book.fastest(cell)
            name, rate = fastest if fastest is not None else ("other gateway", None)
            verdicts += [
                _at_least(ratio(ours, rate), TIMES_FASTEST, f"{cell}: times the fastest ({name})"),
                _at_least(
                    ratio(ours, book.rps("litellm", cell)), TIMES_LITELLM, f"{cell}: times LiteLLM"
                ),
            ]
        part = book.part_of_nginx(cell)
        verdicts.append(_at_least(part, PART_OF_NGINX, f"{cell}: part of nginx's rate"))
        if cell.stream and cell.connections == 1:
            verdicts.append(_first_byte(book, cell))
    return verdicts


def _no_errors(figures: Sequence[Figure]) -> Verdict:
    ours = [figure.errors for figure in figures if figure.subject == "jackline"]
    return Verdict(sum(ours) == 0 if ours else None, f"errors through jackline: {sum(ours)}")


def _at_least(measured: float | None, wanted: float, what: str) -> Verdict:
    if measured is None:
        return Verdict(None, f"{what}: not measured (target {wanted:g})")
    return Verdict(measured >= wanted, f"{what}: {measured:.3f} (target ≥ {wanted:g})")


def _first_byte(book: Book, cell: Cell) -> Verdict:
    ours, nginx = book.added_first_byte("jackline", cell), book.added_first_byte("nginx", cell)
    what = f"{cell}: added time to first byte, times nginx's"
    measured = ratio(ours, nginx)
    if ours is None or nginx is None or measured is None:
        return Verdict(None, f"{what}: not measured (target {TIMES_FIRST_BYTE:g})")
    said = f"{measured:.3f} ({ours * 1e6:.0f} µs to {nginx * 1e6:.0f} µs)"
    return Verdict(measured <= TIMES_FIRST_BYTE, f"{what}: {said} (target ≤ {TIMES_FIRST_BYTE:g})")
