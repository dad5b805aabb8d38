"""The work of the drill of power cuts: as a flow, and as a plain program to start.

    jackline run power_cut_work.py ARGUMENTS
    python -m jackline.drills.power_cut_work URL FOLDER PARTS AT_ONCE

Set-up, many agents with a tool, second reviews, and a summary.

Rules: (1) each set-up and each use of the tool writes a line to a file, so that what ran twice is
found; (2) second reviews start as reviews come in, in another order each time, so that a result
that goes to the wrong call is found; (3) the plain program prints its result; what it knows is
lost with its process.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from jackline import agent, event_loop, flow, phase, step
from jackline.drills.conversation import Block
from jackline.drills.drill_clock import DrillClock
from jackline.drills.plain_program import PlainAgent, each, tool
from jackline.simulator.time_model import seeded_random

SET_UP, USED = "set-up.log", "used.log"
SECOND = 10_000
"""Labels with higher numbers are those of second reviews."""


def set_up(folder: str, parts: int) -> list[str]:
    """Name the parts; a line shows that it ran."""
    with (Path(folder) / SET_UP).open("a", encoding="utf-8") as file:
        file.write("set up\n")
    return [f"PART-{number}" for number in range(1, parts + 1)]


def look(folder: str, part: str, turn: int) -> str:
    """Look at a part; a line shows that it ran."""
    with (Path(folder) / USED).open("a", encoding="utf-8") as file:
        file.write(f"{part} {turn}\n")
    return f"{part} looks well."


async def review_all(
    labels: list[str], folder: str, at_once: int, ask: Callable[[str], Awaitable[str]]
) -> list[str]:
    """Have each part reviewed twice, so many parts at once."""
    slots = asyncio.Semaphore(at_once)

    async def reviewed(label: str) -> str:
        async with slots:
            found = await ask(f"{label}: review this part of the project in {folder}.")
            second = SECOND + int(label.removeprefix("PART-"))
            return await ask(f"PART-{second}: is it so that {found}")

    return await asyncio.gather(*map(reviewed, labels))


@flow
async def review(folder: str, parts: int, at_once: int) -> str:
    """Review all parts and sum up."""
    labels = await step(set_up, folder, parts)

    async def ask(prompt: str) -> str:
        label = prompt.partition(":")[0]
        first = int(label.removeprefix("PART-")) <= SECOND
        return await agent(prompt, tools=[look] if first else None, label=label)

    async with phase("review"):
        reviews = await review_all(labels, folder, at_once, ask)
    return await agent(f"PART-0: sum up {', '.join(reviews)}", label="PART-0")


async def plain_review(url: str, folder: str, parts: int, at_once: int) -> str:
    """The same without flows."""
    clock, draw = DrillClock(), seeded_random(0)
    offered = [tool("look", folder="string", part="string", turn="integer")]

    async def use(call: Block) -> str:
        return look(**call["input"])

    async def ask(prompt: str) -> str:
        return await PlainAgent(url, clock, draw).work(prompt, offered, each(use))

    reviews = await review_all(set_up(folder, parts), folder, at_once, ask)
    return await ask(f"PART-0: sum up {', '.join(reviews)}")


if __name__ == "__main__":
    _url, _folder, _parts, _at_once = sys.argv[1:]
    _text = event_loop.run(plain_review(_url, _folder, int(_parts), int(_at_once)))
    print(_text)  # noqa: T201 -- a program
