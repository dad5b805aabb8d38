"""Read a time that was given on the command line.

Laws: (1) a time without a zone is in the host's; (2) what cannot be read says how to write it.
Not here: times in error texts (failures/resets.py).
"""

from __future__ import annotations

from datetime import datetime

from jackline.clock import SystemClock
from jackline.errors import BadArgumentError


def moment_given(option: str | None, clock: SystemClock) -> datetime:
    """The time that `--now` names, or the clock's."""
    if option is None:
        return clock.now()
    try:
        moment = datetime.fromisoformat(option)
    except ValueError as error:
        raise BadArgumentError(
            f"--now {option!r} is not an ISO 8601 time",
            next="write it like 2026-11-15T09:00:00+02:00",
        ) from error
    return clock.in_host_zone(moment) if moment.tzinfo is None else moment
