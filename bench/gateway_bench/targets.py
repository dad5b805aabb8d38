"""Hold the figures to what the gateway promises.

Rules: (1) judged on the figures as measured, never on rounded ones; (2) a target whose peer was not
measured is left open, neither met nor missed; (3) a ratio is the median of the ratios of the
rounds, in each of which both met the same neighbours; that of the processor times is told beside,
as neighbours hardly change it; (4) beside nginx the worse of the two counts, since the load
generator may not keep nginx busy.
Not here: measuring (rounds.py), slow streams and endurance, which bring their own (streams.py,
endurance.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

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

    def times(self, subject: str, cell: Cell) -> float | None:
        """How many times its rate ours is, round by round."""
        ours, theirs = self.get("jackline", cell), self.get(subject, cell)
        if ours is None or theirs is None:
            return None
        return _middle([ratio(*pair) for pair in zip(ours.rates, theirs.rates, strict=True)])

    def times_cheaper(self, subject: str, cell: Cell) -> float | None:
        """How many times our processor time it takes for an answer, round by round."""
        ours, theirs = self.get("jackline", cell), self.get(subject, cell)
        if ours is None or theirs is None:
            return None
        return _middle([ratio(*pair) for pair in zip(theirs.costs, ours.costs, strict=True)])

    def part_of_nginx(self, cell: Cell) -> float | None:
        """Our share of what nginx can do in this cell."""
        part, cheaper = self.times("nginx", cell), self.times_cheaper("nginx", cell)
        # One request at a time keeps nobody busy: there the rate is about latency, and processor
        # time is mostly that of falling asleep and waking up.
        if part is not None and cheaper is not None and cell.connections > 1:
            return min(part, cheaper)
        return part

    def fastest(self, cell: Cell) -> str:
        """The fastest of the other gateways; the first of them where none was measured."""
        return max(GATEWAYS, key=lambda name: self.rps(name, cell) or 0.0)

    def added_first_byte(self, subject: str, cell: Cell) -> float | None:
        """What it adds to the time to the first byte."""
        found, direct = self.get(subject, cell), self.get("direct", cell)
        return None if found is None or direct is None else found.first - direct.first


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """One over the other; None when either is missing or means nothing."""
    return None if ours is None or theirs is None or theirs <= 0.0 else ours / theirs


def _middle(ratios: Sequence[float | None]) -> float | None:
    known = [each for each in ratios if each is not None]
    return median(known) if known else None


def judge(figures: Sequence[Figure]) -> list[Verdict]:
    """Every target in every cell that it speaks of."""
    book = Book(figures)
    verdicts = [_no_errors(figures)]
    for cell in book.cells:
        if cell.connections == 32:
            fastest = book.fastest(cell)
            verdicts += [
                _times(book, cell, fastest, TIMES_FASTEST, f"times the fastest ({fastest})"),
                _times(book, cell, "litellm", TIMES_LITELLM, "times LiteLLM"),
            ]
        part = book.part_of_nginx(cell)
        verdicts.append(_at_least(part, PART_OF_NGINX, f"{cell}: part of nginx's rate"))
        if cell.stream and cell.connections == 1:
            verdicts.append(_first_byte(book, cell))
    return verdicts


def _no_errors(figures: Sequence[Figure]) -> Verdict:
    ours = [figure.errors for figure in figures if figure.subject == "jackline"]
    return Verdict(sum(ours) == 0 if ours else None, f"errors through jackline: {sum(ours)}")


def _times(book: Book, cell: Cell, subject: str, wanted: float, what: str) -> Verdict:
    verdict = _at_least(book.times(subject, cell), wanted, f"{cell}: {what}")
    cheaper = book.times_cheaper(subject, cell)
    if cheaper is None:
        return verdict
    return Verdict(verdict.met, f"{verdict.text}; by processor time {cheaper:.1f}")


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
