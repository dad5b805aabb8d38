"""The sentence that every face begins with says what waits, why, and until when."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jackline.control import GatewayStatus, LaneStatus
from jackline.control.needs import About, Need
from jackline.control.status import AgentCounts
from jackline.states import AgentState

NOW = datetime(2026, 11, 15, 20, 0, tzinfo=UTC)
TEN_PAST_TEN = datetime(2026, 11, 15, 22, 10, tzinfo=UTC).timestamp()
PARKED = "anthropic/m is parked"
UNTIL_TEN = f"{PARKED} until 22:10 UTC (in 2 h 10 min)."
CALM = "Nothing needs you."
COUNTS = "0 calls held and delivered, 0 passed on as failed."


def lane(
    state: str, until: float | None = None, waiting: int = 0, *, paused: bool = False
) -> LaneStatus:
    return LaneStatus(
        "anthropic/m", state, "", until, 0, 4, waiting, {}, paused=paused, upstream="anthropic"
    )


def picture(
    *lanes: LaneStatus, running: int = 0, waiting: int = 0, problem: str = "", **counts: int
) -> GatewayStatus:
    return GatewayStatus(
        at=NOW.timestamp(),
        version="0",
        url="",
        upstream="",
        started=0.0,
        lanes=lanes,
        waiting=(),
        calls_waiting=waiting,
        calls_in_flight=running,
        connections=0,
        outcomes={name: value for name, value in counts.items() if name != "delivered"},
        held_and_delivered=counts.get("delivered", 0),
        joined=0,
        input_tokens=0,
        output_tokens=0,
        journal_ok=not problem,
        journal_problem=problem,
    )


@pytest.mark.parametrize(
    ("shown", "sentence"),
    [
        (picture(), f"Nothing is under way. {CALM} {COUNTS}"),
        (picture(lane("open"), running=1), f"1 call running, none waiting. {CALM} {COUNTS}"),
        (picture(running=2000, waiting=1), f"2,000 calls running, 1 waiting. {CALM} {COUNTS}"),
        (
            picture(lane("parked", TEN_PAST_TEN), waiting=97),
            f"0 calls running, 97 waiting. {CALM} {UNTIL_TEN} {COUNTS}",
        ),
        (
            picture(lane("parked")),
            f"Nothing is under way. {CALM} {PARKED}; when it comes back is not known. {COUNTS}",
        ),
        *(
            (
                picture(lane(state, paused=True)),
                f"Nothing is under way. {CALM} anthropic/m is paused by hand. {COUNTS}",
            )
            for state in ("parked", "down")
        ),
        (
            picture(lane("parked", NOW.timestamp())),
            (
                f"Nothing is under way. {CALM} {PARKED}; it is tried again with the next call."
                f" {COUNTS}"
            ),
        ),
        (
            picture(lane("throttled", waiting=3), running=1, waiting=3),
            f"1 call running, 3 waiting. {CALM} anthropic/m asked to slow down. {COUNTS}",
        ),
        (picture(lane("throttled")), f"Nothing is under way. {CALM} {COUNTS}"),
        (
            picture(delivered=1, refused=2, broken=1),
            f"Nothing is under way. {CALM} 1 call held and delivered, 3 passed on as failed.",
        ),
        (
            picture(problem="the disk is full"),
            f"Nothing is under way. {CALM} {COUNTS} The journal is not written: the disk is full.",
        ),
    ],
)
def test_the_verdict_says_how_it_stands(shown: GatewayStatus, sentence: str) -> None:
    assert shown.verdict(NOW) == sentence


NINE = AgentCounts(
    20, {AgentState.PARKED: 9}, {AgentState.PARKED: (TEN_PAST_TEN, TEN_PAST_TEN + 30)}
)


@pytest.mark.parametrize(
    ("crew", "sentence"),
    [
        (AgentCounts(answering=1), "1 of 1 agent answering."),
        (AgentCounts(answering=3, quiet=2), "3 of 5 agents answering, 2 quiet."),
        (AgentCounts(between=1), "0 of 1 agent answering, 1 between calls."),
        (
            AgentCounts(2, between=1, failed=1),
            "2 of 4 agents answering, 1 between calls, 1 failed.",
        ),
        (NINE, "20 of 29 agents answering, 9 parked until 22:10 UTC (in 2 h 10 min)."),
        (
            AgentCounts(
                0, {AgentState.PARKED: 2}, {AgentState.PARKED: (TEN_PAST_TEN, TEN_PAST_TEN + 9000)}
            ),
            "0 of 2 agents answering, 2 parked, the first until 22:10 UTC (in 2 h 10 min).",
        ),
        (
            AgentCounts(
                0, {AgentState.PARKED: 2}, {AgentState.PARKED: (NOW.timestamp(), TEN_PAST_TEN)}
            ),
            "0 of 2 agents answering, 2 parked, about to go on.",
        ),
        (
            AgentCounts(
                4, {AgentState.QUEUED: 1, AgentState.THROTTLED: 2, AgentState.DOWN: 3}, failed=1
            ),
            "4 of 11 agents answering, 3 upstream down, 2 throttled, 1 queued, 1 failed.",
        ),
        (AgentCounts(quiet=3), "Nothing is under way."),
    ],
)
def test_the_verdict_begins_with_who_works_and_who_waits(crew: AgentCounts, sentence: str) -> None:
    assert picture().verdict(NOW, crew) == f"{sentence} {CALM} {COUNTS}"


@pytest.mark.parametrize(
    ("needs", "sentence"),
    [
        ([], "Nothing needs you."),
        (["many (9f3c) is parked"], "1 needs you: many (9f3c) is parked."),
        (["a", "b", "c", "d", "e"], "5 need you: a; b; c; and 2 more."),
    ],
)
def test_whether_anything_needs_a_person_is_always_said(needs: list[str], sentence: str) -> None:
    assert f" {sentence} " in picture().verdict(
        NOW, NINE, [Need(About.RUN, text, text) for text in needs]
    )


def wall(name: str, until: float) -> LaneStatus:
    return LaneStatus(f"one/{name}", "parked", "", until, 0, 4, 1, {}, upstream="one")


def test_one_wall_has_one_clock_and_one_countdown() -> None:
    """Lanes of one account share a reset, and agents of runs wake a moment after it."""
    lanes = [wall(name, TEN_PAST_TEN + 1) for name in ("opus", "sonnet", "haiku")]
    shown = picture(*lanes, wall("fable", TEN_PAST_TEN + 3600))
    crew = AgentCounts(
        1, {AgentState.PARKED: 9}, {AgentState.PARKED: (TEN_PAST_TEN + 2, TEN_PAST_TEN + 30)}
    )
    assert shown.verdict(NOW, crew).startswith(
        "1 of 10 agents answering, 9 parked until 22:10:01 UTC (in 2 h 10 min). Nothing needs you."
        " one/opus, one/sonnet and one/haiku are parked until then."
        " one/fable is parked until 23:10 UTC (in 3 h 10 min)."
    )
    assert "one/opus, one/sonnet and one/haiku are parked until 22:10:01 UTC (in 2 h 10 min)." in (
        shown.verdict(NOW)
    )


def test_a_moment_that_has_passed_is_not_told_as_a_negative_time() -> None:
    shown = picture(lane("down", NOW.timestamp() - 5))
    assert "-" not in shown.verdict(NOW)


def down(name: str, kind: str = "network_edge", sub: str = "refused") -> LaneStatus:
    return LaneStatus(f"{name}/m", "down", "", None, 0, 4, 1, {}, (kind, sub), upstream=name)


@pytest.mark.parametrize(
    ("lanes", "is_the_network"),
    [
        ([down("one"), down("two", sub="connect_timeout")], True),
        ([down("one", sub="dns")], True),
        ([down("one", sub="tls")], True),
        ([down("one")], False),
        ([down("one"), down("two", kind="upstream_5xx", sub="500")], False),
        ([down("one"), down("two"), lane("throttled")], False),
        ([lane("open")], False),
        ([], False),
    ],
)
def test_the_network_is_named_only_when_nothing_else_has_failed(
    lanes: list[LaneStatus], is_the_network: bool
) -> None:
    told = picture(*lanes, waiting=1).verdict(NOW)
    assert ("Your own network" in told) is is_the_network
