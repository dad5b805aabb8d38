"""Split a stream of server-sent events into its events, byte for byte.

Rules: (1) the events and the rest, joined, are what was fed; (2) how the bytes were cut into
chunks changes nothing about the events; (3) an event ends with the blank line that dispatches it,
after any of the three line ends; (4) the buffer is bounded.
Not here: what an event means (anthropic_stream.py, openai_chat/, openai_responses/).
"""

from __future__ import annotations

import re

LARGEST_EVENT = 32 * 1024 * 1024
# Of JSON in as many `data:` lines as it was written in; a longer event is a flood of line ends.
_MOST_LINES = 100_000
# An event of fewer bytes is small: a ping of Anthropic's has 35, a delta more than 100. In packets
# of more than a few events, small ones are paid for by larger ones. What is there to begin with is
# enough for a sign of life in each of the 7,200 seconds that an answer may take, however many of
# them come together.
_SMALL_EVENT = 32
_FEW_EVENTS = 8
_MOST_PAID = 8192 * _SMALL_EVENT

# A line end and then a second one. A blank line that ends in \r waits for the next byte, since an
# \n would still belong to it; after \r\r nobody waits: that stream ends its lines with \r, and a
# late \n is an empty line in front of the next event, which means nothing.
_END = re.compile(rb"\r\n(?:\r\n|\n|\r(?=[^\n]))|\r\r|\n(?:\n|\r\n|\r(?=[^\n]))")
_LONGEST_END = 4


class EventSplitter:
    """Takes bytes as they come and gives whole events back; `pending` is for reading only."""

    __slots__ = ("_paid", "_searched", "pending")

    def __init__(self) -> None:
        self.pending = bytearray()
        self._searched = 0
        # Bytes that small events may still fall short of.
        self._paid = _MOST_PAID

    @property
    def rest(self) -> bytes:
        """What has come since the last whole event."""
        return bytes(self.pending)

    def feed(self, data: bytes) -> list[bytes]:
        """The events that are whole now; ValueError where no real stream has such events."""
        if self.pending or b"\r" in data:
            self.pending += data
            return self._search()
        events = data.split(b"\n\n")
        if len(events) > _FEW_EVENTS:
            self._pay(len(data), len(events) - 1)
        unfinished = events.pop()
        if unfinished:
            self.pending += unfinished
            self._searched = len(unfinished)
        events = [event + b"\n\n" for event in events]
        return events if len(data) <= LARGEST_EVENT else _checked(events, self.pending)

    def _pay(self, size: int, events: int) -> None:
        left = self._paid + size - _SMALL_EVENT * events
        if left < 0:
            raise _too_small()
        self._paid = min(left, _MOST_PAID)

    def _search(self) -> list[bytes]:
        """Look for ends in what is kept, but not again where there was none before."""
        kept, start = self.pending, 0
        events = []
        most = (self._paid + len(kept)) // _SMALL_EVENT
        found = _END.search(kept, max(0, self._searched - _LONGEST_END))
        while found:
            events.append(bytes(kept[start : found.end()]))
            start = found.end()
            if len(events) > most:
                raise _too_small()
            found = _END.search(kept, start)
        if start:
            if len(events) > _FEW_EVENTS:
                self._pay(start, len(events))
            del kept[:start]
        self._searched = len(kept)
        return _checked(events, kept)


def _too_small() -> ValueError:
    return ValueError("The stream has thousands of events that are too small to say anything.")


def _checked(events: list[bytes], rest: bytearray) -> list[bytes]:
    if len(rest) > LARGEST_EVENT or any(len(event) > LARGEST_EVENT for event in events):
        raise ValueError("The stream has an event of more than 32 MB.")
    return events


def name_and_data(event: bytes) -> tuple[bytes, bytes]:
    """The value of its `event:` field and that of its `data:` lines, empty when there is none.

    ValueError when it has more lines than any real event.
    """
    # Two lines and a blank one, as nearly every event is written.
    if event.count(b"\n") == 3 and event.startswith(b"event: ") and b"\r" not in event:
        first, found, second = event[7:-2].partition(b"\ndata: ")
        if found and event.endswith(b"\n\n"):
            return first, second
    if len(event) > _MOST_LINES and event.count(b"\n") + event.count(b"\r") > _MOST_LINES:
        raise ValueError("The stream has an event of too many lines.")
    name, data = b"", []
    for line in event.splitlines():
        field, _, value = line.partition(b":")
        if field == b"event":
            name = value.removeprefix(b" ")
        elif field == b"data":
            data.append(value.removeprefix(b" "))
    return name, b"\n".join(data)


def name_of(event: bytes) -> bytes:
    """The value of its `event:` field, empty when there is none."""
    return name_and_data(event)[0]


def data_of(event: bytes) -> bytes:
    """The value of its `data:` lines, joined as the standard says."""
    return name_and_data(event)[1]


def event_of(name: bytes, data: bytes) -> bytes:
    """An event that carries one line of data."""
    return b"event: " + name + b"\ndata: " + data + b"\n\n"
