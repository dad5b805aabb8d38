"""A process that fights others for one run, one call at a time; run by test_competing.py.

Arguments: the store's URL, a name, how many calls there are, and `steady` or `jumping` for its
clock. It prints each call that it began and each whose end was acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Callable

from jackline import event_loop
from jackline.errors import BadArgumentError, LeaseLostError
from jackline.flows.records import CallState, RunState
from jackline.flows.store import open_run_store
from jackline.flows.store.run_store import Claim, RunStore
from tests.flows.store import made


def clock(name: str, manner: str) -> Callable[[], float]:
    """A clock that all share, or one that jumps by up to ten leases each time it is looked at."""
    if manner == "steady":
        return lambda: made.NOON
    lots = random.Random(name)  # noqa: S311 -- a clock's faults
    return lambda: made.NOON + lots.uniform(-10, 10) * made.LEASE


def say(*words: object) -> None:
    """Tell the parent in one piece, past all buffers."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def carry_one_call(engine: RunStore, claim: Claim, count: int) -> bool:
    """Carry the first call that is not done; whether there was one."""
    done = {call.key for call in await engine.calls("run-1") if call.state is CallState.DONE}
    key = next((key for key in map(str, range(count)) if key not in done), None)
    if key is None:
        return False
    await engine.begin_call(claim, made.call(key))
    say("began", key)
    await engine.write_entry(claim, made.entry(1, f"{claim.epoch}/{key}"))
    await engine.end_call(claim, made.done(key, claim.owner.encode()))
    say("ended", key)
    return True


async def fight(url: str, name: str, count: int, manner: str) -> None:
    """Claim, carry one call, let go, and again until all are done."""
    engine = open_run_store(url, wall=clock(name, manner), lock_seconds=60.0)
    try:
        claim: Claim | None = await engine.create(made.run(), owner=name, lease=made.LEASE)
    except BadArgumentError:
        claim = None
        say("found it")
    more = True
    while more:
        claim = claim or await engine.claim("run-1", owner=name, lease=made.LEASE)
        if claim is None:
            await asyncio.sleep(0.001)
            continue
        try:
            more = await carry_one_call(engine, claim, count)
            await engine.let_go(claim, made.run(state=RunState.STOPPED))
        except LeaseLostError:
            say("fenced")
        claim = None
    await engine.close()


if __name__ == "__main__":
    event_loop.run(fight(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
