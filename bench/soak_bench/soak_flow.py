"""The flow that a soak runs, kills and resumes: agents with a tool, side by side, and a last one.

Rules: it is run as a user's file, by `jackline run`; each use of the tool leaves a line in a file,
so that what ran twice is seen; labels begin with the run's name.
"""

from __future__ import annotations

from pathlib import Path

from jackline import agent, flow, parallel

USED = "used.log"
TURNS = 3


def look(part: str, turn: int, word: str) -> str:
    """Look at a part."""
    with Path(USED).open("a", encoding="utf-8") as file:
        file.write(f"{part} {turn} {word}\n")
    return "as expected"


def first_words(label: str, turns: int) -> str:
    """What an agent is asked first; the provider reads from it how many turns there shall be."""
    return f"{label} {turns}: please look through your part of the project."


@flow
async def soak(name: str, agents: int) -> list[str]:
    """Look through all parts; what each agent said at its end."""
    labels = [f"{name}.{number}" for number in range(1, agents + 1)]
    found = await parallel(
        agent(first_words(label, TURNS), tools=[look], label=label) for label in labels
    )
    last = f"{name}.0"
    return [*found.values, await agent(first_words(last, 1), label=last)]
