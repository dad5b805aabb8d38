"""Read the gateway's journal for `jackline logs` and `jackline why`.

Rules: (1) reading hinders no gateway, and works while none runs; (2) `logs` prints every event once
and in order, as far as the journal has it; (3) without a journal `why` goes on without one, and an
unreadable journal is reported on stderr; (4) memory is bounded: the events that count as printed,
and the calls that are read, the latest first.
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

import click

from jackline.agents.prices import cache_prices
from jackline.assembly import StateDir
from jackline.autopsy.lapsed_caches import LapsedWait, lapsed_waits
from jackline.cli.gateway_flags import service_place
from jackline.cli.terminal import say
from jackline.clock import ClockWatch, SystemClock
from jackline.control.event_lines import LoggedEvent, event_json, event_text
from jackline.errors import JournalError
from jackline.journal import JournalReader
from jackline.outside_names import printable
from jackline.transcripts.story import TranscriptSet

_MOST_CALLS = 50_000
# A call is journalled when it has ended, which may be after its transcript's last line.
_CALL_SECONDS = 3600.0
_FOLLOW_SECONDS = 0.5
# The journal is written in batches, table after table: a late event comes within this.
_LATE_SECONDS = 30.0
_MOST_SEEN = 200_000


def read_lapsed_waits(evidence: TranscriptSet, now: datetime) -> list[LapsedWait]:
    """The calls of these sessions that waited until their prompt caches had lapsed."""
    sessions = {story.session_id for story in evidence.stories if story.session_id}
    journal = StateDir(service_place({}).state_dir).journal
    if not sessions or not journal.exists():
        return []
    began = [story.started_at for story in evidence.stories if story.started_at is not None]
    ended = [story.ended_at for story in evidence.stories if story.ended_at is not None]
    since = min(began, default=now).timestamp()
    until = max(ended, default=now).timestamp() + _CALL_SECONDS
    try:
        with JournalReader(journal) as reader:
            calls = reader.calls(since, until, _MOST_CALLS)
    except JournalError as error:
        say(f"warning: {error}", err=True)
        return []
    return lapsed_waits((call for call in calls if call.session in sessions), cache_prices)


def latest(reader: JournalReader, since: float, limit: int) -> list[LoggedEvent]:
    """The latest events since then, in their order."""
    found: list[LoggedEvent] = [
        *reader.calls(since, math.inf, limit),
        *reader.failed_attempts(since, math.inf, limit),
        *reader.lane_changes(since),
        *reader.notes(since),
    ]
    return sorted(found, key=lambda event: event.at)[-limit:]


class LogFollower:
    """Finds new events: those after `begins` that were not printed yet."""

    def __init__(self, begins: float, printed: Iterable[LoggedEvent] = ()) -> None:
        self._begins = self._since = begins
        self._seen: OrderedDict[LoggedEvent, None] = OrderedDict.fromkeys(printed)

    def new_events(self, reader: JournalReader, limit: int) -> Iterator[LoggedEvent]:
        """The events since the last call."""
        for event in latest(reader, max(self._begins, self._since - _LATE_SECONDS), limit):
            if event not in self._seen:
                self._seen[event] = None
                self._since = max(self._since, event.at)
                yield event
        while len(self._seen) > _MOST_SEEN:
            self._seen.popitem(last=False)

    def clock_set_back(self, reader: JournalReader, now: float) -> None:
        """Go on after the clock was set back: new events seem older than printed ones."""
        self._begins = self._since = now - _LATE_SECONDS
        for event in latest(reader, now, _MOST_SEEN):
            self._seen[event] = None


async def print_log(journal: Path, limit: int, *, follow: bool, as_json: bool) -> int:
    """Print the latest events; with `follow` go on until interrupted."""
    clock = SystemClock()

    def show(event: LoggedEvent) -> None:
        line = json.dumps(event_json(event)) if as_json else ""
        click.echo(line or printable(event_text(event, clock.now())))

    with JournalReader(journal) as reader:
        first = latest(reader, 0.0, limit)
    for event in first:
        show(event)
    if not follow:
        return 0
    follower = LogFollower(first[-1].at if first else clock.wall() - _LATE_SECONDS, first)
    watch = ClockWatch(clock)
    while True:
        await clock.sleep(_FOLLOW_SECONDS)
        # Opened each time: the file may be replaced meanwhile.
        with JournalReader(journal) as reader:
            moved = watch.look()
            if moved is not None and moved.by < 0:
                follower.clock_set_back(reader, clock.wall())
            for event in follower.new_events(reader, _MOST_SEEN):
                show(event)
