"""Carry one agent in a process of its own that can be killed; its notebook is a file."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from jackline.simulator.reply_script import Say
from tests.agents.process.doubles import FilePages, FreeLeave
from tests.agents.process.world import World


async def main(url: str, folder: str, program: str, schema: str) -> None:
    world = World(Path(folder), Path(program), lambda _: Say("-"), url=url)
    task = world.task(schema=json.loads(schema))
    await world.runner().run(task, FilePages(Path(folder) / "notebook.jsonl"), FreeLeave())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
