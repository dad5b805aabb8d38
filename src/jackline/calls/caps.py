"""Keep the number of calls under way within the user's caps.

Laws: (1) a call that would pass any of its caps waits; (2) who waits is let in as soon as room
comes, in order of arrival among those that fit.
Not here: the limits that a lane learns by itself (lanes/).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Generic, TypeVar

from jackline.calls.request import Cap

T = TypeVar("T")


class CapGate(Generic[T]):
    """Counts calls per key and keeps a line of those that have to wait."""

    def __init__(self) -> None:
        self._under_way: Counter[tuple[str, str]] = Counter()
        self._entered: set[int] = set()
        self._line: dict[int, tuple[T, tuple[Cap, ...]]] = {}

    def __len__(self) -> int:
        return len(self._line)

    def enter(self, number: int, who: T, caps: tuple[Cap, ...]) -> bool:
        """Whether the call may go on; if not, it stands in line."""
        if self._fits(caps):
            self._count(caps, 1)
            self._entered.add(number)
            return True
        self._line[number] = (who, caps)
        return False

    def leave(self, number: int, caps: tuple[Cap, ...]) -> list[T]:
        """A call is over: who may go on instead; nobody when it has left before."""
        if self._line.pop(number, None) is not None or number not in self._entered:
            return []
        self._entered.discard(number)
        self._count(caps, -1)
        return list(self._admitted())

    def stands_in_line(self, number: int) -> bool:
        """Whether the call waits for a cap."""
        return number in self._line

    def _admitted(self) -> Iterable[T]:
        for number, (who, caps) in list(self._line.items()):
            if self._fits(caps):
                del self._line[number]
                self._count(caps, 1)
                self._entered.add(number)
                yield who

    def _fits(self, caps: tuple[Cap, ...]) -> bool:
        return all(self._under_way[key] < limit for key, limit in caps)

    def _count(self, caps: tuple[Cap, ...], step: int) -> None:
        for key, _ in caps:
            self._under_way[key] += step
            if not self._under_way[key]:
                del self._under_way[key]
