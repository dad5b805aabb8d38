"""Drill `subagent-wall` counts what is repeated, lost or not reported; its model follows rules."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jackline.drills.catalogue import all_drills, drill_named
from jackline.drills.claude_client import InstalledClaude
from jackline.drills.drill import final_text
from jackline.drills.evaluation import check_requirements
from jackline.drills.subagent_wall import (
    BEFORE_WALL,
    LABELS,
    OWN_TOOLS,
    PLANS,
    STEPS,
    SUBAGENT_WALL,
    QuotaWall,
    SubagentFigures,
    SubagentScript,
    step_line,
    subagent_wall,
)
from jackline.errors import NothingFoundError
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.ledger import LedgerEntry, RequestOutcome
from jackline.simulator.reply_script import Say

CLAUDE = InstalledClaude(Path("claude"), "2.1.325")
RESET = datetime(2026, 11, 15, 16, 8, tzinfo=UTC).timestamp()
WALL = QuotaWall(RESET + 1, until=100.0)
HOOK_REPORT = (
    "Sub-agent {} did not finish: terminated_by quota (the weekly limit, resets 16:08 UTC). Before"
    ' that it had finished 1 turns with 1 tool calls. Call `agent` with continue_from_task_id="{}".'
)
TOOL_REPORT = (
    'The agent "PART-8" did not complete: quota. It resets at 2026-11-15T16:08:01Z.\n'
    'Its finished turns are kept (run a). To go on: agent(resume="5e55").'
)


def request(messages: list[dict[str, Any]], *tools: str, agent: str = "") -> ClientRequest:
    body = {"messages": messages, "tools": [{"name": name} for name in ("Bash", *tools)]}
    found = ClientRequest.parse("/", {"x-claude-code-agent-id": agent}, json.dumps(body).encode())
    assert found is not None
    return found


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def prompt(label: str) -> str:
    return next(plan.prompt for plan in PLANS if plan.label == label)


def script(*, with_jackline: bool = True) -> SubagentScript:
    return SubagentScript(lambda: WALL, with_jackline=with_jackline)


def next_step(messages: list[dict[str, Any]]) -> str:
    reply = script().reply(request(messages, agent="a1"))
    assert isinstance(reply, Say)
    return reply.calls[0][1]["command"] if reply.calls else reply.text


# --- the model -------------------------------------------------------------------------------


def test_an_agent_that_knows_of_finished_steps_makes_the_next_one() -> None:
    report = f"It was cut off. It had given: {step_line('PART-1', 0)}\n{prompt('PART-1')}"
    assert "looked-1" in next_step([user(report)])


def test_an_agent_that_knows_of_no_step_begins_again() -> None:
    assert "looked-0" in next_step([user(prompt("PART-1"))])


def test_the_models_own_text_is_no_step_that_was_made() -> None:
    own_text = {"role": "assistant", "content": step_line("PART-1", 0)}
    assert "looked-0" in next_step([user(prompt("PART-1")), own_text, user("Go on.")])


def test_with_all_steps_made_an_agent_ends_with_its_final_text() -> None:
    steps = "\n".join(step_line("PART-1", step) for step in range(STEPS))
    assert next_step([user(f"{prompt('PART-1')}\n{steps}")]) == final_text("PART-1")


def test_a_command_does_not_contain_the_text_that_it_prints() -> None:
    assert step_line("PART-1", 0) not in next_step([user(prompt("PART-1"))])


def test_the_wall_begins_before_the_second_step_of_one_of_the_three_and_of_no_other() -> None:
    playing = script()
    playing.reply(request([user(f"{prompt('PART-1')} {step_line('PART-1', 0)}")]))
    playing.reply(request([user(prompt(BEFORE_WALL[0]))]))
    assert playing.wall is None
    playing.reply(request([user(f"{prompt(BEFORE_WALL[0])} {step_line(BEFORE_WALL[0], 0)}")]))
    assert playing.wall == WALL


def test_the_parent_resumes_only_the_ids_that_it_received() -> None:
    playing = script()
    texts = [
        "Begin.",
        "run abcdef12 is at work",
        HOOK_REPORT.format("a6", "a6"),
        TOOL_REPORT,
        "waited",
    ]
    replies = [playing.reply(request([user(each)], f"{OWN_TOOLS}agent", "Agent")) for each in texts]
    reply = replies[-1]
    assert isinstance(reply, Say)
    assert reply.calls == (
        (f"{OWN_TOOLS}agent", {"continue_from_task_id": "a6"}),
        (f"{OWN_TOOLS}agent", {"resume": "5e55"}),
    )


@pytest.mark.parametrize("offered", ["WaitForMcpServers", "ToolSearch"])
def test_tools_that_are_not_offered_yet_are_waited_for_or_looked_up(offered: str) -> None:
    playing = script()
    reply = playing.reply(request([user("Begin.")], "Agent", offered))
    assert isinstance(reply, Say)
    assert [name for name, _ in reply.calls] == [offered]
    assert playing.received == []


# --- the figures -----------------------------------------------------------------------------


def played(*, reported: bool = True) -> tuple[SubagentScript, list[LedgerEntry], list[str]]:
    """A side on which all went well."""
    playing = script()
    playing.wall = WALL
    playing.agents = {label: f"a{label[-1]}" for label in LABELS[:-1]}
    entries = [entry("first into the wall", 50.0, wall=True)]
    for label in LABELS:
        for step in range(STEPS + 1):
            body = f"{label} {step}"
            playing.steps[body] = (label, step)
            late = label in BEFORE_WALL and step > 0
            entries.append(entry(body, 101.0 if late else 10.0))
    if reported:
        playing.received += [HOOK_REPORT.format(f"a{n}", f"a{n}") for n in (6, 7)] + [TOOL_REPORT]
    playing.received += [final_text(label) for label in LABELS]
    return playing, entries, [step_line(label, step) for label in LABELS for step in range(STEPS)]


def entry(body: str, arrived: float, *, wall: bool = False) -> LedgerEntry:
    outcome = RequestOutcome.REJECTED if wall else RequestOutcome.COMPLETED
    return LedgerEntry(
        *(1, "opus", "", "", body, arrived, 10),
        outcome=outcome,
        ended=arrived + 0.1,
        wall=wall,
    )


def missed(figures: SubagentFigures) -> set[str]:
    (part,) = subagent_wall(CLAUDE).programs
    return {
        one.requirement.figure
        for one in check_requirements(part, figures, figures, 1.0)
        if not one.met
    }


def test_where_all_went_well_every_requirement_is_met() -> None:
    assert missed(SubagentScript.figures(*played())) == set()


def test_a_parent_without_a_report_is_counted() -> None:
    assert missed(SubagentScript.figures(*played(reported=False))) == {"unreported"}


def test_a_report_with_a_wrong_reset_does_not_count() -> None:
    playing, entries, lines = played()
    playing.received = [
        text.replace("16:08 UTC", "16:08 on 16 November UTC") for text in playing.received
    ]
    assert playing.figures(entries, lines).unreported == 2


def test_a_step_that_runs_twice_and_a_turn_that_is_paid_twice_are_seen() -> None:
    playing, entries, lines = played()
    lines.append(step_line("PART-6", 0))
    playing.steps["again"] = ("PART-6", 0)
    entries.append(entry("again", 102.0))
    assert missed(playing.figures(entries, lines)) == {"turns_repeated", "steps_repeated"}


def test_a_request_into_the_known_wall_is_seen() -> None:
    playing, entries, lines = played()
    entries.append(entry("second into the wall", 60.0, wall=True))
    assert missed(playing.figures(entries, lines)) == {"sent_into_the_wall"}


def test_an_agent_that_the_wall_missed_is_seen() -> None:
    playing, entries, lines = played()
    for one in entries:
        if one.body_hash == "PART-6 1":
            one.arrived = 60.0
    assert missed(playing.figures(entries, lines)) == {"not_cut"}
    assert "not_cut" in missed(playing.figures(entries[1:], lines))


def test_an_agent_whose_parent_has_no_final_text_is_left_behind() -> None:
    playing, entries, lines = played()
    playing.received.remove(final_text("PART-7"))
    assert missed(playing.figures(entries, lines)) == {"left_behind"}


@pytest.mark.parametrize(
    ("text", "marked", "passes"),
    [
        ("You've hit your Opus limit · resets 4:08pm (UTC)", False, 1),
        ("You've hit your Opus limit · resets 4:08pm (UTC)", True, 0),
        ("The agent did NOT finish: your Opus limit · resets 4:08pm (UTC)", False, 0),
        ("PART-1 is done.", False, 0),
    ],
)
def test_an_error_that_nothing_marks_as_one_passes_for_a_result(
    text: str, marked: bool, passes: int
) -> None:
    playing, entries, lines = played()
    playing.results = [(text, marked)]
    assert playing.figures(entries, lines).taken_for_results == passes


# --- the catalogue ---------------------------------------------------------------------------


def test_without_the_real_client_the_drill_says_what_it_needs_and_all_goes_on_without_it() -> None:
    with pytest.raises(NothingFoundError, match="the real Claude Code"):
        drill_named(SUBAGENT_WALL)
    assert SUBAGENT_WALL not in [drill.name for drill in all_drills(real_client=True)]
    with_it = all_drills(real_client=True, claude=CLAUDE)
    assert with_it[-1].name == drill_named(SUBAGENT_WALL, claude=CLAUDE).name == SUBAGENT_WALL
