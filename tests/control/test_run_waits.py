"""A run shows what its agents wait for in the gateway, in the words of `jackline status`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jackline.control.run_view import (
    GATEWAY_GONE,
    UNDER_WAY,
    WAITING,
    GatewayWaits,
    RunView,
    WaitLines,
)
from jackline.flows.run_events import AT_WALL, AgentBegan, AgentWaits
from jackline.states import AgentState

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
LANE = "anthropic/opus"
IS_DOWN = f"{LANE} is down; it is tried again with one call"
SOON = NOW.timestamp() + 8


def run_of(count: int) -> RunView:
    view = RunView()
    for number in range(count):
        task = f"t-{number}"
        view.apply(AgentBegan(NOW.timestamp(), task, f"part {number}", "", "messages", None, 1))
    view.state = "running"
    return view


def waits(*calls: tuple[int, str], needs: tuple[str, ...] = ()) -> dict[str, Any]:
    """The gateway's document: the number of each agent, and its state."""
    agents = {f"t-{number}": [state, LANE, IS_DOWN, SOON] for number, state in calls}
    return {"agents": agents, "needs": list(needs)}


def seen(view: RunView, *calls: tuple[int, str], needs: tuple[str, ...] = ()) -> RunView:
    view.observe(GatewayWaits.from_json(waits(*calls, needs=needs)))
    return view


def test_agents_whose_upstream_is_down_are_not_called_working() -> None:
    view = run_of(6)
    assert view.sentence(NOW) == "Running: 6 under way, 0 ok."
    seen(view, *((number, "upstream down") for number in range(6)))
    assert view.sentence(NOW) == "Running: 0 answering, 6 upstream down, 0 ok."
    assert [(stand.why, count) for stand, count in view.held()] == [(IS_DOWN, 6)]


@pytest.mark.parametrize("state", list(AgentState))
def test_each_state_that_a_gateway_names_is_the_agents_own(state: AgentState) -> None:
    view = seen(run_of(1), (0, state.value))
    assert view.stand("t-0").state == state
    assert f"1 {state}" in view.sentence(NOW) or state in (
        AgentState.FAILED,
        AgentState.FINISHED,
        AgentState.QUIET,
    )


def test_who_has_no_call_is_between_calls_and_without_a_gateway_nothing_is_claimed() -> None:
    view = seen(run_of(2), (0, "answering"))
    assert view.sentence(NOW) == "Running: 1 answering, 1 between calls, 0 ok."
    view.observe(None)
    assert view.is_gateway_gone
    assert view.stand("t-0").state == UNDER_WAY


def test_what_the_run_itself_holds_back_is_said_by_the_run() -> None:
    view = seen(run_of(2), (0, "answering"), (1, "answering"))
    view.apply(AgentWaits(NOW.timestamp(), "t-0", "part 0", AT_WALL, SOON))
    view.apply(AgentWaits(NOW.timestamp(), "t-1", "part 1", "the budget", None))
    assert [view.stand(task).state for task in view.agents] == [AgentState.PARKED, WAITING]


def test_a_wait_is_a_line_when_it_begins_and_when_it_is_over_once_each() -> None:
    view, log = run_of(3), WaitLines()
    down = [(number, "upstream down") for number in range(3)]
    first = log.of(seen(view, *down, needs=("sign in again",)), NOW)
    assert first == [
        f"3 agents wait, upstream down until 12:00:08 UTC: {IS_DOWN}",
        "needs you: sign in again",
    ]
    for second in (1, 5, 9):
        later = NOW + timedelta(seconds=second)
        # One of them is tried now and then.
        assert log.of(seen(view, *down[: second % 3], needs=("sign in again",)), later) == []
    up = [(number, "answering") for number in range(3)]
    assert log.of(seen(view, *up), NOW + timedelta(seconds=12)) == []
    assert log.of(seen(view, *up), NOW + timedelta(seconds=30)) == [
        f"no agent waits for {LANE} any more (upstream down before)"
    ]
    assert log.of(seen(view, *up), NOW + timedelta(seconds=60)) == []
    assert log.of(seen(view, down[0]), NOW + timedelta(seconds=61))[0].startswith("1 agent waits,")


def test_to_wait_for_a_slot_is_no_news() -> None:
    assert WaitLines().of(seen(run_of(1), (0, "queued")), NOW) == []


def test_a_gateway_that_goes_is_reported_once_and_so_is_its_return() -> None:
    view, log = run_of(1), WaitLines()
    view.observe(None)
    assert log.of(view, NOW) == []  # it was never there: its start is reported elsewhere
    assert log.of(seen(view, (0, "answering")), NOW) == []
    view.observe(None)
    assert log.of(view, NOW) == [GATEWAY_GONE]
    view.observe(None)
    assert log.of(view, NOW) == []
    assert log.of(seen(view, (0, "answering")), NOW) == ["the gateway answers again"]


@pytest.mark.parametrize(
    "document",
    [
        None,
        {},
        {"agents": [], "needs": []},
        {"agents": {"t": ["no such state", "", "", None]}, "needs": []},
        {"agents": {"t": ["queued", "", "", "soon"]}, "needs": []},
    ],
)
def test_a_document_of_another_version_says_nothing(document: dict[str, object] | None) -> None:
    assert GatewayWaits.from_json(document) is None
