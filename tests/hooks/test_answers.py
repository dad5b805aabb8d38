"""Hooks change nothing unless a sub-agent really died, and report each death once."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from jackline.failures import Observation, Where, classify
from jackline.hooks.agent_deaths import Death, DeathCause, Deaths
from jackline.hooks.hook_input import HookInput, ReportedEnd, parse_hook_input

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
WALL = "You've hit your session limit · resets 3pm (UTC)"


def death(agent: str = "a1", text: str = WALL) -> Death:
    failure = classify(Observation(Where.CLI_TEXT, text=text), now=NOON)
    return Death("s1", agent, DeathCause.of(failure))


def test_a_death_is_reported_with_cause_reset_and_the_way_on() -> None:
    words = death().text(NOON)
    assert "terminated_by quota" in words
    assert "resets 15:00 UTC" in words
    assert "after the reset" in words
    assert 'continue_from_task_id="a1"' in words
    later = death().text(NOON + timedelta(hours=4))
    assert "beginning: now, call" in later


def test_a_rewritten_result_keeps_the_shape_of_the_tools_own() -> None:
    result = {
        "status": "completed",
        "agentId": "a1",
        "content": [{"type": "text", "text": "Error"}],
    }
    hook = HookInput("PostToolUse", "s1", tool_name="Agent", tool_response=result)
    answer = json.loads(json.dumps(hook.rewritten_result("It died. More.")))
    new = answer["hookSpecificOutput"]["updatedToolOutput"]
    assert new == {**result, "content": [{"type": "text", "text": "It died. More."}]}
    assert answer["hookSpecificOutput"]["additionalContext"] == "It died."


def test_only_events_that_reach_the_model_carry_words_and_only_for_the_main_thread() -> None:
    assert HookInput("UserPromptSubmit", "s1").added_context(["text"])
    assert HookInput("Stop", "s1").added_context(["text"]) == {}
    assert HookInput("UserPromptSubmit", "s1", agent_id="a1").added_context(["text"]) == {}
    assert HookInput("UserPromptSubmit", "s1").added_context([]) == {}


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.sampled_from(["die", "live", "report"]),
            st.sampled_from([0.5, 20.0]),
        )
    )
)
def test_each_death_is_reported_once_by_whatever_ways_it_arrives(
    steps: list[tuple[str, str, float]],
) -> None:
    deaths, now = Deaths(), 0.0
    unreported: set[str] = set()
    reported: dict[str, float] = {}
    for agent, step, later in steps:
        now += later
        if step == "die":
            deaths.add(death(agent), now)
            if agent not in reported or now - reported[agent] >= 10:
                unreported.add(agent)
                reported.pop(agent, None)
        elif step == "live":
            deaths.remove("s1", agent)
            unreported.discard(agent)
            reported.pop(agent, None)
        else:
            deaths.mark_reported(death(agent), now)
            unreported.discard(agent)
            reported[agent] = now
        assert {each.agent for each in deaths.unreported("s1")} == unreported
        assert {a for a in "abc" if deaths.reported_at("s1", a) is not None} == set(reported)
        assert deaths.unreported("another") == []


@given(st.binary(max_size=60))
def test_no_input_makes_a_hook_fail(body: bytes) -> None:
    hook = parse_hook_input(body)
    assert hook is None or isinstance(hook.notified_agents, list)


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
def test_no_tool_response_makes_a_hook_fail(response: object) -> None:
    hook = HookInput("PostToolUse", "s1", tool_name="Agent", tool_response=response)
    assert hook.returned_agent is None or isinstance(hook.returned_agent.text, str)


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
    ended = HookInput("PostToolUse", tool_response=old).returned_agent
    assert ended == ReportedEnd("a1", failed=True, text=words)
    used = {**old, "usage": {**nothing, "output_tokens": 9}}
    assert HookInput("PostToolUse", tool_response=used).returned_agent == ReportedEnd(
        "a1", False, words
    )
    launched = {"status": "async_launched", "agentId": "a1"}
    assert HookInput("PostToolUse", tool_response=launched).returned_agent is None
    note = (
        "<task-notification>\n<task-id>a2</task-id>\n<status>{}</status>\n"
        '<summary>Agent "Part 1" {}</summary>\n<result>{}</result>\n</task-notification>'
    )
    done = note.format("completed", "finished", "All is well.")
    failed = note.format("failed", "failed: " + words, "Looking.")
    ends = HookInput("UserPromptSubmit", prompt=f"{done}\n{failed}").notified_agents
    assert [(each.failed, each.text) for each in ends] == [
        (False, "All is well."),
        (True, f'Agent "Part 1" failed: {words}'),
    ]
    assert HookInput("UserPromptSubmit", prompt=f"What is {done}?").notified_agents == []


def test_a_transcript_is_looked_for_below_the_sessions_own_folder_only() -> None:
    hook = HookInput("PostToolUse", "s1", transcript_path="/home/me/.claude/projects/p/s1.jsonl")
    assert hook.transcript_of("../../etc/passwd") is None
    assert hook.transcript_of("a1") == Path(
        "/home/me/.claude/projects/p/s1/subagents/agent-a1.jsonl"
    )
