"""Keep what a Responses server thought before its tool calls, for the next requests to it.

Laws: (1) bounded in number and size; the oldest goes first; (2) kept for one account and model
alone: nobody else could read it; (3) only in memory: after a restart the model thinks anew.
Not here: which thought belongs to which call (dialects/neutral/reasoning.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from jackline.dialects.neutral.reasoning import Kept

_MOST = 10_000
_MOST_BYTES = 64 * 1024 * 1024


class KeptReasoning:
    """The thoughts of one upstream, by whose they are and the call that followed."""

    def __init__(self, most: int = _MOST, most_bytes: int = _MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._kept: OrderedDict[tuple[str, str], Sequence[Kept]] = OrderedDict()
        self._bytes = 0

    def remember(self, whose: str, call: str, thoughts: Sequence[Kept]) -> None:
        """This was thought before that call."""
        self._forget((whose, call))
        self._kept[whose, call] = tuple(thoughts)
        self._bytes += _size(thoughts)
        while len(self._kept) > self._most or self._bytes > self._most_bytes:
            self._forget(next(iter(self._kept)))

    def recall(self, whose: str, call: str) -> Sequence[Kept]:
        """What was thought before a call; nothing when it is not known."""
        found = self._kept.get((whose, call))
        if found is None:
            return ()
        self._kept.move_to_end((whose, call))
        return found

    def _forget(self, key: tuple[str, str]) -> None:
        self._bytes -= _size(self._kept.pop(key, ()))


def _size(thoughts: Sequence[Kept]) -> int:
    return sum(len(bytes(each.item)) for each in thoughts)
