"""The fan-out as steps of a DBOS workflow on SQLite, as shipped.

Rules: (1) the application's version is pinned, or DBOS would not take up what an earlier process
has left; (2) a flat gather over steps, which is a shape that DBOS recovers correctly.
Not here: the work (work.py).
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from dbos import DBOS, SetWorkflowID  # type: ignore[import-not-found, unused-ignore]

from flows_bench.work import Order, Stopwatch, ask, last, order_of

ORDER = order_of(sys.argv[1:])
WATCH: list[Stopwatch] = []


@DBOS.step()  # type: ignore[untyped-decorator, unused-ignore]
async def agent(place: int) -> dict[str, Any]:
    """One call."""
    return await ask(ORDER, place)


@DBOS.workflow()  # type: ignore[untyped-decorator, unused-ignore]
async def fan(count: int, at_once: int) -> list[int]:
    """All calls."""
    slots = asyncio.Semaphore(at_once)

    async def one(place: int) -> int:
        async with slots:
            return int((await agent(place))["place"])

    places = await asyncio.gather(*map(one, range(count)))
    WATCH[0].stop()
    await last(ORDER)
    return list(places)


async def main(order: Order) -> None:
    """Run it, or go on with what an earlier process has left."""
    DBOS(
        config={
            "name": "bench",
            "system_database_url": f"sqlite:///{order.folder / 'dbos.sqlite'}",
            "application_version": "1",
            "run_admin_server": False,
            "log_level": "ERROR",
        }
    )
    WATCH.append(Stopwatch())
    DBOS.launch()
    with SetWorkflowID("fan"):
        handle = await DBOS.start_workflow_async(fan, order.count, order.at_once)
    places = await handle.get_result()
    WATCH[0].report(places)
    DBOS.destroy()


if __name__ == "__main__":
    asyncio.run(main(ORDER))
