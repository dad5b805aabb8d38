"""Blank the gateway's own credentials in the errors of an upstream.

Rules: (1) only credentials that the caller did not send itself: it may read its own; (2) a part of
16 bytes is as good as the whole; shorter credentials count whole, from 8 bytes on; (3) what is
blanked keeps its length, so that framing and JSON stay as they were; (4) the work is bounded: an
error that repeats parts over and over is blanked as a whole; (5) only 15 bytes wait for the next
packet, so that whoever measures silence is not misled. Credentials in another encoding (base64, or
escaped characters) are not found.
"""

from __future__ import annotations

from collections.abc import Sequence

from jackline.upstream.interface import ResponseHandler

PART = 16
"""So much of a credential is too much."""
SHORTEST = 8
_BLANK = b"*"
# Every part of a text contains one whole block of half its size, if blocks are laid end to end.
_BLOCK = PART // 2
_MOST_HITS = 2000


def _pieces(words: Sequence[bytes], size: int) -> set[bytes]:
    return {word[at : at + size] for word in words for at in range(len(word) - size + 1)}


class Blanker:
    """Blanks credentials, and parts of them, in bytes."""

    __slots__ = ("_blocks", "_parts", "_short", "hits_left")

    def __init__(self, credentials: Sequence[bytes]) -> None:
        long = [each for each in credentials if len(each) >= PART]
        self._short = [each for each in credentials if SHORTEST <= len(each) < PART]
        self._parts = _pieces(long, PART)
        self._blocks = _pieces(long, _BLOCK)
        self.hits_left = _MOST_HITS

    def found_in(self, data: bytes) -> list[tuple[int, int]]:
        """Where parts are, from each start to its end; they may overlap."""
        found = []
        for word in self._short:
            at = data.find(word)
            while at >= 0 and self.hits_left > 0:
                self.hits_left -= 1
                found.append((at, at + len(word)))
                at = data.find(word, at + len(word))
        blocks, parts = self._blocks, self._parts
        for at in range(0, len(data) - _BLOCK + 1 if blocks else 0, _BLOCK):
            if data[at : at + _BLOCK] not in blocks:
                continue
            self.hits_left -= 1
            if self.hits_left <= 0:
                break
            first = max(0, at - PART + _BLOCK)
            starts = [each for each in range(first, at + 1) if data[each : each + PART] in parts]
            if starts:
                found.append((starts[0], starts[-1] + PART))
        return [(0, len(data))] if self.hits_left <= 0 else found

    def blanked(self, data: bytes) -> bytes:
        """The whole of these bytes without credentials."""
        return _blank(data, self.found_in(data))


def _blank(data: bytes, found: Sequence[tuple[int, int]]) -> bytes:
    if not found:
        return data
    changed = bytearray(data)
    for start, end in found:
        changed[start:end] = _BLANK * (min(end, len(data)) - start)
    return bytes(changed)


class BlankedError:
    """Between the body of an error and its handler."""

    __slots__ = ("_blanker", "_handler", "_known", "_rest")

    def __init__(self, handler: ResponseHandler, blanker: Blanker) -> None:
        self._handler = handler
        self._blanker = blanker
        # The last bytes, in which a part may begin, and how many of them belong to one already.
        self._rest = b""
        self._known = 0

    def began(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """The head of the answer; its values may repeat a credential as well."""
        blanked = self._blanker.blanked
        self._handler.began(status, [(name, blanked(value)) for name, value in headers])

    def heard(self, data: bytes) -> None:
        """Bytes of the error."""
        data = self._rest + data
        found = [(0, self._known), *self._blanker.found_in(data)]
        final = max(0, len(data) - PART + 1)
        self._rest = data[final:]
        self._known = max(0, max(end for _, end in found) - final)
        # Also an empty piece shows that the upstream is alive.
        self._handler.heard(_blank(data, found)[:final])

    def ended(self) -> None:
        """The error is complete."""
        self._pass_rest()
        self._handler.ended()

    def broke(self, error: OSError) -> None:
        """It will not become complete."""
        self._pass_rest()
        self._handler.broke(error)

    def _pass_rest(self) -> None:
        rest, self._rest = self._rest, b""
        if rest:
            self._handler.heard(_blank(rest, [(0, self._known), *self._blanker.found_in(rest)]))
