"""Cut what a program prints into lines, however it comes.

Laws: (1) pure: the same bytes give the same lines, wherever they are cut; (2) a line without its
end is no line yet; (3) a line over the limit is passed over, and those after it are not lost.
Not here: what a line says.
"""

from __future__ import annotations

# A line is a whole message: tool output of many megabytes may stand in one.
LONGEST_LINE = 64 << 20


class LineCutter:
    """The lines of one output so far."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._rest = bytearray()
        self._passing_over = False

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that these bytes complete, without their ends; empty ones are left out."""
        lines = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._keep(data[start:end])
            if self._rest and not self._passing_over:
                lines.append(bytes(self._rest))
            self._rest.clear()
            self._passing_over = False
            start = end + 1
        self._keep(data[start:])
        return lines

    def _keep(self, piece: bytes) -> None:
        if self._passing_over:
            return
        self._rest += piece
        if len(self._rest) > self._longest:
            self._rest.clear()
            self._passing_over = True
