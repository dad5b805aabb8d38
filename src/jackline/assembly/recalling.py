"""Let a new service know what happened today before it was started, from the journal.

Laws: (1) read off the event loop, before the first request, and bounded: the latest calls; (2) what
cannot be read is left out: only the timeline's past is missing then; (3) nothing is written again.
Not here: what lanes have learned (remembering.py), what becomes of it (observing.py).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TypeAlias

from jackline.clock import Clock
from jackline.errors import JournalError
from jackline.events import Announce, AttemptFailed, CallEnded, LaneChanged, ServiceNoted
from jackline.journal import JournalReader

Kept: TypeAlias = CallEnded | AttemptFailed | LaneChanged | ServiceNoted
_MOST = 20_000
_HOUR = 3600.0


async def recall_past(journal: Path, announce: Announce, clock: Clock) -> None:
    """Announce what the journal knows of today, or at least of the last hour, in its order."""
    now = clock.now()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    since = min(midnight, now.timestamp() - _HOUR)
    for event in await asyncio.to_thread(_read, journal, since, now.timestamp()):
        announce(event)


def _read(journal: Path, since: float, until: float) -> list[Kept]:
    try:
        with JournalReader(journal) as reader:
            found: list[Kept] = [
                *reader.failed_attempts(since, until, _MOST),
                *reader.calls(since, until, _MOST),
                *reader.lane_changes(since),
                *reader.notes(since),
            ]
    except JournalError:
        return []  # whoever keeps the journal has said so; only the past is not shown
    return sorted(found, key=lambda event: event.at)
