"""Tell a machine that stood still from a drill that failed, where a drill's time runs fast.

In scaled time a second in which this machine does nothing is half a minute in which a provider says
nothing: the world that the drill is about has become another one, and what is promised for the
first need not hold in it.

Rules: (1) a standstill is measured, never assumed: a test that fails on a steady machine has
failed; (2) so has one that fails however often it is tried.
Not here: what a drill promises (the tests of drills/).
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

T = TypeVar("T")
_TRIES = 4
_LOOK_EVERY = 0.01


class Standstill:
    """`with` measures the longest time in which a thread of this process did not get its turn."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="standstill", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        last = time.monotonic()
        over = False
        while not over:
            over = self._over.wait(_LOOK_EVERY)
            now = time.monotonic()
            self.longest = max(self.longest, now - last - _LOOK_EVERY)
            last = now


def steadily(play: Callable[[], T], seconds: float, tries: int = _TRIES) -> T:
    """What a scene comes to on a machine that does not stand still for so long meanwhile."""
    with Standstill() as seen:
        played = play()
    steady = seen.longest < seconds
    return played if steady or tries == 1 else steadily(play, seconds, tries - 1)


Test: TypeAlias = Callable[..., None]


def tried_again_after_a_hiccup(seconds: float) -> Callable[[Test], Test]:
    """A test, done anew when it failed on a machine that stood still for so long, or longer."""

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def tried(**given: Any) -> None:
            for number in range(_TRIES):
                failed, longest = _played(test, given, number)
                if failed is None:
                    return
                if number + 1 == _TRIES or longest < seconds:
                    raise failed
                sys.stderr.write(
                    f"{test.__name__} is tried again, since this machine stood still for"
                    f" {longest:.2f} s: {failed!r:.500}\n"
                )

        return tried

    return decorate


def _played(test: Test, given: dict[str, Any], number: int) -> tuple[Exception | None, float]:
    """What the test failed with, and the longest standstill meanwhile."""
    anew = {name: _anew(value, number) for name, value in given.items()}
    failed = None
    with Standstill() as seen:
        try:
            test(**anew)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is raised in the end
            failed = error
    return failed, seen.longest


def _anew(given: Any, number: int) -> Any:
    """A folder in which nobody has been."""
    if not isinstance(given, Path):
        return given
    folder = given / f"try-{number}"
    folder.mkdir()
    return folder
