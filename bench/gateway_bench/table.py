"""Print figures as Markdown tables, or as JSON.

Rules: (1) the table rounds for reading only; (2) JSON holds every figure as measured.
Not here: judging (targets.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from gateway_bench.measures import Cell, Figure, Reading, StreamReading
from gateway_bench.subjects import Subject
from gateway_bench.targets import GATEWAYS, Book, Verdict

# More than this, and the figures say more about the neighbours.
QUIET = 0.05
_HEADERS = (
    "body",
    "subject",
    "rps",
    "CPU µs",
    "p50 µs",
    "p99 µs",
    "first byte µs",
    "errors",
    "ours / this",
    "CPU: this / ours",
)


def markdown(figures: Sequence[Figure], subjects: Sequence[Subject], others: float | None) -> str:
    """The table, cell by cell, and below it what was measured, and how quiet it was."""
    book = Book(figures)
    lines = ["| " + " | ".join(_HEADERS) + " |", "|---|---|" + "--:|" * (len(_HEADERS) - 2)]
    for cell in book.cells:
        for subject in subjects:
            found = book.get(subject.name, cell)
            if found is not None:
                lines.append(_row(book, cell, found))
    versions = ", ".join(f"{each.name} {each.version}" for each in subjects if each.version)
    lines += ["", f"Medians over rounds, ratios too; {versions or 'nothing but the upstream'}."]
    if others is not None:
        noisy = ": noisy, trust ratios only" if others > QUIET else ""
        lines.append(f"Other programs used {others:.0%} of the processors meanwhile{noisy}.")
    return "\n".join(lines)


def _row(book: Book, cell: Cell, found: Figure) -> str:
    other = found.subject not in ("jackline", "direct")
    values = (
        str(cell),
        found.subject,
        f"{found.rps:,.0f}",
        "–" if found.cpu is None or found.subject == "direct" else f"{found.cpu * 1e6:,.0f}",
        f"{found.p50 * 1e6:,.0f}",
        f"{found.p99 * 1e6:,.0f}",
        f"{found.first * 1e6:,.0f}" if cell.stream and cell.connections == 1 else "",
        str(found.errors),
        _times(book.times(found.subject, cell)) if other else "",
        _times(book.times_cheaper(found.subject, cell)) if other else "",
    )
    return "| " + " | ".join(values) + " |"


def _times(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if value < 10.0 else f"{value:,.0f}"


def as_json(
    figures: Sequence[Figure],
    subjects: Sequence[Subject],
    verdicts: Sequence[Verdict],
    others: float | None,
) -> str:
    """Everything as measured."""
    book = Book(figures)
    others_measured = ("nginx", *GATEWAYS)
    ratios = [
        {
            **asdict(cell),
            "part_of_nginx": book.part_of_nginx(cell),
            "rate": {name: book.times(name, cell) for name in others_measured},
            "processor_time": {name: book.times_cheaper(name, cell) for name in others_measured},
        }
        for cell in book.cells
    ]
    found = {
        "versions": {subject.name: subject.version for subject in subjects},
        "used_by_others": others,
        "figures": [{**asdict(each), "rps": each.rps, "cpu": each.cpu} for each in figures],
        "ours_over": ratios,
        "verdicts": [asdict(verdict) for verdict in verdicts],
    }
    return json.dumps(found, indent=1)


def streams_markdown(readings: Mapping[str, StreamReading]) -> str:
    """How the slow streams went, subject by subject."""
    lines = [
        "| subject | streams | errors | KB each | lag p50 ms | lag p99 ms | lag max ms | CPU s |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, reading in readings.items():
        each, cpu = reading.bytes_per_stream(), reading.cpu_seconds
        values = (
            name,
            f"{reading.peak_live:,}",
            str(reading.errors),
            "–" if each is None else f"{each / 1e3:.1f}",
            f"{reading.lag_p50 * 1e3:.1f}",
            f"{reading.lag_p99 * 1e3:.1f}",
            f"{reading.lag_max * 1e3:.1f}",
            "–" if cpu is None else f"{cpu:.1f}",
        )
        lines.append("| " + " | ".join(values) + " |")
    return "\n".join(lines)


def endurance_markdown(reading: Reading) -> str:
    """How memory went over the calls."""
    lines = ["| calls | resident MB |", "|--:|--:|"]
    for count, size in reading.marks:
        lines.append(f"| {count:,} | {'–' if size is None else f'{size / 1e6:.2f}'} |")
    return "\n".join(lines)
