"""The sentence that every face begins with says what waits, why, and until when."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jackline.control import LaneShown, Picture, verdict

NOW = datetime(2026, 11, 15, 20, 0, tzinfo=UTC)
TEN_PAST_TEN = datetime(2026, 11, 15, 22, 10, tzinfo=UTC).timestamp()
PARKED = "anthropic/m is parked"
COUNTS = "0 calls held and delivered, 0 passed on as failed."


def lane(state: str, until: float | None = None, waiting: int = 0) -> LaneShown:
    return LaneShown("anthropic/m", state, "", until, 0, 4, waiting, {})


def picture(
    *lanes: LaneShown, running: int = 0, waiting: int = 0, problem: str = "", **counts: int
) -> Picture:
    return Picture(
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
        (picture(), f"Nothing is under way. {COUNTS}"),
        (picture(lane("open"), running=1), f"1 call running, none waiting. {COUNTS}"),
        (picture(running=2000, waiting=1), f"2,000 calls running, 1 waiting. {COUNTS}"),
        (
            picture(lane("parked", TEN_PAST_TEN), waiting=97),
            f"0 calls running, 97 waiting. {PARKED} until 22:10 UTC (in 2 h 10 min). {COUNTS}",
        ),
        (
            picture(lane("parked")),
            f"Nothing is under way. {PARKED}; when it comes back is not known. {COUNTS}",
        ),
        (
            picture(lane("limited", waiting=3), running=1, waiting=3),
            f"1 call running, 3 waiting. anthropic/m asked to slow down. {COUNTS}",
        ),
        (picture(lane("limited")), f"Nothing is under way. {COUNTS}"),
        (
            picture(delivered=1, refused=2, broken=1),
            "Nothing is under way. 1 call held and delivered, 3 passed on as failed.",
        ),
        (
            picture(problem="the disk is full"),
            f"Nothing is under way. {COUNTS} The journal is not written: the disk is full.",
        ),
    ],
)
def test_the_verdict_says_how_it_stands(shown: Picture, sentence: str) -> None:
    assert verdict(shown, NOW) == sentence


def test_a_moment_that_has_passed_is_not_told_as_a_negative_time() -> None:
    shown = picture(lane("broken", NOW.timestamp() - 5))
    assert "-" not in verdict(shown, NOW)


def down(name: str, kind: str = "network_edge", sub: str = "refused") -> LaneShown:
    return LaneShown(f"{name}/m", "broken", "", None, 0, 4, 1, {}, (kind, sub))


@pytest.mark.parametrize(
    ("lanes", "is_the_network"),
    [
        ([down("one"), down("two", sub="connect_timeout")], True),
        ([down("one", sub="dns")], True),
        ([down("one", sub="tls")], True),
        ([down("one")], False),
        ([down("one"), down("two", kind="upstream_5xx", sub="500")], False),
        ([down("one"), down("two"), lane("limited")], False),
        ([lane("open")], False),
        ([], False),
    ],
)
def test_the_network_is_named_only_when_nothing_else_has_failed(
    lanes: list[LaneShown], is_the_network: bool
) -> None:
    told = verdict(picture(*lanes, waiting=1), NOW)
    assert ("Your own network" in told) is is_the_network
