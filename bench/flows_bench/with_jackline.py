"""The fan-out as a flow of Jackline: its calls as steps, or as agents over a fake model.

Rules: (1) the store is the one that users get; (2) an agent is a whole one: a conversation in a
notebook, budgets, the gate; only the model behind it is fake.
Not here: the work (work.py).
"""

from __future__ import annotations

import sys
from typing import Any

from flows_bench.work import Order, Stopwatch, ask, last, order_of
from jackline import agent, event_loop, flow, parallel, step
from jackline.agents.messages.runner import MessagesRunner
from jackline.agents.outcome import Outcome
from jackline.agents.runner import JsonObject, ModelCaller, WholeAnswer
from jackline.dialects import TokenUsage
from jackline.flows.host import FlowHost
from jackline.flows.lifecycle import begin_resume, begin_run
from jackline.flows.settings import RunSettings
from jackline.flows.store import open_run_store, run_store_url
from jackline.flows.values import encode_arguments

RUN = "fan"
ORDER = order_of(sys.argv[2:])
WATCH: list[Stopwatch] = []


class FakeModel:
    """Answers every prompt `call N` after the order's milliseconds."""

    async def ask(self, body: JsonObject, caller: ModelCaller) -> WholeAnswer:  # noqa: ARG002 -- the port's
        """See `Model`."""
        content: Any = body["messages"]
        asked = content[0]["content"]
        text = asked if isinstance(asked, str) else asked[0]["text"]
        answer = await ask(ORDER, int(text.removeprefix("call ")))
        said: list[JsonObject] = [{"type": "text", "text": f"{answer['place']} {answer['text']}"}]
        return WholeAnswer(said, "end_turn", TokenUsage(20, 250), "claude-haiku-4-5")


async def one(place: int) -> dict[str, Any]:
    """One call as a step."""
    return await ask(ORDER, place)


async def finish() -> int:
    """The step after the fan."""
    WATCH[0].stop()
    await last(ORDER)
    return 0


@flow
async def fan_of_steps(count: int, at_once: int) -> list[int]:
    """All calls as steps."""
    done = await parallel((step(one, place) for place in range(count)), limit=at_once)
    await step(finish)
    return [answer["place"] for answer in done.require().values]


@flow
async def fan_of_agents(count: int, at_once: int) -> list[int]:
    """All calls as agents."""
    calls = (agent(f"call {place}", label=f"call {place}") for place in range(count))
    done = await parallel(calls, limit=at_once)
    await step(finish)
    return [int(text.partition(" ")[0]) for text in done.require().values]


async def main(order: Order, kind: str) -> None:
    """Run it, or go on with what an earlier process has left."""
    fan = fan_of_agents if kind == "agents" else fan_of_steps
    WATCH.append(Stopwatch())
    engine = open_run_store(run_store_url(order.folder))
    host = FlowHost(
        engine,
        lambda _run_id: {"messages": MessagesRunner(FakeModel())},
        settings=RunSettings(at_once=order.at_once),
    )
    try:
        if await engine.run(RUN) is None:
            given = encode_arguments(fan.function, (order.count, order.at_once), {})
            run = await begin_run(host, fan, given, run_id=RUN)
        else:
            resumed = await begin_resume(host, RUN, flow=fan)
            if isinstance(resumed, Outcome):
                sys.exit("the run had finished already")
            run = resumed
        outcome = await run.run()
    finally:
        await engine.close()
    WATCH[0].report(outcome.value or [])


if __name__ == "__main__":
    event_loop.run(main(ORDER, sys.argv[1]))
