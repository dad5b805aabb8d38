"""The drill of fourteen calls in one turn, of which one fails: which results reach the model.

Rules: (1) the commands are real processes on both sides; (2) the evidence is what the model
receives in its next turn.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from jackline.agents.outcome import Ending
from jackline.drills.conversation import Block
from jackline.drills.drill import (
    QUICK,
    Drill,
    ProgramFigures,
    ProgramPart,
    ProgramSide,
    Requirement,
)
from jackline.drills.plain_program import PlainAgent, result, tool
from jackline.flows.api import run
from jackline.flows.authoring.calls import agent
from jackline.flows.authoring.flow_definition import flow
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.reply_script import Reply, Say, ToolCall
from jackline.simulator.time_model import seeded_random

CALLS = 14
FAILS = 9
PROMPT = "PART-1: look at all fourteen places at once."
FINAL_TEXT = "All places are looked at."
_OUTPUT = "place {} is in order"


@dataclass(frozen=True, slots=True)
class CascadeFigures(ProgramFigures):
    """What the model received about its calls."""

    whole: int
    """Results that came whole, under the id of their call."""
    lost: int
    """Of the calls that do not fail, those whose output the model never got."""
    unreported: int
    """Whether the model did not get one line with the number of failures."""


@dataclass(slots=True, eq=False, kw_only=True)
class CascadeSide(ProgramSide):
    """One agent with one turn of calls."""

    results: list[Block] = field(default_factory=list)
    """What the model received, in the order of its calls."""
    text: str = ""

    def reply(self, request: ClientRequest) -> Reply:
        """Call all fourteen, save the results, end."""
        if not request.turn:
            wait = "ping -n 2 127.0.0.1 >nul &" if os.name == "nt" else "sleep 0.5;"
            looks: list[ToolCall] = []
            for place in range(1, CALLS + 1):
                # The one that fails is the quickest: who cancels at the first failure loses all.
                command = "exit 3" if place == FAILS else f"{wait} echo {_OUTPUT.format(place)}"
                looks.append(("shell", {"command": command}))
            return Say("Looking.", tuple(looks))
        *_, calls, results = request.body["messages"]
        by_id = {block.get("tool_use_id"): block for block in results["content"]}
        called = [block["id"] for block in calls["content"] if block["type"] == "tool_use"]
        self.results = [by_id.get(id_, {}) for id_ in called]
        self.text = request.latest
        return Say(FINAL_TEXT)

    async def bare(self) -> ProgramFigures:
        """The turn as a TaskGroup runs it: the first that fails cancels the others."""
        plain = PlainAgent(self.provider.url, self.clock, seeded_random(0))
        answer = await plain.work(PROMPT, [tool("shell", command="string")], _in_a_group)
        return self._figures(finished=answer == FINAL_TEXT)

    async def jackline(self) -> ProgramFigures:
        """The turn in a flow."""

        @flow
        async def look_everywhere() -> str:
            return await agent(PROMPT, tools=["shell"], cwd=str(self.folder), label="PART-1")

        async with self.flow_host() as host:
            outcome = await run(look_everywhere, host=host)
        finished = outcome.terminated_by is Ending.COMPLETION and outcome.value == FINAL_TEXT
        return self._figures(finished=finished)

    def _figures(self, *, finished: bool) -> CascadeFigures:
        whole = 0
        for place, block in enumerate(self.results, 1):
            found = block.get("content", "")
            text = found if isinstance(found, str) else " ".join(b.get("text", "") for b in found)
            whole += not block.get("is_error") and _OUTPUT.format(place) in text
        return CascadeFigures(
            agents=1,
            finished=int(finished),
            requests=len(self.provider.ledger),
            whole=whole,
            lost=CALLS - 1 - whole,
            unreported=int(f"1 of {CALLS} failed" not in self.text),
        )


async def _in_a_group(calls: Sequence[Block]) -> list[Block]:
    # Started one by one: a process whose start is cancelled would have no owner.
    started = [
        await asyncio.create_subprocess_shell(
            call["input"]["command"],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        for call in calls
    ]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_output_of(process)) for process in started]
    except ExceptionGroup as failed:
        text = f"the calls failed: {failed.exceptions[0]}"
        return [result(call, text, failed=True) for call in calls]
    return [result(call, task.result()) for call, task in zip(calls, tasks, strict=True)]


async def _output_of(process: asyncio.subprocess.Process) -> str:
    if process.stdout is None:
        raise AssertionError("stdout is a pipe")
    try:
        out = await process.stdout.read()
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            # Its children may hold its output open for a moment longer.
            await process.stdout.read()
            await process.wait()
    if process.returncode:
        raise ChildProcessError(f"exit {process.returncode}")
    return out.decode()


CASCADE = Drill(
    "cascade",
    f"{CALLS} parallel calls in one turn, one of which exits with 3",
    (
        ProgramPart(
            name="cascade",
            side=CascadeSide,
            requirements=(
                Requirement(
                    "every other call's output reaches the model, under its id", "lost", most=0
                ),
                Requirement(f'the model receives "1 of {CALLS} failed"', "unreported", most=0),
            ),
            rows=(("calls of the turn that came whole", "whole"), ("lost with the one", "lost")),
            service=QUICK,
            in_real_time=True,
        ),
    ),
)
