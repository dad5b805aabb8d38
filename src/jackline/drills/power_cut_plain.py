"""The work of power_cut_flow.py as a plain asyncio program; a program to start.

Rules: (1) the last line on stdout is the result; (2) what it knows is lost with its process; (3)
it imports little, because it is killed while it starts.
Not here: the cuts (power_cut.py).
"""

from __future__ import annotations

import asyncio
import sys

from jackline import event_loop
from jackline.drills.conversation import Block
from jackline.drills.drill_clock import DrillClock
from jackline.drills.plain_program import PlainAgent, each, tool
from jackline.drills.power_cut_flow import look, prompt, second_look, set_up, summing_up
from jackline.simulator.time_model import seeded_random

_LOOK = tool("look", folder="string", part="string", turn="integer")


async def review(url: str, folder: str, parts: int, at_once: int) -> str:
    """Review all parts and sum up."""
    slots, pace, draw = asyncio.Semaphore(at_once), DrillClock(), seeded_random(0)

    async def looked(call: Block) -> str:
        return look(**call["input"])

    async def one(asked: str) -> str:
        plain = PlainAgent(url, pace, draw)
        return await plain.work(asked, [_LOOK], lambda calls: each(calls, looked))

    async def reviewed(label: str) -> str:
        async with slots:
            return await one(second_look(label, await one(prompt(label, folder))))

    reviews = await asyncio.gather(*map(reviewed, set_up(folder, parts)))
    return await one(summing_up(reviews))


if __name__ == "__main__":
    url, folder, parts, at_once = sys.argv[1:]
    print(event_loop.run(review(url, folder, int(parts), int(at_once))))  # noqa: T201 -- a program
