"""Conditions that a person should know of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from jackline.control.board import NO_FLOW_FACTS, Facts
from jackline.control.fleet import Fleet
from jackline.control.needs import About, Need
from jackline.control.observatory import Burn
from jackline.notifications.incidents import ConditionFinder
from jackline.notifications.settings import IncidentKind

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def lane(name: str, state: str = "open", **more: Any) -> dict[str, Any]:
    place = name.partition("/")[0]
    row = {"name": name, "state": state, "until": None, "waiting": 0, "cause": None}
    return {**row, "upstream": place, "account": "abc", **more}


def run(state: str, **more: Any) -> dict[str, Any]:
    row = {
        "run": "r1",
        "flow": "many",
        "state": state,
        "why": "",
        "wake_at": None,
        "cost": 1.5,
        "unpriced": 0,
    }
    return {**row, "tokens": 100, "counts": "4 of 4 agents ok", "budget": None, **more}


def facts(
    lanes: dict[str, Any] | None = None,
    runs: dict[str, Any] | None = None,
    forecast: list[dict[str, Any]] | None = None,
    needs: Sequence[Need] = (),
    moved: str = "",
) -> Facts:
    head: dict[str, object] = {"upstreams": ["anthropic", "bedrock"], "forecast": forecast or []}
    head["answered_instead"] = moved
    head["needs"] = [asdict(need) for need in needs]
    flows = replace(NO_FLOW_FACTS, runs=runs or {})
    burn = Burn(lambda _model, _usage: None)
    return Facts(NOW.timestamp(), head, lanes or {}, [], Fleet(), burn, 0.0, flows=flows)


def test_all_lanes_of_one_account_are_one_incident_with_its_hour_and_who_waits() -> None:
    until = NOW.timestamp() + 780
    lanes = {
        f"anthropic/{model}#abc": lane(f"anthropic/{model}", "parked", until=until, waiting=3)
        for model in ("opus", "haiku")
    }
    found = ConditionFinder().look(facts(lanes), NOW)
    assert [(each.about, each.key) for each in found] == [(IncidentKind.PARKED, "anthropic abc")]
    assert "until 12:13 UTC" in found[0].text
    assert "6 calls wait" in found[0].text


def test_two_accounts_are_two_incidents() -> None:
    lanes = {account: lane("a/m", "parked", account=account) for account in ("1", "2")}
    assert len(ConditionFinder().look(facts(lanes), NOW)) == 2


def test_what_needs_a_person_is_sent_in_the_words_of_the_status() -> None:
    needs = [
        Need(About.RUN, "run r1", "many (r1) was cut off: jackline resume r1"),
        Need(About.KEY, "key a", "a refuses the key or login: sign in again"),
        Need(About.ENDED_RUN, "run r2", "many (r2) failed: jackline show r2"),
    ]
    found = ConditionFinder().look(facts(needs=needs), NOW)
    assert [(each.about, each.key, each.text, each.happened) for each in found] == [
        (IncidentKind.NEEDS_YOU, "run r1", f"{needs[0].text}.", False),
        (IncidentKind.NEEDS_YOU, "key a", f"{needs[1].text}.", True),
    ]


def test_an_account_with_an_unpaid_bill_does_not_go_on_by_itself() -> None:
    lanes = {"a/m#1": lane("a/m", "parked", cause=("billing", None))}
    assert ConditionFinder().look(facts(lanes), NOW) == []


def test_calls_that_another_upstream_answers_are_told_in_the_words_of_the_status() -> None:
    text = "Calls are answered by bedrock, because anthropic is down."
    found = ConditionFinder().look(facts(moved=text), NOW)
    assert [(each.about, each.text) for each in found] == [(IncidentKind.UPSTREAM_MOVED, text)]
    assert ConditionFinder().look(facts(), NOW) == []


def test_runs_that_end_are_news_only_if_they_ended_while_somebody_watched() -> None:
    noticing = ConditionFinder()
    assert noticing.look(facts(runs={"r0": run("finished", run="r0")}), NOW) == []
    both = {
        "r0": run("finished", run="r0"),
        "r1": run("finished", counts="4 of 5 agents ok, 1 failed"),
    }
    found = noticing.look(facts(runs=both), NOW)
    assert [(each.about, each.key, each.happened) for each in found] == [
        (IncidentKind.RUN_FINISHED, "r1", True)
    ]
    assert found[0].text == "many (r1) has finished: 4 of 5 agents ok, 1 failed; $1.50."


def test_a_run_that_a_person_cancelled_is_no_news_to_that_person() -> None:
    noticing = ConditionFinder()
    noticing.look(facts(), NOW)
    assert noticing.look(facts(runs={"r1": run("cancelled")}), NOW) == []


def test_a_budget_is_near_from_its_share_on() -> None:
    budget = {"dollars": 2.0, "tokens": None}
    near = run("running", cost=1.7, budget=budget)
    far = run("running", cost=1.5, budget=budget)
    found = ConditionFinder(0.8).look(facts(runs={"r1": near}), NOW)
    assert [(each.about, each.text) for each in found] == [
        (IncidentKind.BUDGET_NEAR, "many (r1) has used 85% of its budget.")
    ]
    assert ConditionFinder(0.8).look(facts(runs={"r1": far}), NOW) == []


def test_a_window_that_will_end_before_it_refills_is_a_budget_too() -> None:
    shown = {"upstream": "a", "account": "x", "window": "5h", "resets_at": 9e9, "used": 0.9}
    shown["ends_at"] = 1794748000.0
    assert len(ConditionFinder().look(facts(forecast=[shown]), NOW)) == 1
    assert ConditionFinder().look(facts(forecast=[shown | {"used": 1.0}]), NOW) == []
    assert ConditionFinder().look(facts(forecast=[shown | {"ends_at": None}]), NOW) == []
