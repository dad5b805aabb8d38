"""A process that carries a run with many agents at once until it is killed; run by test_killed.py.

Arguments: the store's URL and how many processes were killed before. Each agent begins its call,
writes some lines, and ends it; what has been acknowledged is printed, one line at a time.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
import sys

from jackline import event_loop
from jackline.flows.records import CallState
from jackline.flows.store import open_run_store
from jackline.flows.store.run_store import Claim, RunStore
from jackline.flows.store.sqlite.call_rows import INLINE_BYTES
from tests.flows.store import made

AGENTS = 12
LINES = 3


def payload(name: str) -> bytes:
    """What is kept under this name: short or long, and different for every name."""
    seed = hashlib.sha256(name.encode()).digest()
    # The first line of every tenth agent is surely long, and some others are.
    length = INLINE_BYTES * 2 if seed[0] < 16 or name.endswith("0/0 1") else 50 + seed[1]
    return (seed * (length // len(seed) + 1))[:length]


def say(*words: object) -> None:
    """Tell the parent in one piece, past all buffers."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def work_on(engine: RunStore, claim: Claim, keys: itertools.count[int]) -> None:
    """One agent after the other."""
    while True:
        key = f"{claim.epoch}-{next(keys)}"
        task_id = made.call(key).task_id
        await engine.begin_call(claim, made.call(key))
        say("begun", key)
        for number in range(1, LINES + 1):
            data = payload(f"{task_id} {number}")
            await engine.write_entry(claim, made.entry(number, task_id, data=data))
            say("line", key, number)
        value, outcome = payload(key), payload(f"outcome {key}")
        call = made.call(key, CallState.DONE, value=value, outcome=outcome, tokens=1, ended_at=1.0)
        await engine.end_call(claim, call)
        say("done", key)
        if key.endswith("7"):
            await engine.forget_calls(claim, [(key, 0)])
            say("forgotten", key)


async def carry(url: str, killed: int) -> None:
    """Take the run over from the process that was killed before, and work."""
    engine = open_run_store(url, wall=lambda: made.NOON + killed * 2 * made.LEASE)
    claim = await engine.claim("run-1", owner=f"process {killed}", lease=made.LEASE)
    if claim is None:
        claim = await engine.create(made.run(), owner=f"process {killed}", lease=made.LEASE)
    keys = itertools.count()
    await asyncio.gather(*(work_on(engine, claim, keys) for _ in range(AGENTS)))


if __name__ == "__main__":
    event_loop.run(carry(sys.argv[1], int(sys.argv[2])))
