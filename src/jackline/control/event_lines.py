"""The service's events as lines: words for people, JSON that can be parsed again for programs.

Rules: (1) pure; (2) a line of JSON names its schema and holds every field, so that parsing it gives
the same event; (3) no prompt, answer, key or token, since no event holds one.
Not here: where events are saved (journal/), which are printed (cli/journal_views.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from jackline.control.board import lane_label
from jackline.control.text import whole_second
from jackline.events import AttemptFailed, CallEnded, LaneChanged, ServiceNoted
from jackline.failures.sentences import duration_in_words, moment_in_words

LoggedEvent: TypeAlias = CallEnded | AttemptFailed | LaneChanged | ServiceNoted

SCHEMA = "jackline.event/1"
_KINDS: Mapping[str, type[LoggedEvent]] = {
    "call_ended": CallEnded,
    "attempt_failed": AttemptFailed,
    "lane_changed": LaneChanged,
    "service_noted": ServiceNoted,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_WORTH_TELLING = 1.0


def event_json(event: LoggedEvent) -> dict[str, Any]:
    """The event with its schema's name and all its fields."""
    fields = event._asdict() if isinstance(event, CallEnded) else asdict(event)
    return {"schema": SCHEMA, "event": _NAMES[type(event)], **fields}


def event_from(told: Mapping[str, Any]) -> LoggedEvent:
    """The event that a line tells of; ValueError if it is none."""
    kind = _KINDS.get(str(told.get("event")))
    if told.get("schema") != SCHEMA or kind is None:
        raise ValueError(f"not a line of {SCHEMA}")
    fields = {name: value for name, value in told.items() if name not in ("schema", "event")}
    try:
        return kind(**fields)
    except TypeError as error:
        raise ValueError(f"not a line of {SCHEMA}: other fields than it has") from error


def event_words(event: LoggedEvent, now: datetime) -> str:
    """The event for a person, with the hour it happened at."""
    at = datetime.fromtimestamp(event.at, now.tzinfo)
    hour = f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S}"
    return f"{hour} {_words(event, now)}"


def _words(event: LoggedEvent, now: datetime) -> str:
    match event:
        case CallEnded():
            return _call(event)
        case AttemptFailed():
            resets = _until(event.resets_at, now)
            return f"{lane_label(event.lane)}: attempt failed, {event.why}{resets} ({event.call})"
        case LaneChanged():
            name = lane_label(event.lane)
            why = event.why.replace(event.lane, name)
            return f"{name} is {event.state}{_until(event.until, now)}{f'. {why}' if why else ''}"
        case ServiceNoted():
            return f"service {event.what}" + (f": {event.detail}" if event.detail else "")


def _call(event: CallEnded) -> str:
    parts = [f"took {_span(event.took)}"]
    if event.waited >= _WORTH_TELLING:
        parts.append(f"held for {_span(event.waited)}")
    if event.attempts > 1:
        parts.append(f"{event.attempts} attempts")
    if event.input_tokens or event.output_tokens:
        parts.append(f"{event.input_tokens:,} in, {event.output_tokens:,} out")
    who = f", session {event.session[:8]}" if event.session else ""
    who += f", agent {event.agent}" if event.agent else ""
    lane = lane_label(event.lane) or event.model or "no lane"
    return f"{lane}: call {event.outcome.replace('_', ' ')}, {', '.join(parts)}{who} ({event.call})"


def _span(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else duration_in_words(timedelta(seconds=seconds))


def _until(until: float | None, now: datetime) -> str:
    if until is None:
        return ""
    return (
        f", until {moment_in_words(datetime.fromtimestamp(whole_second(until), now.tzinfo), now)}"
    )
