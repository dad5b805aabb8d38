"""Render the result of a drill as text and as JSON.

Rules: (1) pure; (2) the bare side is shown beside Jackline's, and every requirement beside what
was measured; (3) text and JSON have the same figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from jackline.drills.drill import ProgramPart
from jackline.drills.drill_run import DrillResult, PartResult, Side
from jackline.drills.evaluation import Figures

SCHEMA = "jackline.drill/2"
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
    ("seconds for unaffected siblings", "bystanders_took", True),
    ("failed attempts, by the journal", "failed_attempts", True),
    ("longest wait after a failure", "slowest_move", True),
    ("seconds in all", "seconds", False),
)


def as_json(result: DrillResult) -> dict[str, object]:
    """The result as one document; figures of further parts are under the part's name."""
    sides: dict[str, dict[str, object]] = {}
    for side in Side:
        sides[side.value] = {}
        for number, part in enumerate(result.parts):
            found = part.bare if side is Side.BARE else part.jackline
            if found is not None:
                own = asdict(found)
                sides[side.value] |= own if number == 0 else {part.part.name: own}
    requirements = [
        {
            "part": one.part,
            "text": one.requirement.text,
            "figure": one.requirement.figure,
            "measured": one.measured,
            "at_most": one.allowed,
            "met": one.met,
        }
        for part in result.parts
        for one in part.results
    ]
    return {
        "schema": SCHEMA,
        "drill": result.drill.name,
        "passed": result.passed,
        "complete": result.complete,
        "client": result.client,
        "speed": result.speed,
        **sides,
        "requirements": requirements,
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
    speed = "in real time" if result.speed == 1 else f"{result.speed:g} times as fast as real time"
    yield f"{drill.name}: {drill.about}"
    yield f"  with {result.client}, {speed}"
    for part in result.parts:
        yield ""
        yield from _part_lines(part)
        for one in part.results if result.complete else ():
            missed = "" if one.met else f" ({one.measured:g}, at most {one.allowed:g})"
            yield f"    {'ok  ' if one.met else 'MISS'}  {one.requirement.text}{missed}"
    yield ""
    if not result.complete:
        yield f"{drill.name} was interrupted: this is what had happened by then."
    else:
        yield f"{drill.name}: {'passed' if result.passed else 'NOT passed'}."


def _part_lines(part: PartResult) -> Iterable[str]:
    rows: Iterable[tuple[str, str, bool]] = _ROWS
    if isinstance(part.part, ProgramPart):
        own = ((label, figure, False) for label, figure in part.part.rows)
        rows = (_ROWS[0], *own, ("requests to the provider", "requests", False))
    yield f"  {part.part.name.replace('_', ' '):<34}{'bare':>10}{'jackline':>10}"
    for label, figure, optional in rows:
        values = []
        for side in (part.bare, part.jackline):
            value = None if side is None else getattr(side, figure)
            if side is None or value is None:
                values.append("-")
            elif figure == "finished":
                values.append(f"{value} of {side.agents}")
            else:
                values.append(f"{value:,}" if isinstance(value, int) else f"{value:.4g}")
        if not (optional and all(value in ("0", "-") for value in values)):
            yield f"    {label:<32}{values[0]:>10}{values[1]:>10}"
    for name, side in ((Side.BARE, part.bare), (Side.JACKLINE, part.jackline)):
        died_of = side.died_of if isinstance(side, Figures) else {}
        for text, count in list(died_of.items())[:2]:
            yield f"    {name}: {count} died of: {text}"
