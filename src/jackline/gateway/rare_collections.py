"""Let the garbage collector look rarely, since calls leave it nothing to find.

Whatever a call holds is let go of when it ends, and freed by reference counting. The collector
would still go through some hundred young objects for every few dozen calls in flight, which took
three percent of all processor time. What cycles a rare error leaves behind is found a little later.

Laws: (1) the collector is as it was before, once the last who asked for this has let go.
Not here: the memory that the C library keeps (freed_memory.py).
"""

from __future__ import annotations

import gc

# Objects made and not freed before the young ones are looked at; Python's own is 700.
YOUNG_OBJECTS = 20_000


class RareCollections:
    """Held by whoever serves calls, from `begin` to `end`; several may."""

    def __init__(self) -> None:
        self._held = 0
        self._before = gc.get_threshold()

    def begin(self) -> None:
        """Look rarely from now on."""
        if self._held == 0:
            self._before = gc.get_threshold()
            gc.set_threshold(YOUNG_OBJECTS, *self._before[1:])
        self._held += 1

    def end(self) -> None:
        """One of those that began needs it no longer."""
        self._held -= 1
        if self._held == 0:
            gc.set_threshold(*self._before)


RARE_COLLECTIONS = RareCollections()
