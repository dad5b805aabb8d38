"""Render the result of a drill as text and as JSON.

Rules: (1) pure; (2) the bare side is shown beside Jackline's, and every requirement beside what
was measured; (3) text and JSON have the same figures.
Not here: printing (cli/drill.py), the figures (evaluation.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from jackline.drills.drill import FlowFigures, FlowPart
from jackline.drills.drill_run import DrillResult, PartResult, Side
from jackline.drills.evaluation import Figures, RequirementResult

SCHEMA = "jackline.drill/1"
# Label, figure, whether it is left out where both sides have none.
_ROWS = (
    ("agents finished", "finished", False),
    ("died", "died", False),
    ("still at work at the end", "unfinished", True),
    ("misled by half an answer", "misled", True),
    ("errors that clients saw", "errors_seen", False),
    ("requests to the provider", "requests", False),
    ("of these wasted", "wasted", False),
    ("sent into a known wall", "sent_into_the_wall", True),
    ("seconds for siblings not struck", "bystanders_took", True),
    ("failed tries, by the journal", "failed_attempts", True),
    ("longest wait after a failure", "slowest_move", True),
    ("seconds in all", "seconds", False),
)


def as_json(result: DrillResult) -> dict[str, object]:
    """The result as one document; figures of further parts stand under the part's name."""
    sides = {side.value: _side(result.parts, side) for side in Side}
    return {
        "schema": SCHEMA,
        "drill": result.drill.name,
        "passed": result.passed,
        "complete": result.complete,
        "client": result.client,
        "speed": result.speed,
        **sides,
        "demands": [_verdict(one) for part in result.parts for one in part.verdicts],
    }


def all_as_json(results: Sequence[DrillResult], *, passed: bool) -> dict[str, object]:
    """Several results as one document."""
    return {
        "schema": SCHEMA,
        "drill": "all",
        "passed": passed,
        "drills": [as_json(result) for result in results],
    }


def as_text(result: DrillResult) -> Iterable[str]:
    """The result in lines for people."""
    drill = result.drill
    scale = "in real time" if result.speed == 1 else f"{result.speed:g} times as fast as life"
    yield f"{drill.name}: {drill.about}"
    yield f"  with {result.client}, {scale}"
    for part in result.parts:
        yield ""
        yield from _part_lines(part)
        if result.complete:
            yield from _verdict_lines(part)
    yield ""
    if not result.complete:
        yield f"{drill.name} was interrupted: this is what had happened by then."
    else:
        yield f"{drill.name}: {'passed' if result.passed else 'NOT passed'}."


def _part_lines(part: PartResult) -> Iterable[str]:
    yield f"  {part.part.name.replace('_', ' '):<34}{'bare':>10}{'jackline':>10}"
    for label, figure, optional in _rows(part):
        values = [_shown(side, figure) for side in (part.bare, part.jackline)]
        if optional and all(value in ("0", "-") for value in values):
            continue
        yield f"    {label:<32}{values[0]:>10}{values[1]:>10}"
    for who, side in ((Side.BARE, part.bare), (Side.JACKLINE, part.jackline)):
        died_of = side.died_of if isinstance(side, Figures) else {}
        for words, count in list(died_of.items())[:2]:
            yield f"    {who}: {count} died of: {words}"


def _verdict_lines(part: PartResult) -> Iterable[str]:
    for verdict in part.verdicts:
        mark = "ok  " if verdict.held else "MISS"
        told = "" if verdict.held else f" ({verdict.measured:g}, at most {verdict.allowed:g})"
        yield f"    {mark}  {verdict.demand.says}{told}"


def _rows(part: PartResult) -> Iterable[tuple[str, str, bool]]:
    if isinstance(part.part, FlowPart):
        own = ((label, figure, False) for label, figure in part.part.rows)
        return (*_ROWS[:1], *own, ("requests to the provider", "requests", False))
    return _ROWS


def _shown(side: Figures | FlowFigures | None, figure: str) -> str:
    if side is None:
        return "-"
    value = getattr(side, figure)
    if figure == "finished":
        return f"{value} of {side.agents}"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _side(parts: Sequence[PartResult], side: Side) -> dict[str, object]:
    told: dict[str, object] = {}
    for number, part in enumerate(parts):
        found = part.bare if side is Side.BARE else part.jackline
        if found is None:
            continue
        if number == 0:
            told |= asdict(found)
        else:
            told[part.part.name] = asdict(found)
    return told


def _verdict(verdict: RequirementResult) -> dict[str, object]:
    return {
        "part": verdict.part,
        "says": verdict.demand.says,
        "figure": verdict.demand.figure,
        "measured": verdict.measured,
        "at_most": verdict.allowed,
        "held": verdict.held,
    }
