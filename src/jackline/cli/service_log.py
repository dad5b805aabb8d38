"""Print what the service did, from its journal, and go on as more happens.

Laws: (1) every event is printed once and in its order, as far as the journal has it; (2) reading
hinders no gateway, and works while none runs; (3) what is remembered to tell new from old is
bounded.
Not here: the lines (control/event_lines.py), the log of one run (runs.py).
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from jackline.clock import ClockWatch, SystemClock
from jackline.control.event_lines import Logged, event_json, event_words
from jackline.journal import JournalReader
from jackline.outside_names import printable

_FOLLOW_SECONDS = 0.5
# The journal is written in batches, table after table: what comes late comes within this.
_LATE = 30.0
_MOST_SEEN = 200_000


def latest(reader: JournalReader, since: float, limit: int) -> list[Logged]:
    """The latest events since then, in their order."""
    found: list[Logged] = [
        *reader.calls(since, math.inf, limit),
        *reader.failed_attempts(since, math.inf, limit),
        *reader.lane_changes(since),
        *reader.notes(since),
    ]
    return sorted(found, key=lambda event: event.at)[-limit:]


class Following:
    """What was printed lately, to tell what is new; nothing from before `begins` is news."""

    def __init__(self, begins: float, printed: Iterable[Logged] = ()) -> None:
        self._begins = self._since = begins
        self._seen: OrderedDict[Logged, None] = OrderedDict.fromkeys(printed)

    def news(self, reader: JournalReader, limit: int) -> Iterator[Logged]:
        """What has come since the last time."""
        for event in latest(reader, max(self._begins, self._since - _LATE), limit):
            if event not in self._seen:
                self._seen[event] = None
                self._since = max(self._since, event.at)
                yield event
        while len(self._seen) > _MOST_SEEN:
            self._seen.popitem(last=False)

    def set_back(self, reader: JournalReader, now: float) -> None:
        """The clock was set back: what comes now seems older than what was printed."""
        self._begins = self._since = now - _LATE
        for event in latest(reader, now, _MOST_SEEN):
            self._seen[event] = None


async def print_log(journal: Path, limit: int, *, follow: bool, as_json: bool) -> int:
    """Print the latest events; with `follow` go on until interrupted."""
    clock = SystemClock()

    def tell(event: Logged) -> None:
        line = json.dumps(event_json(event)) if as_json else ""
        click.echo(line or printable(event_words(event, clock.now())))

    with JournalReader(journal) as reader:
        first = latest(reader, 0.0, limit)
    for event in first:
        tell(event)
    if not follow:
        return 0
    following = Following(first[-1].at if first else clock.wall() - _LATE, first)
    watch = ClockWatch(clock)
    while True:
        await clock.sleep(_FOLLOW_SECONDS)
        # Opened each time: the file may be exchanged while we look on.
        with JournalReader(journal) as reader:
            moved = watch.look()
            if moved is not None and moved.by < 0:
                following.set_back(reader, clock.wall())
            for event in following.news(reader, _MOST_SEEN):
                tell(event)
