"""A step that blocks holds up neither its siblings nor the run."""

from __future__ import annotations

import threading

from jackline import flow, parallel, step
from tests.flows.world import played, world

_TOGETHER = threading.Barrier(3)
_PATIENCE_S = 60.0  # only a test that fails ever waits so long


def meet(number: int) -> int:
    """Returns only when all three are here at once."""
    _TOGETHER.wait(_PATIENCE_S)
    return number


@flow
async def meeting() -> list[int]:
    return (await parallel(step(meet, number) for number in range(3))).require().values


def test_steps_that_block_run_side_by_side() -> None:
    async def test() -> None:
        assert (await world().run(meeting)).value == [0, 1, 2]

    played(test)


async def leaves(code: int) -> int:
    """Would end the whole program."""
    raise SystemExit(code)


def leaves_in_a_thread(code: int) -> int:
    """Likewise."""
    raise SystemExit(code)


@flow
async def leaving() -> str:
    return (await parallel([step(leaves, 3), step(leaves_in_a_thread, 3), step(fine)])).summary


def fine() -> str:
    return "done"


def test_a_step_that_would_end_the_program_fails_alone() -> None:
    async def test() -> None:
        assert (await world().run(leaving)).value == "1 of 3 ok, 2 failed: 2 crash"

    played(test)
