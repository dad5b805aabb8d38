"""The flow that power cuts strike: set-up, a fan of agents with a tool, and a last one.

Laws: (1) it is run as a user's file, by `jackline run`; (2) each set-up and each use of the tool
leaves a line in a file, so that what ran twice is seen.
Not here: the cuts (power_cut.py), the same without flows (power_cut_plain.py).
"""

from __future__ import annotations

from pathlib import Path

from jackline import agent, flow, parallel, phase, step

SET_UP, USED = "set-up.log", "used.log"


def set_up(folder: str, parts: int) -> list[str]:
    """Name the parts; a line says that it ran."""
    _write(folder, SET_UP, "set up")
    return [f"PART-{number}" for number in range(1, parts + 1)]


def prompt(label: str, folder: str) -> str:
    """What an agent is asked."""
    return f"{label}: review this part of the project in {folder}."


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
    async with phase("review"):
        calls = (agent(prompt(label, folder), tools=[look], label=label) for label in labels)
        reviewed = await parallel(calls, limit=at_once)
    return await agent(summing_up(list(reviewed.values)), label="PART-0")


def _write(folder: str, name: str, line: str) -> None:
    with (Path(folder) / name).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
