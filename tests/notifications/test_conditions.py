"""Conditions that a person should know of."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from jackline.control.board import NO_FLOW_FACTS, Facts
from jackline.control.burn import Burn
from jackline.control.fleet import Fleet
from jackline.control.observatory import LaneCounters
from jackline.notifications.incidents import ConditionFinder
from jackline.notifications.settings import IncidentKind

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def counted(upstream: str, **counts: dict[str, int]) -> LaneCounters:
    lane = LaneCounters(upstream)
    for name, values in counts.items():
        setattr(lane, name, values)
    return lane


def lane(name: str, state: str = "open", **more: Any) -> dict[str, Any]:
    place = name.partition("/")[0]
    row = {"name": name, "state": state, "until": None, "waiting": 0, "cause": None}
    return {**row, "upstream": place, "account": "abc", **more}


def run(state: str, **more: Any) -> dict[str, Any]:
    row = {"run": "r1", "flow": "many", "state": state, "why": "", "wake_at": None, "cost": 1.5}
    return {**row, "tokens": 100, "done": 4, "failed": 0, "budget": None, **more}


def facts(
    lanes: dict[str, Any] | None = None,
    runs: dict[str, Any] | None = None,
    forecast: list[dict[str, Any]] | None = None,
) -> Facts:
    head = {"upstreams": ["anthropic", "bedrock"], "forecast": forecast or []}
    flows = replace(NO_FLOW_FACTS, runs=runs or {})
    burn = Burn(lambda _model, _usage: None)
    return Facts(NOW.timestamp(), head, lanes or {}, [], Fleet(), burn, 0.0, flows=flows)


def test_all_lanes_of_one_account_are_one_incident_with_its_hour_and_who_waits() -> None:
    until = NOW.timestamp() + 780
    lanes = {
        f"anthropic/{model}#abc": lane(f"anthropic/{model}", "parked", until=until, waiting=3)
        for model in ("opus", "haiku")
    }
    found = ConditionFinder().look(facts(lanes), {}, NOW)
    assert [(each.about, each.key) for each in found] == [(IncidentKind.PARKED, "anthropic abc")]
    assert "until 12:13 UTC" in found[0].text
    assert "6 calls wait" in found[0].text


def test_two_accounts_are_two_incidents() -> None:
    lanes = {account: lane("a/m", "parked", account=account) for account in ("1", "2")}
    assert len(ConditionFinder().look(facts(lanes), {}, NOW)) == 2


def test_an_unpaid_bill_needs_a_person() -> None:
    lanes = {"a/m#1": lane("a/m", "parked", cause=("billing", None))}
    assert [e.about for e in ConditionFinder().look(facts(lanes), {}, NOW)] == [
        IncidentKind.NEEDS_YOU
    ]


def test_a_refused_key_needs_a_person_and_old_refusals_are_no_news() -> None:
    noticing, tally = ConditionFinder(), {"a/m": counted("a", failures={"auth": 1})}
    assert [e.about for e in noticing.look(facts(), tally, NOW)] == [IncidentKind.NEEDS_YOU]
    assert noticing.look(facts(), tally, NOW) == []


def test_calls_that_another_upstream_answers_while_the_first_is_closed_have_moved() -> None:
    noticing = ConditionFinder()
    tally = {"bedrock/m": counted("bedrock", outcomes={"answered": 2})}
    down = {"anthropic/m#1": lane("anthropic/m", "down")}
    found = noticing.look(facts(down), tally, NOW)
    assert [each.about for each in found] == [IncidentKind.UPSTREAM_MOVED]
    assert found[0].text == "Calls are answered by bedrock, because anthropic is down."


def test_calls_that_go_to_another_upstream_by_choice_have_not_moved() -> None:
    tally = {"bedrock/m": counted("bedrock", outcomes={"answered": 2})}
    up = {"anthropic/m#1": lane("anthropic/m")}
    assert ConditionFinder().look(facts(up), tally, NOW) == []


def test_runs_that_end_are_news_only_if_they_ended_while_somebody_watched() -> None:
    noticing = ConditionFinder()
    assert noticing.look(facts(runs={"r0": run("finished", run="r0")}), {}, NOW) == []
    both = {"r0": run("finished", run="r0"), "r1": run("finished", failed=1)}
    found = noticing.look(facts(runs=both), {}, NOW)
    assert [(each.about, each.key, each.happened) for each in found] == [
        (IncidentKind.RUN_FINISHED, "r1", True)
    ]
    assert found[0].text == "many (r1) has finished: 4 done, 1 failed, $1.50."


def test_a_run_that_a_person_cancelled_is_no_news_to_that_person() -> None:
    noticing = ConditionFinder()
    noticing.look(facts(), {}, NOW)
    assert noticing.look(facts(runs={"r1": run("cancelled")}), {}, NOW) == []


def test_a_run_that_waits_for_a_person_says_how_to_go_on() -> None:
    found = ConditionFinder().look(facts(runs={"r1": run("parked", why="it costs much")}), {}, NOW)
    assert [each.about for each in found] == [IncidentKind.NEEDS_YOU]
    assert found[0].text.endswith("it costs much. jackline resume r1")
    timed = run("parked", wake_at=NOW.timestamp() + 60)
    assert ConditionFinder().look(facts(runs={"r1": timed}), {}, NOW) == []
    assert len(ConditionFinder().look(facts(runs={"r1": run("cut off")}), {}, NOW)) == 1


def test_a_budget_is_near_from_its_share_on() -> None:
    budget = {"dollars": 2.0, "tokens": None}
    near = run("running", cost=1.7, budget=budget)
    far = run("running", cost=1.5, budget=budget)
    found = ConditionFinder(0.8).look(facts(runs={"r1": near}), {}, NOW)
    assert [(each.about, each.text) for each in found] == [
        (IncidentKind.BUDGET_NEAR, "many (r1) has used 85% of its budget.")
    ]
    assert ConditionFinder(0.8).look(facts(runs={"r1": far}), {}, NOW) == []


def test_a_window_that_will_end_before_it_refills_is_a_budget_too() -> None:
    shown = {"upstream": "a", "account": "x", "window": "5h", "resets_at": 9e9, "used": 0.9}
    shown["ends_at"] = 1794748000.0
    assert len(ConditionFinder().look(facts(forecast=[shown]), {}, NOW)) == 1
    assert ConditionFinder().look(facts(forecast=[shown | {"used": 1.0}]), {}, NOW) == []
    assert ConditionFinder().look(facts(forecast=[shown | {"ends_at": None}]), {}, NOW) == []
