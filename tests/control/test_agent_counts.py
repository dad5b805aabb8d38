"""Agents are counted once, by what they do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jackline.control.fleet import QUIET_AFTER, WAITS, Fleet, LiveCall
from jackline.control.status import AgentCounts
from jackline.events import CallEnded
from jackline.lane_id import LaneId
from jackline.states import AgentState

NOW = 1_794_744_000.0


def ended(session: str, agent: str, ago: float, outcome: str = "answered") -> CallEnded:
    return CallEnded(
        NOW - ago, f"{session}{agent}{ago}", outcome, LaneId("anthropic", "m", "1"), "m", session,
        agent, None, None, True, 200, 1, 0.0, 1.0, None, 1, 1, 0, 0,
    )  # fmt: skip


def live(agent: str, doing: AgentState, until: float | None = None) -> LiveCall:
    return LiveCall("s", agent, "", "m", LaneId("anthropic", "m", "1"), NOW - 5, doing, "", until)


def test_who_is_answered_waits_failed_or_is_alone_is_distinguished() -> None:
    fleet = Fleet()
    for event in (
        ended("s", "between", 10),
        ended("s", "quiet", QUIET_AFTER + 1),
        ended("s", "gone", 2000),
        ended("s", "lost", 10, "refused"),
        ended("s", "done", 10),
        ended("s", "parked", 30),
    ):
        fleet.call_ended(event)
    calls = [
        live("parked", AgentState.PARKED, NOW + 60),
        live("other", AgentState.PARKED, NOW + 600),
    ]
    calls += [live("new", AgentState.ANSWERING), live("queue", AgentState.QUEUED)]
    crew = AgentCounts.of(calls, fleet, {"done": AgentState.FINISHED}, NOW)
    assert (crew.answering, crew.failed, crew.between, crew.quiet) == (1, 1, 1, 1)
    assert crew.waiting == {AgentState.PARKED: 2, AgentState.QUEUED: 1}
    assert crew.until == {AgentState.PARKED: (NOW + 60, NOW + 600)}
    assert (crew.present, crew.held, crew.total) == (5, 3, 7)


def test_an_agent_with_several_calls_is_one_and_the_call_that_waits_is_what_holds_it_up() -> None:
    calls = [
        live("a", AgentState.ANSWERING),
        live("a", AgentState.THROTTLED),
        live("a", AgentState.ANSWERING),
    ]
    crew = AgentCounts.of(calls, Fleet(), {}, NOW)
    assert (crew.answering, crew.waiting, crew.total) == (0, {AgentState.THROTTLED: 1}, 1)


def test_calls_without_a_session_are_no_agents() -> None:
    call = live("", AgentState.ANSWERING)._replace(session="")
    assert AgentCounts.of([call], Fleet(), {}, NOW).total == 0


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from([AgentState.ANSWERING, *WAITS]))),
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.floats(0, 3000), st.booleans())),
)
def test_nobody_is_counted_twice(
    calls: list[tuple[str, AgentState]], past: list[tuple[str, float, bool]]
) -> None:
    fleet = Fleet()
    for agent, ago, lost in sorted(past, key=lambda each: -each[1]):
        fleet.call_ended(ended("s", agent, ago, "refused" if lost else "answered"))
    crew = AgentCounts.of([live(*each) for each in calls], fleet, {}, NOW)
    assert crew.total <= len({agent for agent, _ in calls} | {agent for agent, _, _ in past})
    assert crew.present >= len({agent for agent, _ in calls})
