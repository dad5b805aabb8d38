"""Cut a file into lines without ever holding more of it than a bounded piece.

Laws: (1) however the bytes arrive, the lines are the same; (2) a line over the limit is counted and
passed over, and the lines after it are not lost; (3) nothing is decoded here.
Not here: what a line says (records.py), which files there are (sources.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

# Small enough to stay in the processor's cache, and for the allocator to hand out again and again.
PIECE = 120_000
LONGEST_LINE = 8 << 20


class Readable(Protocol):
    """The one thing needed of an open file."""

    def read(self, size: int, /) -> bytes | None:
        """At most so many bytes; none at the end."""
        ...


class LineReader:
    """The non-empty lines of one open file, without their ends, as views into what was read.

    While a line is handed out, `unfinished` tells whether its end is missing, as it is while a
    client is still writing. `oversized` counts the lines that were passed over for their length.
    """

    def __init__(self, file: Readable, *, piece: int = PIECE, longest: int = LONGEST_LINE) -> None:
        self._file = file
        self._piece = piece
        self._longest = longest
        self.bytes_read = 0
        self.oversized = 0
        self.unfinished = False

    def __iter__(self) -> Iterator[memoryview]:
        rest = b""
        passing_over = False
        # A line longer than a piece doubles what is read, or joining it up would cost its square.
        while piece := self._file.read(max(self._piece, len(rest))):
            self.bytes_read += len(piece)
            start, end = 0, piece.find(b"\n")
            if end >= 0 and (rest or passing_over):
                # Only the line that lies across the border is joined up, not the whole piece.
                line = rest + piece[:end]
                rest = b""
                if len(line) > self._longest and not passing_over:
                    self.oversized += 1
                elif not passing_over:
                    yield memoryview(line)
                passing_over = False
                start, end = end + 1, piece.find(b"\n", end + 1)
            view = memoryview(piece)
            while end >= 0:
                if end - start > self._longest:
                    self.oversized += 1
                elif end > start:
                    yield view[start:end]
                start, end = end + 1, piece.find(b"\n", end + 1)
            if not passing_over:
                rest += piece[start:]
            if len(rest) > self._longest:
                self.oversized += 1
                passing_over = True
                rest = b""
        if rest:
            self.unfinished = True
            yield memoryview(rest)
