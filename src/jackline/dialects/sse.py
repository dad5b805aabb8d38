"""Split a stream of server-sent events into its events, byte for byte.

Rules: (1) the events and the rest, joined, are the bytes that were fed; (2) how the bytes were cut
into chunks changes nothing about the events; (3) an event ends with the blank line that dispatches
it, after any of the three line ends; (4) the buffer is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

# Images come as base64 in one event, and the last event of Responses repeats all of them: proxies
# with a limit of 10 MB broke real answers. What many hold together: upstream/bounded_answers.py.
LARGEST_EVENT = 32 * 1024 * 1024
# Of JSON in as many `data:` lines as it was written in; a longer event is a flood of line ends.
_MOST_LINES = 100_000
# An event of fewer bytes is small: a ping of Anthropic's has 35, a delta more than 100. In packets
# of more than a few events, larger ones make up for small ones. The credit at the start is enough
# for one ping in each of the 7,200 seconds that an answer may take, however many come together.
_SMALL_EVENT = 32
_FEW_EVENTS = 8
_MOST_CREDIT = 8192 * _SMALL_EVENT

# A line end and then a second one. A blank line that ends in \r waits for the next byte, since an
# \n would still belong to it. After \r\r there is no wait: that stream ends its lines with \r, and
# a late \n is an empty line before the next event, which means nothing.
_END = re.compile(rb"\r\n(?:\r\n|\n|\r(?=[^\n]))|\r\r|\n(?:\n|\r\n|\r(?=[^\n]))")
_LONGEST_END = 4


class EventSplitter:
    """Accepts bytes in any chunks and returns whole events; `pending` is read-only."""

    __slots__ = ("_credit", "_searched", "pending")

    def __init__(self) -> None:
        self.pending = bytearray()
        self._searched = 0
        # How many bytes small events may still lack.
        self._credit = _MOST_CREDIT

    @property
    def rest(self) -> bytes:
        """The bytes since the last whole event."""
        return bytes(self.pending)

    def feed(self, data: bytes) -> list[bytes]:
        """The events that are whole now; ValueError where no real stream has such events."""
        if self.pending or b"\r" in data:
            self.pending += data
            return self._search()
        events = data.split(b"\n\n")
        if len(events) > _FEW_EVENTS:
            self._charge(len(data), len(events) - 1)
        unfinished = events.pop()
        if unfinished:
            self.pending += unfinished
            self._searched = len(unfinished)
        events = [event + b"\n\n" for event in events]
        if len(data) > LARGEST_EVENT:
            self._check_sizes(events)
        return events

    def _search(self) -> list[bytes]:
        """Search the buffer for event ends, but not again where there was none before."""
        pending, start = self.pending, 0
        events: list[bytes] = []
        most = (self._credit + len(pending)) // _SMALL_EVENT
        found = _END.search(pending, max(0, self._searched - _LONGEST_END))
        while found:
            events.append(bytes(pending[start : found.end()]))
            start = found.end()
            if len(events) > most:
                self._charge(len(pending), len(events))
            found = _END.search(pending, start)
        if start:
            if len(events) > _FEW_EVENTS:
                self._charge(start, len(events))
            del pending[:start]
        self._searched = len(pending)
        self._check_sizes(events)
        return events

    def _charge(self, size: int, events: int) -> None:
        left = self._credit + size - _SMALL_EVENT * events
        if left < 0:
            raise ValueError("The stream has thousands of events that are too small to be real.")
        self._credit = min(left, _MOST_CREDIT)

    def _check_sizes(self, events: list[bytes]) -> None:
        if len(self.pending) > LARGEST_EVENT or any(len(event) > LARGEST_EVENT for event in events):
            raise ValueError("The stream has an event of more than 32 MB.")


def name_and_data(event: bytes) -> tuple[bytes, bytes]:
    """The value of its `event:` field and of its `data:` lines, each empty when there is none.

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


def data_of(event: bytes) -> bytes:
    """The value of its `data:` lines, joined as the standard says."""
    return name_and_data(event)[1]


def event_of(name: bytes, data: bytes) -> bytes:
    """An event with one line of data."""
    return b"event: " + name + b"\ndata: " + data + b"\n\n"


def json_event(name: bytes, fields: Mapping[str, object]) -> bytes:
    """An event with these fields as JSON; its `type` is its name."""
    return event_of(name, msgspec.json.encode({"type": name.decode(), **fields}))
