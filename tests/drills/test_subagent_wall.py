"""Drill `subagent-wall` sees what is repeated, lost or not told; its model plays by the rules."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jackline.drills.catalogue import all_drills, drill_named
from jackline.drills.claude_client import InstalledClaude
from jackline.drills.evaluation import check_requirements
from jackline.drills.subagent_wall import (
    LABELS,
    OURS,
    STEPS,
    STRUCK,
    SUBAGENT_WALL,
    QuotaWall,
    SubagentFigures,
    SubagentScript,
    figures_of,
    last_words,
    made,
    prompt,
    subagent_wall,
)
from jackline.errors import NothingFoundError
from jackline.simulator.client_request import ClientRequest, read_client_request
from jackline.simulator.ledger import LedgerEntry, RequestOutcome
from jackline.simulator.reply_script import Say

CLAUDE = InstalledClaude(Path("claude"), "2.1.325")
RESET = datetime(2026, 11, 15, 16, 8, tzinfo=UTC).timestamp()
WALL = QuotaWall(RESET + 1, until=100.0)
TOLD = (
    "Sub-agent {} did not finish: terminated_by quota (the weekly limit, resets 16:08 UTC). Before"
    ' that it had finished 1 turns with 1 tool calls. Call `agent` with continue_from_task_id="{}".'
)
TOLD_OF_OURS = (
    'The agent "PART-8" did not complete: quota. It resets at 2026-11-15T16:08:01Z.\n'
    'Its finished turns are kept (run a). To go on: agent(resume="5e55").'
)


def asked(messages: list[dict[str, Any]], *tools: str, agent: str = "") -> ClientRequest:
    body = {"messages": messages, "tools": [{"name": name} for name in ("Bash", *tools)]}
    found = read_client_request("/", {"x-claude-code-agent-id": agent}, json.dumps(body).encode())
    assert found is not None
    return found


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def script(*, with_jackline: bool = True) -> SubagentScript:
    return SubagentScript(lambda: WALL, with_jackline=with_jackline)


def step_asked_for(messages: list[dict[str, Any]]) -> str:
    reply = script().reply(asked(messages, agent="a1"))
    assert isinstance(reply, Say)
    return reply.calls[0][1]["command"] if reply.calls else reply.text


# --- the model -------------------------------------------------------------------------------


def test_an_agent_that_is_told_of_finished_steps_makes_the_next_one() -> None:
    told = f"It was cut off. It had given: {made('PART-1', 0)}\n{prompt('PART-1')}"
    assert "looked-1" in step_asked_for([user(told)])


def test_an_agent_that_is_told_nothing_begins_again() -> None:
    assert "looked-0" in step_asked_for([user(prompt("PART-1"))])


def test_what_the_model_itself_has_said_is_no_step_that_was_made() -> None:
    said = {"role": "assistant", "content": made("PART-1", 0)}
    assert "looked-0" in step_asked_for([user(prompt("PART-1")), said, user("Go on.")])


def test_with_all_steps_made_an_agent_says_its_last_words() -> None:
    steps = "\n".join(made("PART-1", step) for step in range(STEPS))
    assert step_asked_for([user(f"{prompt('PART-1')}\n{steps}")]) == last_words("PART-1")


def test_a_command_does_not_hold_the_words_that_it_prints() -> None:
    assert made("PART-1", 0) not in step_asked_for([user(prompt("PART-1"))])


def test_the_wall_comes_down_before_the_second_step_of_a_struck_agent_and_of_no_other() -> None:
    playing = script()
    playing.reply(asked([user(f"{prompt('PART-1')} {made('PART-1', 0)}")]))
    playing.reply(asked([user(prompt(STRUCK[0]))]))
    assert playing.wall is None
    playing.reply(asked([user(f"{prompt(STRUCK[0])} {made(STRUCK[0], 0)}")]))
    assert playing.wall == WALL


def test_the_parent_goes_on_only_with_the_ids_that_it_was_told() -> None:
    playing = script()
    told = ["Begin.", "run abcdef12 is at work", TOLD.format("a6", "a6"), TOLD_OF_OURS, "waited"]
    replies = [playing.reply(asked([user(each)], f"{OURS}agent", "Agent")) for each in told]
    reply = replies[-1]
    assert isinstance(reply, Say)
    assert reply.calls == (
        (f"{OURS}agent", {"continue_from_task_id": "a6"}),
        (f"{OURS}agent", {"resume": "5e55"}),
    )


@pytest.mark.parametrize("offered", ["WaitForMcpServers", "ToolSearch"])
def test_tools_that_are_not_offered_yet_are_waited_for_or_looked_up(offered: str) -> None:
    playing = script()
    reply = playing.reply(asked([user("Begin.")], "Agent", offered))
    assert isinstance(reply, Say)
    assert [name for name, _ in reply.calls] == [offered]
    assert playing.heard == []


# --- the figures -----------------------------------------------------------------------------


def played(*, told: bool = True) -> tuple[SubagentScript, list[LedgerEntry], list[str]]:
    """A side on which all went well."""
    playing = script()
    playing.wall = WALL
    playing.agents = {label: f"a{label[-1]}" for label in LABELS[:-1]}
    entries = [entry("first into the wall", 50.0, wall=True)]
    for label in LABELS:
        for step in range(STEPS + 1):
            body = f"{label} {step}"
            playing.steps[body] = (label, step)
            late = label in STRUCK and step > 0
            entries.append(entry(body, 101.0 if late else 10.0))
    if told:
        playing.heard += [TOLD.format(f"a{n}", f"a{n}") for n in (6, 7)] + [TOLD_OF_OURS]
    playing.heard += [last_words(label) for label in LABELS]
    return playing, entries, [made(label, step) for label in LABELS for step in range(STEPS)]


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
        one.demand.figure for one in check_requirements(part, figures, figures, 1.0) if not one.held
    }


def test_where_all_went_well_every_demand_is_held() -> None:
    assert missed(figures_of(*played())) == set()


def test_a_parent_that_is_not_told_is_seen() -> None:
    assert missed(figures_of(*played(told=False))) == {"untold"}


def test_a_wrong_reset_is_not_the_truth() -> None:
    playing, entries, lines = played()
    playing.heard = [
        words.replace("16:08 UTC", "16:08 on 16 November UTC") for words in playing.heard
    ]
    assert figures_of(playing, entries, lines).untold == 2


def test_a_step_that_runs_twice_and_a_turn_that_is_paid_twice_are_seen() -> None:
    playing, entries, lines = played()
    lines.append(made("PART-6", 0))
    playing.steps["again"] = ("PART-6", 0)
    entries.append(entry("again", 102.0))
    assert missed(figures_of(playing, entries, lines)) == {"turns_repeated", "steps_repeated"}


def test_a_request_into_the_known_wall_is_seen() -> None:
    playing, entries, lines = played()
    entries.append(entry("second into the wall", 60.0, wall=True))
    assert missed(figures_of(playing, entries, lines)) == {"sent_into_the_wall"}


def test_an_agent_that_the_wall_missed_is_seen() -> None:
    playing, entries, lines = played()
    for one in entries:
        if one.body_hash == "PART-6 1":
            one.arrived = 60.0
    assert missed(figures_of(playing, entries, lines)) == {"not_cut"}
    assert "not_cut" in missed(figures_of(playing, entries[1:], lines))


def test_an_agent_whose_parent_has_no_last_words_is_left_behind() -> None:
    playing, entries, lines = played()
    playing.heard.remove(last_words("PART-7"))
    assert missed(figures_of(playing, entries, lines)) == {"left_behind"}


@pytest.mark.parametrize(
    ("words", "marked", "passes"),
    [
        ("You've hit your Opus limit · resets 4:08pm (UTC)", False, 1),
        ("You've hit your Opus limit · resets 4:08pm (UTC)", True, 0),
        ("The agent did NOT finish: your Opus limit · resets 4:08pm (UTC)", False, 0),
        ("PART-1 is done.", False, 0),
    ],
)
def test_an_error_that_nothing_marks_as_one_passes_for_a_result(
    words: str, marked: bool, passes: int
) -> None:
    playing, entries, lines = played()
    playing.results = [(words, marked)]
    assert figures_of(playing, entries, lines).taken_for_results == passes


# --- the catalogue ---------------------------------------------------------------------------


def test_without_the_real_client_the_drill_says_what_it_needs_and_all_goes_on_without_it() -> None:
    with pytest.raises(NothingFoundError, match="the real Claude Code"):
        drill_named(SUBAGENT_WALL)
    assert SUBAGENT_WALL not in [drill.name for drill in all_drills(real_client=True)]
    with_it = all_drills(real_client=True, claude=CLAUDE)
    assert with_it[-1].name == drill_named(SUBAGENT_WALL, claude=CLAUDE).name == SUBAGENT_WALL
