"""Figures come from the ledger and the clients, and results from limits on figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.drills.builtin_client import AgentEnd, AgentRecord, SeenError
from jackline.drills.catalogue import all_drills, drill_named
from jackline.drills.drill import CrewPart, Requirement
from jackline.drills.evaluation import (
    Figures,
    ProviderLedger,
    RunEvidence,
    check_requirements,
)
from jackline.errors import BadArgumentError
from jackline.simulator.exchange import QUOTA_MESSAGE, SimRequest
from jackline.simulator.ledger import RequestLedger, RequestOutcome

RESET = 1_794_751_200.0  # 2026-11-15T14:00:00Z
PART = drill_named("session-limit").crews[0]
QUOTA_ERROR = SeenError(429, f"API Error: 429 {QUOTA_MESSAGE}", 0.4, RESET)


def ledger_of(
    *arrivals: tuple[float, float, bool], model: str = "m", agent: str = "a"
) -> RequestLedger:
    """A ledger of requests as (arrived, ended, met a wall)."""
    ledger = RequestLedger()
    for number, (arrived, ended, wall) in enumerate(arrivals):
        entry = ledger.opened(number, arrived, SimRequest(model=model, agent=agent))
        if wall:
            ledger.met_wall(entry)
        outcome = RequestOutcome.REJECTED if wall else RequestOutcome.COMPLETED
        ledger.ended(entry, ended, outcome, "429" if wall else "completed")
    return ledger


def figures(
    *records: AgentRecord, ledger: RequestLedger | None = None, part: CrewPart = PART
) -> Figures:
    evidence = RunEvidence(
        part=part,
        ledgers=(ProviderLedger("anthropic", ledger or RequestLedger()),),
        records=records,
        speed=1.0,
        seconds=1.0,
        wall_resets_at=RESET,
    )
    return evidence.figures()


def dead(*errors: SeenError) -> AgentRecord:
    return AgentRecord("x", "m", AgentEnd.DIED, "x", errors=list(errors))


def test_requests_in_flight_when_the_wall_became_known_are_not_counted() -> None:
    in_flight = ledger_of((0.0, 1.0, True), (0.5, 1.5, True), (1.1, 1.6, True))
    assert figures(ledger=in_flight).sent_into_the_wall == 0
    later = ledger_of((0.0, 1.0, True), (2.0, 2.5, True), (3.0, 3.5, True))
    assert figures(ledger=later).sent_into_the_wall == 2
    assert figures(ledger=ledger_of((0.0, 1.0, False))).sent_into_the_wall == 0


@pytest.mark.parametrize(
    ("record", "stopped_otherwise"),
    [
        (dead(QUOTA_ERROR), 0),
        (dead(QUOTA_ERROR, QUOTA_ERROR), 1),
        (dead(), 1),
        (dead(replace(QUOTA_ERROR, resets_at=RESET + 60)), 1),
        (dead(replace(QUOTA_ERROR, status=503)), 1),
        (dead(replace(QUOTA_ERROR, text="API Error: 429 Rate limited")), 1),
        (dead(SeenError(429, "You've hit your session limit · resets 2pm (UTC)", 0.0)), 0),
        (dead(SeenError(429, "You've hit your 5-hour limit · resets 1:59pm (UTC)", 0.0)), 0),
        (dead(SeenError(429, "You've hit your session limit · resets 3pm (UTC)", 0.0)), 1),
        (AgentRecord("x", "m", AgentEnd.FINISHED), 0),
    ],
)
def test_only_the_vendors_error_with_its_reset_received_once_is_right(
    record: AgentRecord, stopped_otherwise: int
) -> None:
    assert figures(record).stopped_otherwise == stopped_otherwise


def test_all_who_did_not_finish_are_left_behind() -> None:
    ends = (AgentEnd.FINISHED, AgentEnd.MISLED, AgentEnd.DIED, AgentEnd.WORKING)
    part = replace(PART, crew=PART.crew[:5])
    counted = figures(*(AgentRecord("x", "m", end) for end in ends), part=part)
    assert (counted.finished, counted.misled, counted.died, counted.unfinished) == (1, 1, 1, 1)
    assert counted.left_behind == 4, "one of the crew never began"


def test_siblings_are_timed_from_their_first_request_to_their_last_answer() -> None:
    storm = drill_named("throttle-storm").crews[0]
    ledger = ledger_of((2.0, 8.0, False), (9.0, 15.5, False), model="claude-haiku-4-5")
    assert figures(ledger=ledger, part=storm).bystanders_took == 13.5
    assert figures(ledger=ledger_of((2.0, 8.0, False)), part=storm).bystanders_took == 0


@given(
    measured=st.integers(0, 100),
    from_bare=st.integers(0, 100),
    most=st.integers(0, 100),
    slack=st.sampled_from([0.0, 0.5]),
    speed=st.sampled_from([1.0, 30.0]),
)
def test_a_requirement_is_met_if_and_only_if_the_figure_is_within_its_limit(
    measured: int, from_bare: int, most: int, slack: float, speed: float
) -> None:
    empty = figures()
    bare, ours = replace(empty, wasted=from_bare), replace(empty, wasted=measured)
    requirements = (
        Requirement("at most", "wasted", most=most, machine_slack=slack),
        Requirement("beyond bare", "wasted", most=most, beyond_bare=True),
    )
    results = check_requirements(replace(PART, requirements=requirements), bare, ours, speed)
    assert [result.met for result in results] == [
        measured <= most + slack * speed,
        measured <= most + from_bare,
    ]


@pytest.mark.parametrize("real_client", [True, False])
def test_every_requirement_names_a_figure_and_every_crew_can_be_started(real_client: bool) -> None:
    fields = set(Figures.__dataclass_fields__)
    for drill in all_drills(real_client=real_client):
        for part in drill.crews:
            assert {one.figure for one in part.requirements} <= fields
            assert len({plan.agent for plan in part.crew}) == len(part.crew)
            assert len(part.crew) <= (16 if real_client else 97) * part.waves


def test_an_unknown_drill_is_an_error_that_lists_the_drills() -> None:
    with pytest.raises(BadArgumentError, match="no drill 'x'") as error:
        drill_named("x")
    assert "throttle-storm, session-limit, outage-one-lane" in error.value.hint
