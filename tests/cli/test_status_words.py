"""`status` calls agents by their names, and prints a reason once for all calls that wait for it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from jackline.cli.status import lane_line, waiting_lines

PARKED = "anthropic/opus is parked: its limit is used up"
UNTIL = 1_794_744_000.0


def waiting(label: str = "", **more: Any) -> dict[str, object]:
    call: dict[str, object] = {
        "call": "jl_1",
        "session": "0436f401-33df-4ee6",
        "agent": "a23b55",
        "model": "opus",
        "lane": "anthropic/opus",
        "why": PARKED,
        "until": UNTIL,
        "since": UNTIL,
        "label": label,
    }
    return call | more


def lines(
    *calls: dict[str, object], count: int | None = None, said: str = "", at: float = UNTIL - 60
) -> list[str]:
    reported: dict[str, object] = {
        "waiting": list(calls),
        "calls_waiting": len(calls) if count is None else count,
        "lanes": [{"why": said}],
        "at": at,
    }
    return list(waiting_lines(reported))


def test_a_reason_that_many_share_is_printed_once() -> None:
    reported = lines(*(waiting(f"ship {number}") for number in range(10)))
    assert sum(PARKED in line for line in reported) == 1
    assert reported[0] == "\nwaiting, 10 calls:"
    assert [line.split(" (")[0].strip() for line in reported[2:]] == [
        f"ship {n}" for n in range(10)
    ]


def test_what_the_line_of_the_lane_has_shown_is_not_repeated() -> None:
    reported = lines(waiting("one"), said=PARKED)
    assert reported[0] == "\nwaiting, 1 call:"
    assert reported[1].startswith("  for anthropic/opus, until ")
    assert PARKED not in " ".join(reported)


@pytest.mark.parametrize("ago", [0, 0.2, 3600])
def test_an_hour_that_has_passed_is_not_shown_as_one_to_wait_for(ago: float) -> None:
    reported = lines(waiting("one"), said=PARKED, at=UNTIL + ago)
    assert reported[1] == "  for anthropic/opus, about to go on:"
    why = "anthropic/opus is down; it is tried again with one call"
    figures = {"in_flight": 0, "window": 4, "waiting": 0, "limits": {}}
    row = {"name": "anthropic/opus", "state": "down", "why": why, "until": UNTIL, **figures}
    before, after = (
        lane_line(row, datetime.fromtimestamp(at, UTC)) for at in (UNTIL - 60, UNTIL + ago)
    )
    assert before.endswith(f"{why}, until 12:00 UTC")
    assert after.endswith(why)


def test_each_reason_has_its_own_list() -> None:
    queued = {"why": "anthropic/opus carries 1 call, its limit for now", "until": None}
    reported = lines(waiting("one"), waiting("two", **queued), waiting("three"))
    assert [line.split(" (")[0] for line in reported if line.startswith("    ")] == [
        "    one",
        "    three",
        "    two",
    ]
    assert "  for anthropic/opus: anthropic/opus carries 1 call, its limit for now:" in reported


def test_who_has_no_name_is_shown_by_session_and_agent_or_by_the_call() -> None:
    reported = lines(waiting(), waiting(agent=None), waiting(agent=None, session=None))
    assert [line.split(" (")[0].strip() for line in reported[2:]] == [
        "session 0436f401, agent a23b55",
        "session 0436f401",
        "jl_1",
    ]


def test_of_many_the_rest_is_counted() -> None:
    reported = lines(*(waiting(f"{number}") for number in range(200)), count=5000)
    assert sum(line.startswith("    ") for line in reported) == 20
    assert reported[-1] == "  and 4,980 more; --json shows 200 of them"
    assert lines() == []


def test_where_a_cache_decides_the_order_the_reason_is_reported_beside_the_call() -> None:
    lapsed = {"rank": "lapsed", "cached_tokens": 9, "why": "it lost its cache of 9 tokens"}
    plain = {"rank": "normal", "cached_tokens": 0, "why": "the most urgent goes first"}
    reported = lines(
        waiting("one", turn=lapsed), waiting("two", turn=plain), waiting("three", turn=None)
    )
    one, two, three = (line for line in reported if line.startswith("    "))
    assert one.endswith("; it lost its cache of 9 tokens")
    assert "urgent" not in two
    assert ";" not in three
