"""Look up what the gateway's journal knows of sessions whose transcripts were read.

Rules: (1) a machine without a gateway has no journal, and that is nothing to speak of; one that
cannot be read is told on stderr, and the answer goes on without it; (2) bounded: so many calls are
looked at, the latest first.
Not here: what they mean (autopsy/lapsed_waits.py).
"""

from __future__ import annotations

from datetime import datetime

import click

from jackline.agents.prices import cache_prices
from jackline.assembly import StateDir
from jackline.autopsy.lapsed_waits import LapsedWait, lapsed_waits
from jackline.autopsy.story import Evidence
from jackline.cli.gateway_flags import service_place
from jackline.errors import JournalError
from jackline.journal import JournalReader

_MOST_CALLS = 50_000
# A call is journalled when it has ended, which may be after its transcript's last line.
_LATER = 3600.0


def waits_of(evidence: Evidence, now: datetime) -> list[LapsedWait]:
    """The calls of these sessions that waited until their prompt caches had lapsed."""
    sessions = {story.session_id for story in evidence.stories if story.session_id}
    journal = StateDir(service_place({}).state_dir).journal
    if not sessions or not journal.exists():
        return []
    began = [story.started_at for story in evidence.stories if story.started_at is not None]
    ended = [story.ended_at for story in evidence.stories if story.ended_at is not None]
    since = min(began, default=now).timestamp()
    until = max(ended, default=now).timestamp() + _LATER
    try:
        with JournalReader(journal) as reader:
            calls = reader.calls(since, until, _MOST_CALLS)
    except JournalError as error:
        click.echo(f"warning: {error}", err=True)
        return []
    return lapsed_waits((call for call in calls if call.session in sessions), cache_prices)
