"""`jackline resources` says of everything that is held since when, by whom, and what went wrong."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from jackline.cli.run_text import resource_line
from jackline.flows.records import ResourceRecord, ResourceState

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
TAKEN = (NOW - timedelta(hours=1)).timestamp()
HELD = ResourceRecord("r1", "vast.ai/1", "t-7", "give-back", False, None, ResourceState.HELD, TAKEN)


def test_a_line_names_the_agent_or_the_run_that_holds_it() -> None:
    assert resource_line(HELD, NOW) == "vast.ai/1  held for 1 h by agent t-7 of run r1"
    assert resource_line(replace(HELD, task_id=""), NOW) == "vast.ai/1  held for 1 h by run r1"


def test_a_line_shows_the_end_of_the_lease_and_the_trouble_with_the_release() -> None:
    ends = (NOW + timedelta(hours=2)).timestamp()
    failed = replace(HELD, lease_until=ends, state=ResourceState.FAILED, trouble="exit 1")
    reported = resource_line(failed, NOW)
    assert "lease ends 14:00 UTC" in reported
    assert reported.endswith("its release failed: exit 1 (jackline logs r1)")
