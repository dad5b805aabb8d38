"""Events as lines: readable, and read back as the same events."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.control.event_lines import LoggedEvent, event_from, event_json, event_text
from jackline.events import AttemptFailed, CallEnded, LaneChanged, ServiceNoted
from jackline.lane_id import LaneId

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
AT = NOW.timestamp()

EVENTS = st.one_of(
    st.builds(CallEnded),
    st.builds(AttemptFailed),
    st.builds(LaneChanged),
    st.builds(ServiceNoted),
)


@given(EVENTS)
def test_a_line_of_json_is_read_back_as_the_same_event(event: LoggedEvent) -> None:
    line = json.dumps(event_json(event))
    back = event_from(json.loads(line))
    assert type(back) is type(event)
    assert json.dumps(event_json(back)) == line


def test_every_line_names_its_schema_and_holds_every_field() -> None:
    shown = event_json(LaneChanged(AT, LaneId("a", "m", "1"), "parked", "why", None))
    assert shown["schema"] == "jackline.event/2"
    assert shown["event"] == "lane_changed"
    assert {field.name for field in fields(LaneChanged)} <= shown.keys()


@pytest.mark.parametrize(
    "shown",
    [
        {},
        {"schema": "jackline.event/2", "event": "unheard_of"},
        {"schema": "jackline.event/1", "event": "service_noted", "at": 1.0, "what": "x"},
        {"schema": "jackline.event/3", "event": "service_noted", "at": 1.0, "what": "x"},
        {"schema": "jackline.event/2", "event": "service_noted", "other": 1},
    ],
)
def test_what_is_no_such_line_is_refused(shown: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a line of"):
        event_from(shown)


def test_texts_name_the_lane_without_the_account_and_say_until_when() -> None:
    changed = LaneChanged(
        AT, LaneId("a", "m", "f1"), "parked", "a/m has used up its quota", AT + 780
    )
    assert event_text(changed, NOW) == (
        "12:00:00 a/m is parked, until 12:13 UTC. a/m has used up its quota"
    )
    failed = AttemptFailed(
        AT, "c1", LaneId("a", "m", "f1"), "overloaded", None, 529, None, 1.0, None, "overloaded"
    )
    assert event_text(failed, NOW) == "12:00:00 a/m: attempt failed, overloaded (c1)"
    noted = ServiceNoted(AT - 86400, "started", "http://x")
    assert event_text(noted, NOW) == "2026-11-14 12:00:00 service started: http://x"
