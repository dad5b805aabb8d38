"""The fan-out as tasks of one LangGraph step, with its SQLite checkpointer.

Rules: (1) `durability="sync"`: what is compared here is durable before it is used; (2) no
`max_concurrency`: with it, results are kept only after all tasks have run, and a kill costs all.
Not here: the work (work.py).
"""

from __future__ import annotations

import asyncio
import operator
import sys
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite.aio import (  # type: ignore[import-not-found, unused-ignore]
    AsyncSqliteSaver,
)
from langgraph.graph import (  # type: ignore[import-not-found, unused-ignore]
    END,
    START,
    StateGraph,
)
from langgraph.types import Send  # type: ignore[import-not-found, unused-ignore]

from flows_bench.work import Order, Stopwatch, ask, last, order_of

ORDER = order_of(sys.argv[1:])
SLOTS = asyncio.Semaphore(ORDER.at_once)
WATCH: list[Stopwatch] = []


class State(TypedDict):
    """What the graph carries."""

    count: int
    answers: Annotated[list[dict[str, Any]], operator.add]


class Task(TypedDict):
    """What one call is given."""

    place: int


def spread(state: State) -> list[Any]:
    """One task for each call."""
    return [Send("agent", {"place": place}) for place in range(state["count"])]


async def agent(task: Task) -> dict[str, Any]:
    """One call."""
    async with SLOTS:
        return {"answers": [await ask(ORDER, task["place"])]}


async def finish(_state: State) -> dict[str, Any]:
    """The step after the fan."""
    WATCH[0].stop()
    await last(ORDER)
    return {"answers": []}


async def main(order: Order) -> None:
    """Run it, or go on with what an earlier process has left."""
    builder = StateGraph(State)
    builder.add_node("agent", agent)
    builder.add_node("finish", finish)
    builder.add_conditional_edges(START, spread, ["agent"])
    builder.add_edge("agent", "finish")
    builder.add_edge("finish", END)
    WATCH.append(Stopwatch())
    path = str(order.folder / "langgraph.sqlite")
    async with AsyncSqliteSaver.from_conn_string(path) as saver:
        graph = builder.compile(checkpointer=saver)
        config = {"configurable": {"thread_id": "fan"}}
        known = await saver.aget_tuple(config)
        given = None if known else {"count": order.count, "answers": []}
        state = await graph.ainvoke(given, config, durability="sync")
    WATCH[0].report([answer["place"] for answer in state["answers"]])


if __name__ == "__main__":
    asyncio.run(main(ORDER))
