"""Flows pass the drills of walls, cuts and cascades; a program without flows does not."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from jackline import event_loop
from jackline.drills.catalogue import drill_named
from jackline.drills.drill import ProgramFigures, ProgramPart
from jackline.drills.drill_run import BuiltinFleet, DrillOptions, DrillRun, ProgramRun, Side
from jackline.drills.environment import open_gateway
from jackline.drills.evaluation import RequirementResult, check_requirements
from jackline.drills.power_cut import PaidAnswer, paid_again
from tests.cli.commands import jackline

# One after the other: in scaled time a machine that is too busy counts as a slow provider.

FAST = 30.0
PROGRAMS = "a program in plain asyncio, and a flow"


def part_of(drill: str, name: str = "") -> ProgramPart:
    return next(part for part in drill_named(drill).programs if name in ("", part.name))


def played(part: ProgramPart, side: Side, speed: float = FAST) -> ProgramFigures:
    one = ProgramRun(part, side, DrillOptions("-", BuiltinFleet, open_gateway, speed))
    return event_loop.run(one.run())


def missed(part: ProgramPart, figures: ProgramFigures) -> list[RequirementResult]:
    return [
        one for one in check_requirements(part, figures, figures, part.speed(FAST)) if not one.met
    ]


def passed(part: ProgramPart) -> dict[str, Any]:
    """The flow's figures, once every requirement is met.

    In scaled time a busy machine may miss a limit that flows keep: what fails twice is their fault.
    """
    figures = played(part, Side.JACKLINE)
    if missed(part, figures):
        figures = played(part, Side.JACKLINE)
    assert missed(part, figures) == [], figures
    return asdict(figures)


def test_cascade_loses_nothing_but_the_call_that_failed() -> None:
    answer = jackline("drill", "cascade", "--json")
    assert answer.code == 0, answer.out + answer.err
    document = json.loads(answer.out)
    assert (document["drill"], document["passed"], document["client"]) == (
        "cascade",
        True,
        PROGRAMS,
    )
    assert (document["bare"]["whole"], document["jackline"]["whole"]) == (0, 13)
    assert document["jackline"]["unreported"] == 0, "the model reads '1 of 14 failed'"


def test_a_lost_subagent_is_found_again_with_its_machine() -> None:
    figures = passed(part_of("lost-subagent"))
    assert (figures["set_ups"], figures["machines"], figures["released"]) == (1, 1, 1)


def test_power_cuts_cost_a_flow_no_more_than_the_turns_in_hand() -> None:
    figures = passed(part_of("power-cut"))
    assert figures["cuts"] == 12
    assert figures["set_ups"] >= 1
    # At each cut six agents at most have a turn in hand.
    assert figures["in_hand_paid_twice"] <= 6 * 12


@pytest.mark.soak
def test_fifty_times_power_cut() -> None:
    part = part_of("power-cut")
    figures = played(part, Side.JACKLINE, speed=1.0)
    assert missed(part, figures) == [], figures
    assert asdict(figures)["cuts"] == 50


@pytest.mark.parametrize(
    ("drill", "name", "figures_missed"),
    [
        ("cascade", "", {"lost", "unreported"}),
        ("lost-subagent", "", {"set_ups", "machines", "leaked", "hours_repeated"}),
        ("power-cut", "", {"paid_twice", "used_twice"}),
        (
            "session-limit",
            "as_a_flow",
            # Whether it also starts agents into the wall depends on the machine's speed.
            {"sent_into_the_wall", "started_by_hand", "extra_percent"},
        ),
    ],
)
def test_a_program_without_flows_does_not_pass(
    drill: str, name: str, figures_missed: set[str]
) -> None:
    part = part_of(drill, name)
    # Nothing depends on the speed where a wall comes with a turn, and its hours are long.
    figures = played(part, Side.BARE, 600.0 if drill == "lost-subagent" else FAST)
    assert figures_missed <= {one.requirement.figure for one in missed(part, figures)}


def test_an_interrupted_drill_of_flows_has_not_passed() -> None:
    options = DrillOptions("the built-in client", BuiltinFleet, open_gateway, FAST)
    result = DrillRun(drill_named("lost-subagent"), options).so_far()
    assert not result.passed
    assert (result.client, result.speed) == (PROGRAMS, 120.0)
    assert "was interrupted" in "\n".join(result.to_text())


def answers(text: str) -> list[PaidAnswer]:
    """`a1 b1 a2`: whose answer, to what, in the order of the requests."""
    return [PaidAnswer(place, word[0], word) for place, word in enumerate(text.split())]


@pytest.mark.parametrize(
    ("text", "cuts", "beyond", "in_hand"),
    [
        ("a1 a2 b1 b2", [2], 0, 0),
        ("a1 a2 a2 b1", [2], 0, 1),
        ("a1 a2 a1", [2], 1, 0),
        ("a1 a1", [], 1, 0),
        ("a1 b1 a1 b1", [2], 0, 2),
        ("a1 a1 a1", [1, 2], 0, 2),
        ("a1 a1 a1", [1], 1, 1),
    ],
)
def test_only_the_last_answer_before_a_cut_was_in_hand(
    text: str, cuts: list[int], beyond: int, in_hand: int
) -> None:
    assert paid_again(answers(text), cuts) == (beyond, in_hand)
