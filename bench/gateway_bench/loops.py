"""Run the bench's own programs on the fastest event loop that is here.

Rules: (1) uvloop where it is installed, asyncio elsewhere; (2) load and upstream use the same one.
Not here: the loop of what is measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from importlib import import_module
from importlib.util import find_spec
from typing import TypeVar, cast

T = TypeVar("T")


def run(main: Coroutine[object, object, T]) -> T:
    """The result of `main`, run to its end."""
    factory = asyncio.new_event_loop
    if find_spec("uvloop") is not None:
        found = import_module("uvloop").new_event_loop
        factory = cast(Callable[[], asyncio.AbstractEventLoop], found)
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)
