"""The drill of fourteen calls in one turn, of which one fails: which results reach the model.

Rules: (1) the commands are real processes on both sides; (2) the evidence is what the model
receives in its next turn.
Not here: running calls in parallel (batches/).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jackline.agents.outcome import Ending
from jackline.drills.conversation import Block
from jackline.drills.drill import Drill, FlowFigures, FlowPart, Requirement, SideContext
from jackline.drills.drill_clock import DrillClock
from jackline.drills.environment import flow_host, provider_for
from jackline.drills.plain_program import PlainAgent, result, tool
from jackline.flows.api import run
from jackline.flows.authoring.calls import agent
from jackline.flows.authoring.flow_definition import flow
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.reply_script import Reply, Say
from jackline.simulator.time_model import ServiceSettings, seeded_random

CALLS = 14
FAILS = 9
PROMPT = "PART-1: look at all fourteen places at once."
LAST_WORDS = "All places are looked at."
# The model is not what this is about: it speaks quickly.
_QUICK = ServiceSettings(first_byte=0.2, first_byte_spread=0.0, tokens_per_second=1000.0)


@dataclass(frozen=True, slots=True)
class CascadeFigures(FlowFigures):
    """What the model was told of its calls."""

    whole: int
    """Results that came whole, under the id of their call."""
    lost: int
    """Of the calls that do not fail, those whose output the model never saw."""
    untold: int
    """Whether the model was not told in one line how many failed."""


@dataclass(slots=True)
class ReceivedResults:
    """What the model was told, by its own account."""

    results: list[Block] = field(default_factory=list)
    words: str = ""

    def reply(self, asked: ClientRequest) -> Reply:
        """Call all fourteen, hear the results, end."""
        if not asked.turn:
            return Say("Looking.", tuple(_call(place) for place in range(1, CALLS + 1)))
        *_, calls, results = asked.body["messages"]
        by_id = {block.get("tool_use_id"): block for block in results["content"]}
        called = [block["id"] for block in calls["content"] if block["type"] == "tool_use"]
        self.results = [by_id.get(id_, {}) for id_ in called]
        self.words = asked.latest
        return Say(LAST_WORDS)

    def figures(self, *, finished: bool, requests: int) -> CascadeFigures:
        """The figures of this side."""
        whole = sum(_is_whole(place, block) for place, block in enumerate(self.results, 1))
        return CascadeFigures(
            agents=1,
            finished=int(finished),
            requests=requests,
            whole=whole,
            lost=CALLS - 1 - whole,
            untold=int(f"1 of {CALLS} failed" not in self.words),
        )


def cascade() -> Drill:
    """The drill."""
    part = FlowPart(
        name="cascade",
        bare=_bare,
        jackline=_as_a_flow,
        demands=(
            Requirement(
                "every other call's output reaches the model, under its id", "lost", most=0
            ),
            Requirement(f'the model is told "1 of {CALLS} failed"', "untold", most=0),
        ),
        rows=(("calls of the turn that came whole", "whole"), ("lost with the one", "lost")),
        in_real_time=True,
    )
    about = f"{CALLS} parallel calls in one turn, one of which exits with 3"
    return Drill("cascade", about, (part,))


async def _bare(_scene: SideContext) -> FlowFigures:
    """The turn as a TaskGroup runs it: the first that fails cancels the others."""
    told, pace = ReceivedResults(), DrillClock()
    async with provider_for(told.reply, _QUICK) as provider:
        plain = PlainAgent(provider.url, pace, seeded_random(0))
        said = await plain.work(PROMPT, [tool("shell", command="string")], _in_a_group)
        return told.figures(finished=said == LAST_WORDS, requests=len(provider.ledger))


async def _in_a_group(calls: Sequence[Block]) -> list[Block]:
    # Started one by one: a process whose start is cancelled would be nobody's.
    started = [await _started(call["input"]["command"]) for call in calls]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_printed(process)) for process in started]
    except ExceptionGroup as failed:
        words = f"the calls failed: {failed.exceptions[0]}"
        return [result(call, words, failed=True) for call in calls]
    return [result(call, task.result()) for call, task in zip(calls, tasks, strict=True)]


async def _started(command: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_shell(
        command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )


async def _printed(process: asyncio.subprocess.Process) -> str:
    if process.stdout is None:
        raise AssertionError("its output was asked for")
    try:
        out = await process.stdout.read()
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            # What it has started may hold its output open for a moment longer.
            await process.stdout.read()
            await process.wait()
    if process.returncode:
        raise ChildProcessError(f"exit {process.returncode}")
    return out.decode()


async def _as_a_flow(scene: SideContext) -> FlowFigures:
    told, pace = ReceivedResults(), DrillClock()

    @flow
    async def look_everywhere() -> str:
        return await agent(PROMPT, tools=["shell"], cwd=str(scene.folder), label="PART-1")

    async with (
        provider_for(told.reply, _QUICK) as provider,
        flow_host(provider.url, scene.folder / "flows.db", pace, watched=scene.watched) as host,
    ):
        outcome = await run(look_everywhere, host=host)
        await scene.watched.linger("cascade", pace)
        finished = outcome.terminated_by is Ending.COMPLETION and outcome.value == LAST_WORDS
        return told.figures(finished=finished, requests=len(provider.ledger))


def _call(place: int) -> tuple[str, dict[str, Any]]:
    # The one that fails is the quickest: whoever cancels at the first failure loses all the others.
    if place == FAILS:
        return ("shell", {"command": "exit 3"})
    wait = "ping -n 2 127.0.0.1 >nul &" if os.name == "nt" else "sleep 0.5;"
    return ("shell", {"command": f"{wait} echo {_output(place)}"})


def _output(place: int) -> str:
    return f"place {place} is in order"


def _is_whole(place: int, block: Block) -> bool:
    content = block.get("content", "")
    text = content if isinstance(content, str) else " ".join(b.get("text", "") for b in content)
    return not block.get("is_error") and _output(place) in text
