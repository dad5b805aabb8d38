"""Hooks change nothing unless a sub-agent truly died, and tell each death once."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from jackline.failures import Observation, Where, classify
from jackline.hooks.agent_deaths import Death, DeathCause, Deaths
from jackline.hooks.face import added, death_words, rewritten
from jackline.hooks.hook_input import HookInput, ReportedEnd, parse_hook_input

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
WALL = "You've hit your session limit · resets 3pm (UTC)"


def death(agent: str = "a1", text: str = WALL) -> Death:
    failure = classify(Observation(Where.CLI_TEXT, text=text), now=NOON)
    return Death("s1", agent, DeathCause.of(failure))


def test_a_death_is_told_with_cause_reset_and_the_way_on() -> None:
    words = death_words(death(), None, NOON)
    assert "terminated_by quota" in words
    assert "resets 15:00 UTC" in words
    assert "after the reset" in words
    assert 'continue_from_task_id="a1"' in words
    later = death_words(death(), None, NOON + timedelta(hours=4))
    assert "beginning: now, call" in later


def test_a_rewritten_result_keeps_the_shape_of_the_tools_own() -> None:
    told = {"status": "completed", "agentId": "a1", "content": [{"type": "text", "text": "Error"}]}
    asked = HookInput("PostToolUse", "s1", tool_name="Agent", tool_response=told)
    answer = json.loads(json.dumps(rewritten(asked, "It died. More.")))
    new = answer["hookSpecificOutput"]["updatedToolOutput"]
    assert new == {**told, "content": [{"type": "text", "text": "It died. More."}]}
    assert answer["hookSpecificOutput"]["additionalContext"] == "It died."


def test_only_events_that_reach_the_model_carry_words_and_only_for_the_main_thread() -> None:
    assert added(HookInput("UserPromptSubmit", "s1"), ["told"])
    assert added(HookInput("Stop", "s1"), ["told"]) == {}
    assert added(HookInput("UserPromptSubmit", "s1", agent_id="a1"), ["told"]) == {}
    assert added(HookInput("UserPromptSubmit", "s1"), []) == {}


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.sampled_from(["die", "live", "tell"]),
            st.sampled_from([0.5, 20.0]),
        )
    )
)
def test_each_death_is_told_once_by_whatever_ways_it_is_heard(
    steps: list[tuple[str, str, float]],
) -> None:
    deaths, now = Deaths(), 0.0
    untold: set[str] = set()
    told: dict[str, float] = {}
    for agent, step, later in steps:
        now += later
        if step == "die":
            deaths.heard(death(agent), now)
            if agent not in told or now - told[agent] >= 10:
                untold.add(agent)
                told.pop(agent, None)
        elif step == "live":
            deaths.revived("s1", agent)
            untold.discard(agent)
            told.pop(agent, None)
        else:
            deaths.tell(death(agent), now)
            untold.discard(agent)
            told[agent] = now
        assert {each.agent for each in deaths.untold("s1")} == untold
        assert {a for a in "abc" if deaths.told_at("s1", a) is not None} == set(told)
        assert deaths.untold("another") == []


@given(st.binary(max_size=60))
def test_no_input_makes_a_hook_stumble(body: bytes) -> None:
    asked = parse_hook_input(body)
    assert asked is None or isinstance(asked.notified, list)


@given(
    st.recursive(
        st.none() | st.text() | st.integers(),
        lambda x: (
            st.lists(x)
            | st.dictionaries(
                st.sampled_from(["agentId", "status", "content", "usage", "text", "completed"]), x
            )
        ),
    )
)
def test_no_tools_answer_makes_a_hook_stumble(told: object) -> None:
    asked = HookInput("PostToolUse", "s1", tool_name="Agent", tool_response=told)
    assert asked.came_back is None or isinstance(asked.came_back.words, str)


def test_what_a_client_says_of_an_end_is_read_as_both_versions_write_it() -> None:
    words = "You've hit your session limit · resets 7:43pm (UTC)"
    nothing = dict.fromkeys(
        ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
        0,
    )
    old: dict[str, object] = {
        "status": "completed",
        "agentId": "a1",
        "content": [{"type": "text", "text": words}],
        "usage": nothing,
    }
    ended = HookInput("PostToolUse", tool_response=old).came_back
    assert ended == ReportedEnd("a1", failed=True, words=words)
    used = {**old, "usage": {**nothing, "output_tokens": 9}}
    assert HookInput("PostToolUse", tool_response=used).came_back == ReportedEnd("a1", False, words)
    launched = {"status": "async_launched", "agentId": "a1"}
    assert HookInput("PostToolUse", tool_response=launched).came_back is None
    note = (
        "<task-notification>\n<task-id>a2</task-id>\n<status>{}</status>\n"
        '<summary>Agent "Part 1" {}</summary>\n<result>{}</result>\n</task-notification>'
    )
    done = note.format("completed", "finished", "All is well.")
    failed = note.format("failed", "failed: " + words, "Looking.")
    told = HookInput("UserPromptSubmit", prompt=f"{done}\n{failed}").notified
    assert [(each.failed, each.words) for each in told] == [
        (False, "All is well."),
        (True, f'Agent "Part 1" failed: {words}'),
    ]
    assert HookInput("UserPromptSubmit", prompt=f"What is {done}?").notified == []


def test_a_transcript_is_looked_for_below_the_sessions_own_folder_only() -> None:
    asked = HookInput("PostToolUse", "s1", transcript_path="/home/me/.claude/projects/p/s1.jsonl")
    assert asked.transcript_of("../../etc/passwd") is None
    assert asked.transcript_of("a1") == Path(
        "/home/me/.claude/projects/p/s1/subagents/agent-a1.jsonl"
    )
