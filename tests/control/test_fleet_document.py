"""The document that `top` is drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jackline.agents.prices import dollars
from jackline.control.board import MAX_AGENTS_LISTED, NO_FLOW_FACTS, Facts
from jackline.control.fleet import Fleet, LiveCall
from jackline.control.observatory import Burn
from jackline.lane_id import LaneId
from jackline.states import AgentState
from tests.telemetry.test_counters import ended

NOW = 1000.0
HEAD = {"verdict": "All is well.", "url": "http://x", "calls_in_flight": 1, "calls_waiting": 0}


def live(agent: str, doing: AgentState, until: float | None = None) -> LiveCall:
    return LiveCall("s", agent, "", "m", LaneId("a", "m", "1"), NOW - 5, doing, "because", until)


def facts(
    calls: Sequence[LiveCall] = (), fleet: Fleet | None = None, burn: Burn | None = None
) -> Facts:
    head = {**HEAD, "forecast": [], "notes": ()}
    return Facts(
        NOW, head, {}, calls, fleet or Fleet(), burn or Burn(dollars), 0.0, (), NO_FLOW_FACTS
    )


def read(given: Facts) -> dict[str, Any]:
    return dict(given.fleet_document())


def test_an_agent_is_reported_by_the_call_that_holds_it_up() -> None:
    shown = read(facts([live("a", AgentState.ANSWERING), live("a", AgentState.PARKED, NOW + 60.4)]))
    (row,) = shown["agents"]
    assert (row["state"], row["until"], row["why"]) == ("parked", 1061, "because")
    assert shown["agents_by_state"]["parked"] == 1


def test_looking_changes_nothing() -> None:
    fleet = Fleet()
    for number in range(3):
        fleet.call_ended(ended(number=number)._replace(at=NOW - 1))
    fleet.take_changed()
    known = fleet.known()
    read(facts([live("new", AgentState.QUEUED)], fleet))
    assert fleet.known() == known
    assert fleet.take_changed() == []


def test_of_a_large_fleet_those_are_listed_that_need_somebody_and_the_true_length() -> None:
    calls = [live(f"a{number}", AgentState.ANSWERING) for number in range(MAX_AGENTS_LISTED + 50)]
    shown = read(facts([*calls, live("stuck", AgentState.PARKED)]))
    assert len(shown["agents"]) == MAX_AGENTS_LISTED
    assert shown["more_agents"] == 51
    assert "stuck" in {row["agent"] for row in shown["agents"]}


def test_calls_without_a_session_belong_to_no_agent() -> None:
    nobody = LiveCall("", "", "", "m", LaneId("a", "m", "1"), NOW, AgentState.ANSWERING, "", None)
    assert read(facts([nobody]))["agents"] == []


def test_what_was_burned_is_reported() -> None:
    burn = Burn(lambda _model, _usage: 0.5)
    burn.calls_ended([ended()._replace(at=NOW)])
    spend = read(facts(burn=burn))["spend"]
    assert (spend["dollars_today"], spend["tokens_today"]) == (0.5, 20)
