"""The flow for power cuts: set-up, many agents with a tool, second reviews, and a summary.

Rules: (1) it is run as a user's file, by `jackline run`; (2) each set-up and each use of the tool
writes a line to a file, so that what ran twice is found; (3) second reviews start as reviews come
in, in another order each time, so that a result that goes to the wrong call is found.
Not here: the cuts (power_cut.py), the same work without flows (power_cut_plain.py).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from jackline import agent, flow, phase, step

SET_UP, USED = "set-up.log", "used.log"
_SECOND = 10_000


def set_up(folder: str, parts: int) -> list[str]:
    """Name the parts; a line says that it ran."""
    _write(folder, SET_UP, "set up")
    return [f"PART-{number}" for number in range(1, parts + 1)]


def prompt(label: str, folder: str) -> str:
    """What an agent is asked."""
    return f"{label}: review this part of the project in {folder}."


def second(label: str) -> str:
    """Who takes the second look at a part."""
    return f"PART-{_SECOND + int(label.removeprefix('PART-'))}"


def is_second(label: str) -> bool:
    """Whether this is one who takes a second look."""
    return int(label.removeprefix("PART-")) > _SECOND


def second_look(label: str, review: str) -> str:
    """What is asked about a review."""
    return f"{second(label)}: is it so that {review}"


def summing_up(reviews: list[str]) -> str:
    """What the last agent is asked."""
    return f"PART-0: sum up {', '.join(reviews)}"


def look(folder: str, part: str, turn: int) -> str:
    """Look at a part."""
    _write(folder, USED, f"{part} {turn}")
    return f"{part} looks well."


@flow
async def review(folder: str, parts: int, at_once: int) -> str:
    """Review all parts and sum up."""
    labels = await step(set_up, folder, parts)
    slots = asyncio.Semaphore(at_once)

    async def reviewed(label: str) -> str:
        async with slots:
            found = await agent(prompt(label, folder), tools=[look], label=label)
            return await agent(second_look(label, found), label=second(label))

    async with phase("review"):
        reviews = await asyncio.gather(*map(reviewed, labels))
    return await agent(summing_up(reviews), label="PART-0")


def _write(folder: str, name: str, line: str) -> None:
    with (Path(folder) / name).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
