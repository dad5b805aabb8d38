"""Keep the beginning and the end of a text that may never end.

Laws: (1) memory stays bounded, whatever comes; (2) what was left out is counted where it is
missing; (3) a text that fits is kept whole.
Not here: reading it from a process (processes.py).
"""

from __future__ import annotations

from collections import deque

USUAL_LIMIT = 30_000
"""Characters; about ten pages, which a model reads without losing the thread."""


class KeptOutput:
    """The first half and the last half of what fits into `limit` characters."""

    def __init__(self, limit: int = USUAL_LIMIT) -> None:
        self._head_room = limit // 2
        self._tail_room = limit - limit // 2
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._in_tail = 0
        self.left_out = 0

    def add(self, text: str) -> None:
        """Take what came next."""
        if self._head_room:
            first, text = text[: self._head_room], text[self._head_room :]
            self._head.append(first)
            self._head_room -= len(first)
        if text:
            # A single huge piece would otherwise be held whole, only to be cut when asked for.
            self._tail.append(text[-self._tail_room :])
            self.left_out += len(text) - len(self._tail[-1])
            self._in_tail += len(self._tail[-1])
            self._trim()

    def _trim(self) -> None:
        while self._in_tail - len(self._tail[0]) >= self._tail_room:
            gone = len(self._tail.popleft())
            self._in_tail -= gone
            self.left_out += gone
        if self._in_tail > self._tail_room:
            over = self._in_tail - self._tail_room
            self._tail[0] = self._tail[0][over:]
            self._in_tail -= over
            self.left_out += over

    @property
    def text(self) -> str:
        """What is kept, with a note where something is missing."""
        head, tail = "".join(self._head), "".join(self._tail)
        if not self.left_out:
            return head + tail
        return f"{head}\n… ({self.left_out:,} characters left out) …\n{tail}"
