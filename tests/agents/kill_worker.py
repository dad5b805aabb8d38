"""One agent in a process of its own, to be killed at any time: FOLDER URL."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from jackline import event_loop
from jackline.agents.gateway_model import GatewayModel
from jackline.agents.messages import MessagesRunner
from jackline.agents.runner import AgentTask, JsonObject
from jackline.batches.tool import ToolContext, ToolOutput
from tests.agents.world import FileNotebook, OpenLeave


@dataclass
class Mark:
    """Leaves a mark in the world that no crash takes back; `hang` never comes to its end."""

    folder: Path
    name: str = "mark"
    description: str = "Leaves a mark."
    input_schema: JsonObject = field(default_factory=lambda: {"type": "object"})

    def read_only(self, arguments: JsonObject) -> bool:  # noqa: ARG002 -- the protocol's shape
        return False

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        with (self.folder / "marks").open("a") as marks:
            marks.write(f"{arguments['n']}\n")
            marks.flush()
            os.fsync(marks.fileno())
        if arguments["n"] == "hang":
            context.on_output("half way\n")
            await asyncio.Event().wait()
        return ToolOutput("marked")


async def main(folder: Path, url: str) -> None:
    task = AgentTask("task-1", "session-1", "Leave marks.", tools=(Mark(folder),), cwd=folder)
    async with GatewayModel(url) as model:
        outcome = await MessagesRunner(model).run(
            task, FileNotebook(folder / "notebook"), OpenLeave()
        )
    told = {"terminated_by": outcome.terminated_by.value, "value": outcome.value}
    (folder / "outcome.json").write_text(json.dumps(told))


if __name__ == "__main__":
    event_loop.run(main(Path(sys.argv[1]), sys.argv[2]))
