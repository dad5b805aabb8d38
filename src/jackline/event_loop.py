"""Run a coroutine on the fastest event loop that this machine has, and know if a loop runs late.

Rules: (1) uvloop where it is installed, asyncio elsewhere, with the same behaviour; (2) no other
module chooses a loop; (3) whoever takes a time-out for evidence about somebody else asks
`LatenessWatch` first whether the time passed here was the other's to use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from importlib import import_module
from importlib.util import find_spec
from types import TracebackType
from typing import Self, TypeVar, cast

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


# A standstill shorter than both together is not seen. An exchange takes a dozen turns of the loop
# at most, so that such standstills, one in each turn, add up to a few seconds.
_TICK = 0.1
_LATE = 0.25


class LatenessWatch:
    """`with` finds out whether the running loop comes late to what is due meanwhile."""

    __slots__ = ("_due", "_handle", "_loop", "_was_late")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._was_late = False
        self._schedule()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._handle.cancel()

    @property
    def was_late(self) -> bool:
        """Whether it did, also if what is due has not come yet: others may be called before it."""
        return self._was_late or self._is_late()

    def _is_late(self) -> bool:
        return self._loop.time() - self._due > _LATE

    def _tick(self) -> None:
        self._was_late = self._was_late or self._is_late()
        self._schedule()

    def _schedule(self) -> None:
        self._due = self._loop.time() + _TICK
        self._handle = self._loop.call_at(self._due, self._tick)
