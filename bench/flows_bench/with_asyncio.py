"""The fan-out in plain asyncio: nothing is kept.

Not here: the work (work.py).
"""

from __future__ import annotations

import asyncio
import sys

from flows_bench.work import Order, Stopwatch, ask, last, order_of


async def main(order: Order) -> None:
    """Run it."""
    watch = Stopwatch()
    slots = asyncio.Semaphore(order.at_once)

    async def one(place: int) -> int:
        async with slots:
            return int((await ask(order, place))["place"])

    places = await asyncio.gather(*map(one, range(order.count)))
    watch.stop()
    await last(order)
    watch.report(places)


if __name__ == "__main__":
    asyncio.run(main(order_of(sys.argv[1:])))
