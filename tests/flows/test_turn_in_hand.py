"""A call that was in hand when its process died is asked for again in the same bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field

from jackline import agent, flow
from jackline.agents.messages import MessagesRunner
from jackline.agents.runner import JsonObject, ModelCaller, WholeAnswer
from jackline.clock import VirtualClock
from jackline.errors import LeaseLostError
from jackline.flows.flow_run import FlowRun
from jackline.flows.host import FlowHost
from jackline.flows.lifecycle import begin_resume, begin_run
from jackline.flows.store import open_run_store
from jackline.simulator.reply_script import Say
from jackline.testing.scripted_agents import ScriptedModel
from tests.flows.world import EPOCH, World, played, world


@dataclass
class Hanging:
    """A model that is asked and, in its first process, does not answer the second call."""

    behind: ScriptedModel
    asked: list[tuple[ModelCaller, JsonObject]] = field(default_factory=list)
    hangs: bool = True

    async def ask(self, body: JsonObject, caller: ModelCaller) -> WholeAnswer:
        self.asked.append((caller, json.loads(json.dumps(body))))
        if self.hangs and len(self.asked) == 2:
            await asyncio.Event().wait()
        return await self.behind.ask(body, caller)


def depth(place: str) -> str:
    """The depth of the water at a place."""
    return f"12 m at {place}"


@flow
async def sounding() -> str:
    return await agent("How deep is it?", label="a", tools=[depth])


async def killed(
    w: World, begun: FlowRun[str], asked: list[tuple[ModelCaller, JsonObject]]
) -> None:
    """The process is gone while its second call is under way: another has taken the run."""
    task = asyncio.create_task(begun.run())
    await w.until(lambda: len(asked) == 2, task)
    record = await w.engine.run("r1")
    assert record is not None
    await w.engine.claim("r1", owner="another", lease=1.0, instead_of=record.owner)
    begun.stop_now()
    with contextlib.suppress(LeaseLostError):
        await w.through(_of(task))
    await w.clock.advance(1000)


def test_the_first_call_of_a_resumed_agent_is_the_one_that_was_in_hand() -> None:
    async def test() -> None:
        clock = VirtualClock(EPOCH)
        model = Hanging(ScriptedModel.in_turn(Say("", (("depth", {"place": "A"}),)), Say("12 m.")))
        w = world()
        w.clock, w.engine = clock, open_run_store("sqlite:///:memory:", wall=clock.wall)
        runner = MessagesRunner(model, clock=clock)
        host = FlowHost(w.engine, lambda _run_id: {"messages": runner}, clock=clock)
        await killed(w, await begin_run(host, sounding, b"{}", run_id="r1"), model.asked)
        model.hangs = False
        again = await begin_resume(host, "r1", flow=sounding)
        assert isinstance(again, FlowRun)
        outcome = await w.through(again.run())
        assert outcome.value == "12 m."
        (_, _), (in_hand, body), (caller, asked_again) = model.asked
        assert asked_again == body
        assert (caller.session_id, caller.task_id) == (in_hand.session_id, in_hand.task_id)

    played(test)


async def _of(task: asyncio.Task[object]) -> object:
    return await task
