"""Run a coroutine on the fastest event loop that this machine has.

Rules: (1) uvloop where it is installed, asyncio elsewhere, with the same behaviour; (2) no other
module chooses a loop.
Not here: threads, processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from importlib import import_module
from importlib.util import find_spec
from typing import TypeVar, cast

T = TypeVar("T")

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def loop_factory() -> LoopFactory:
    """What makes the loop: uvloop's factory, or asyncio's own."""
    if find_spec("uvloop") is None:  # Windows, and interpreters that it is not built for
        return asyncio.new_event_loop
    return cast(LoopFactory, import_module("uvloop").new_event_loop)


def run(main: Coroutine[object, object, T]) -> T:
    """The result of `main`, run to its end."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)
