"""The fleet's timeline holds what happened, is bounded, and has the reason of each wait."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jackline.control.board import Board, Facts
from jackline.control.fleet import MAX_AGENTS, QUIET_AFTER, Fleet, LiveCall
from jackline.control.observatory import Burn
from jackline.events import AttemptFailed, CallEnded, LaneChanged
from jackline.lane_id import LaneId
from jackline.states import AgentState


def ended(
    at: float,
    took: float,
    waited: float = 0.0,
    *,
    call: str = "c",
    outcome: str = "answered",
    agent: str | None = None,
    session: str = "s",
) -> CallEnded:
    return CallEnded(
        at, call, outcome, LaneId("anthropic", "opus"), "opus", session, agent, None, None, True,
        200, 1, waited, took, None, 10, 5, 0, 0,
    )  # fmt: skip


def failed(call: str, kind: str) -> AttemptFailed:
    return AttemptFailed(
        0.0, call, LaneId("anthropic", "opus"), kind, None, 429, None, 0.1, None, "the reason"
    )


HEAD = {"verdict": "", "url": "", "calls_in_flight": 0, "calls_waiting": 0, "forecast": []}


def facts(fleet: Fleet, now: float, live: tuple[LiveCall, ...] = ()) -> Facts:
    return Facts(now, HEAD, {}, live, fleet, Burn(lambda _model, _usage: None), 0.0)


def rows(fleet: Fleet, now: float, live: tuple[LiveCall, ...] = ()) -> list[dict[str, Any]]:
    agents: Any = facts(fleet, now, live).fleet_document()["agents"]
    return list(agents)


def timeline(
    fleet: Fleet, now: float, live: tuple[LiveCall, ...] = ()
) -> list[tuple[float, float, str]]:
    """Begin, end and state of each stretch of the only agent, as the page gets them."""
    change: Any = Board(0.0).update(facts(fleet, now, live))
    (row,) = change["agents"].values()
    flat = [number for each in change["stretches"].values() for number in each[1]]
    found = [flat[place : place + 3] for place in range(0, len(flat), 3)] + row["open"]
    states = list(AgentState)
    return [
        (begins / 10, now if ends is None else ends / 10, states[number].value)
        for begins, ends, number in found
    ]


def stretches(fleet: Fleet, now: float) -> list[tuple[str, float]]:
    found = timeline(fleet, now)
    return [(state, round(end - begin, 3)) for begin, end, state in found if end > begin]


def test_a_call_is_its_wait_and_its_answer() -> None:
    fleet = Fleet()
    fleet.attempt_failed(failed("c", "server_throttle"))
    fleet.call_ended(ended(100, took=30, waited=20))
    fleet.call_ended(ended(115, took=10))
    assert stretches(fleet, 120) == [
        ("throttled", 20),
        ("answering", 10),
        ("between calls", 5),
        ("answering", 10),
        ("between calls", 5),
    ]


def test_what_is_waited_for_is_reported_by_the_failure_before() -> None:
    for kind, state in (
        ("account_quota", "parked"),
        ("rate_limit", "throttled"),
        ("upstream_5xx", "upstream down"),
        ("network_edge", "upstream down"),
    ):
        fleet = Fleet()
        fleet.attempt_failed(failed("c", kind))
        fleet.call_ended(ended(100, took=30, waited=20))
        assert stretches(fleet, 100)[0] == (state, 20)
    fleet = Fleet()
    fleet.call_ended(ended(100, took=30, waited=20))
    assert stretches(fleet, 100)[0] == ("queued", 20)


def test_an_agent_that_was_refused_is_failed_and_says_why() -> None:
    fleet = Fleet()
    fleet.attempt_failed(failed("c", "invalid_request"))
    fleet.call_ended(ended(100, took=1, outcome="refused"))
    (row,) = rows(fleet, 101)
    assert (row["state"], row["why"], row["failed"]) == (AgentState.FAILED, "the reason", 1)


def test_a_call_under_way_shows_its_wait_and_until_when() -> None:
    fleet = Fleet()
    fleet.call_ended(ended(100, took=10))
    live = LiveCall(
        "s", "", "", "opus", LaneId("anthropic", "opus"), 105, AgentState.PARKED, "used up", 400.0
    )
    (row,) = rows(fleet, 120, (live,))
    assert (row["state"], row["why"], row["until"]) == (AgentState.PARKED, "used up", 400.0)
    assert timeline(fleet, 120, (live,))[-1] == (105, 120, "parked")


def test_who_is_long_silent_is_finished_and_leaves_when_out_of_sight() -> None:
    fleet = Fleet()
    fleet.call_ended(ended(100, took=10))
    (row,) = rows(fleet, 1500)
    assert row["state"] == AgentState.FINISHED
    assert rows(fleet, 9000) == []


def test_agents_of_a_session_are_listed_together_main_thread_first() -> None:
    fleet = Fleet()
    for session, agent in (("a", "x"), ("b", None), ("a", None), ("b", "y")):
        fleet.call_ended(ended(100, took=1, session=session, agent=agent))
    assert [(row["session"], row["agent"]) for row in rows(fleet, 101)] == [
        ("a", ""), ("a", "x"), ("b", ""), ("b", "y"),
    ]  # fmt: skip


def test_memory_is_bounded() -> None:
    fleet = Fleet()
    for number in range(MAX_AGENTS + 10):
        fleet.call_ended(ended(number, took=0.5, agent=str(number)))
    assert len(fleet) == MAX_AGENTS


@given(st.lists(st.tuples(st.floats(0.1, 50), st.floats(0, 60), st.floats(0.1, 100)), max_size=40))
def test_stretches_never_overlap_and_are_in_order(calls: list[tuple[float, float, float]]) -> None:
    fleet = Fleet()
    at = 0.0
    for took, waited, gap in calls:
        at += gap + took
        fleet.call_ended(ended(at, took=took, waited=min(waited, took)))
    for key in fleet.known():
        member = fleet.member(key)
        assert member is not None
        times = [moment for each in member.stretches for moment in (each.begins, each.ends)]
        assert times == sorted(times)
        assert times[-1:] <= [member.last_end]


def changed(at: float, state: str) -> LaneChanged:
    return LaneChanged(at, LaneId("anthropic", "opus"), state, "", None)


def test_a_call_that_was_never_sent_waited_for_its_lane() -> None:
    """Only the first call meets the wall; the others wait without an attempt of their own."""
    fleet = Fleet()
    fleet.lane_changed(changed(40, "parked"))
    fleet.lane_changed(changed(90, "recovering"))
    fleet.call_ended(ended(100, took=50, waited=45))
    assert stretches(fleet, 100)[0] == ("parked", 45)


def test_a_lane_that_opened_before_is_not_to_blame() -> None:
    fleet = Fleet()
    fleet.lane_changed(changed(10, "parked"))
    fleet.lane_changed(changed(20, "open"))
    fleet.call_ended(ended(100, took=50, waited=45))
    assert stretches(fleet, 100)[0] == ("queued", 45)


@given(
    st.lists(
        st.tuples(st.sampled_from(["called", "agent", "session"]), st.floats(1, 600)), min_size=1
    ),
    st.floats(0, 800),
)
def test_the_latest_news_of_an_agent_decides_and_silence_alone_ends_nobody_soon(
    news: list[tuple[str, float]], later: float
) -> None:
    fleet, at = Fleet(), 1000.0
    fleet.call_ended(ended(at, took=1, agent="a"))
    last, received = "called", at
    for what, pause in news:
        at += pause
        if what == "called":
            fleet.call_ended(ended(at, took=1, agent="a"))
            last, received = what, at
        else:
            fleet.ended("s", "a" if what == "agent" else None, at)
            last = what
    member = fleet.member(("s", "a"))
    assert member is not None
    now = received + later
    expected = AgentState.BETWEEN if now - received < QUIET_AFTER else AgentState.QUIET
    assert member.resting_state(now) is (expected if last == "called" else AgentState.FINISHED)


def test_who_failed_stays_failed_when_its_client_is_gone() -> None:
    fleet = Fleet()
    fleet.call_ended(ended(100, took=5, outcome="refused"))
    fleet.ended("s", None, 101)
    (row,) = rows(fleet, 102)
    assert row["state"] == AgentState.FAILED


def test_an_end_is_news_once_and_of_strangers_none() -> None:
    fleet = Fleet()
    fleet.call_ended(ended(100, took=5))
    fleet.take_changed()
    fleet.ended("s", None, 101)
    fleet.ended("s", None, 102)
    fleet.ended("nobody", "x", 103)
    assert fleet.take_changed() == [("s", "")]
    fleet.ended("s", None, 104)
    assert fleet.take_changed() == []
