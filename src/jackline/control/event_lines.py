"""The service's events as lines: text for people, JSON that can be parsed again for programs.

Rules: (1) pure; (2) a line of JSON names its schema and holds every field, so that parsing it gives
the same event; (3) no prompt, answer, key or token, since no event holds one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from jackline.control.text import until_text
from jackline.events import AttemptFailed, CallEnded, ClockMoved, LaneChanged, ServiceNoted
from jackline.failures.sentences import duration_in_words
from jackline.lane_id import LaneId

LoggedEvent: TypeAlias = CallEnded | AttemptFailed | LaneChanged | ServiceNoted

SCHEMA = "jackline.event/2"
_KINDS: Mapping[str, type[LoggedEvent]] = {
    "call_ended": CallEnded,
    "attempt_failed": AttemptFailed,
    "lane_changed": LaneChanged,
    "service_noted": ServiceNoted,
}
_NEWS_OF_CLOCK = 5.0
_NAMES = {kind: name for name, kind in _KINDS.items()}


def event_json(event: LoggedEvent) -> dict[str, Any]:
    """The event with its schema's name and all its fields."""
    fields = event._asdict() if isinstance(event, CallEnded) else asdict(event)
    if isinstance(lane := fields.get("lane"), LaneId):
        fields["lane"] = lane._asdict()
    return {"schema": SCHEMA, "event": _NAMES[type(event)], **fields}


def event_from(line: Mapping[str, Any]) -> LoggedEvent:
    """The event of a line of JSON; ValueError if it is none."""
    kind = _KINDS.get(str(line.get("event")))
    if line.get("schema") != SCHEMA or kind is None:
        raise ValueError(f"not a line of {SCHEMA}")
    fields = {name: value for name, value in line.items() if name not in ("schema", "event")}
    try:
        if fields.get("lane") is not None:
            fields["lane"] = LaneId(**fields["lane"])
        return kind(**fields)
    except TypeError as error:
        raise ValueError(f"not a line of {SCHEMA}: other fields than it has") from error


def event_text(event: LoggedEvent, now: datetime) -> str:
    """The event for a person, with the hour it happened at."""
    at = datetime.fromtimestamp(event.at, now.tzinfo)
    hour = f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S}"
    if isinstance(event, CallEnded):
        parts = [f"took {_seconds(event.took)}"]
        if event.waited >= 1.0:
            parts.append(f"held for {_seconds(event.waited)}")
        if event.attempts > 1:
            parts.append(f"{event.attempts} attempts")
        if event.input_tokens or event.output_tokens:
            parts.append(f"{event.input_tokens:,} in, {event.output_tokens:,} out")
        who = f", session {event.session[:8]}" if event.session else ""
        who += f", agent {event.agent}" if event.agent else ""
        lane = event.lane or event.model or "no lane"
        call = f"call {event.outcome.replace('_', ' ')}"
        return f"{hour} {lane}: {call}, {', '.join(parts)}{who} ({event.call})"
    if isinstance(event, ServiceNoted):
        return f"{hour} service {event.what}" + (f": {event.detail}" if event.detail else "")
    until = until_text(event.resets_at if isinstance(event, AttemptFailed) else event.until, now)
    until = f",{until}" if until else ""
    if isinstance(event, AttemptFailed):
        return f"{hour} {event.lane}: attempt failed, {event.why}{until} ({event.call})"
    return f"{hour} {event.lane} is {event.state}{until}{f'. {event.why}' if event.why else ''}"


def clock_notes(event: ClockMoved) -> list[ServiceNoted]:
    """What to note when the clock was set or the machine slept; corrections are no news."""
    notes = []
    if event.slept >= _NEWS_OF_CLOCK:
        text = f"the machine slept for {_whole_seconds(event.slept)}"
        notes.append(ServiceNoted(event.at, "woke up", text))
    if abs(event.set_by) >= _NEWS_OF_CLOCK:
        where = "forward" if event.set_by > 0 else "back"
        by = _whole_seconds(abs(event.set_by))
        text = f"the clock was set {where} by {by}: resets follow it"
        notes.append(ServiceNoted(event.at, "clock set", text))
    return notes


def _whole_seconds(seconds: float) -> str:
    return duration_in_words(timedelta(seconds=round(seconds)))


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else duration_in_words(timedelta(seconds=seconds))
