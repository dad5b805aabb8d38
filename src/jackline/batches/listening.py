"""Make text of what a command prints, as it comes.

Laws: (1) whatever the bytes are, the text is valid; (2) what is told as it comes is bounded, like
what is kept; (3) binary output is described, never shown.
Not here: reading the bytes (processes.py).
"""

from __future__ import annotations

import codecs
from collections.abc import Callable

from jackline.batches.kept_output import KeptOutput

_TOLD_AS_IT_COMES = 262_144
"""Characters; a command that prints without end must not fill the record of its own call."""
_BINARY = "\0"


class Listener:
    """Hears one command out."""

    def __init__(self, limit: int, heard: Callable[[str], None]) -> None:
        self.size = 0
        """Bytes so far."""
        self._kept = KeptOutput(limit)
        self._heard = heard
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._told = 0
        self._is_binary = False

    def take(self, piece: bytes) -> None:
        """The next bytes."""
        self.size += len(piece)
        self._add(self._decoder.decode(piece))

    def close(self) -> None:
        """There are no more; half a character at the end is told as what it is."""
        self._add(self._decoder.decode(b"", final=True))

    def _add(self, text: str) -> None:
        if not text:
            return
        self._is_binary = self._is_binary or _BINARY in text
        self._kept.add(text)
        if self._told < _TOLD_AS_IT_COMES:
            self._told += len(text)
            self._heard(text.replace(_BINARY, "\N{REPLACEMENT CHARACTER}"))

    @property
    def text(self) -> str:
        """What is kept of it; binary output is described instead."""
        if self._is_binary:
            return f"(binary output, {self.size:,} bytes, not shown)"
        return self._kept.text
