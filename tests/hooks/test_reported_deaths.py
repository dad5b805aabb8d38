"""Parents get the truth in time, from the first source that has it, and only on evidence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from jackline.hooks import endpoint
from tests.assembly.world import run
from tests.hooks.hook_requests import NOON, TOKEN, WALL, Question, World

SAMPLES = Path(__file__).parent / "samples"
NOTHING_USED = dict.fromkeys(
    ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"), 0
)
USED = {**NOTHING_USED, "input_tokens": 3, "output_tokens": 22}


def gave_back(words: str, usage: dict[str, int] = USED) -> dict[str, object]:
    content = [{"type": "text", "text": words}]
    return {"status": "completed", "agentId": "a1", "content": content, "usage": usage}


async def came_back(world: World, words: str, usage: dict[str, int] = USED) -> str:
    """What the parent is reported instead; empty if nothing."""
    answer = await world.hook(
        "PostToolUse", tool_name="Agent", tool_response=gave_back(words, usage)
    )
    if not answer:
        return ""
    reported: dict[str, Any] = answer["hookSpecificOutput"]["updatedToolOutput"]
    return str(reported["content"][0]["text"])


def test_the_gateway_knows_a_death_before_the_client_has_written_a_word_of_it() -> None:
    async def main() -> None:
        world = World()
        world.wall()
        world.call("refused")
        reported = await came_back(world, WALL)
        assert "Sub-agent a1 did not finish: terminated_by quota" in reported
        assert "resets 15:00 UTC" in reported
        assert 'continue_from_task_id="a1"' in reported

    run(main())


def test_the_gateways_reset_is_reported_and_not_the_clients_which_has_no_seconds() -> None:
    async def main() -> None:
        world = World()
        world.wall()
        world.call("refused")
        await world.hook("StopFailure", agent_id="a1", last_assistant_message=WALL)
        reported = await came_back(world, "You've hit your session limit · resets 11:59am (UTC)")
        assert "resets 15:00 UTC" in reported

    run(main())


def test_words_that_look_like_an_error_are_no_evidence() -> None:
    async def main() -> None:
        answered = World()
        answered.call("answered")
        assert await came_back(answered, WALL) == ""
        unknown = World()
        assert await came_back(unknown, WALL) == ""

    run(main())


def test_an_error_on_the_side_makes_no_death_of_an_end_that_was_good() -> None:
    async def main() -> None:
        world = World()
        world.call("answered")
        world.wall()
        world.call("refused", model="haiku")
        assert await came_back(world, "The parser is fine; nothing to report.") == ""

    run(main())


def test_without_a_gateway_the_clients_own_numbers_and_words_are_evidence_together() -> None:
    async def main() -> None:
        world = World()
        assert "terminated_by quota" in await came_back(world, WALL, NOTHING_USED)
        assert await came_back(World(), "It is done.", NOTHING_USED) == ""

    run(main())


def test_an_agent_that_was_answered_costs_its_parent_no_wait() -> None:
    async def main() -> None:
        world = World()
        world.call("answered")
        began = world.clock.monotonic()
        assert await came_back(world, "It is done.") == ""
        assert world.clock.monotonic() - began < 1.0
        blind = World()
        began = blind.clock.monotonic()
        assert await came_back(blind, "It is done.") == ""
        assert blind.clock.monotonic() - began >= 2.0, "here the transcript had to be waited for"

    run(main())


def test_what_it_had_finished_is_read_in_its_transcript(tmp_path: Path) -> None:
    async def main() -> None:
        world = World()
        session = tmp_path / "s1.jsonl"
        agents = tmp_path / "s1" / "subagents"
        agents.mkdir(parents=True)
        shutil.copy(SAMPLES / "died_after_work.jsonl", agents / "agent-a1.jsonl")
        answer = await world.hook(
            "PostToolUse",
            tool_name="Agent",
            transcript_path=str(session),
            tool_response=gave_back(WALL),
        )
        reported = answer["hookSpecificOutput"]["updatedToolOutput"]["content"][0]["text"]
        assert "had finished 1 turns with 1 tool calls" in reported

    run(main())


NOTE = (
    "<task-notification>\n<task-id>a1</task-id>\n<status>{}</status>\n"
    "<summary>Agent {}</summary>\n<result>{}</result>\n</task-notification>"
)


@pytest.mark.parametrize(
    "prompt",
    [
        NOTE.format("failed", f"failed: an API error: {WALL}", "Looking."),
        NOTE.format("completed", "finished", WALL),
    ],
    ids=["2.1.325", "2.1.197"],
)
def test_a_background_agent_is_reported_with_its_notification_and_only_once(prompt: str) -> None:
    async def main() -> None:
        world = World()
        world.wall()
        world.call("refused")
        answer = await world.hook("UserPromptSubmit", prompt=prompt)
        assert "terminated_by quota" in answer["hookSpecificOutput"]["additionalContext"]
        # The client's own hook of the same death comes late.
        await world.hook("StopFailure", agent_id="a1", last_assistant_message=WALL)
        assert await world.hook("UserPromptSubmit", prompt="and now?") == {}
        assert await world.hook("UserPromptSubmit", prompt=prompt) == {}

    run(main())


def test_an_agent_that_was_resumed_and_died_again_is_reported_again() -> None:
    async def main() -> None:
        world = World()
        for _ in range(2):
            world.wall()
            world.call("refused")
            assert "terminated_by quota" in await came_back(world, WALL)
            await world.clock.advance(60)
            world.call("answered")

    run(main())


def test_a_death_reported_between_turns_is_reported_with_the_next_prompt() -> None:
    async def main() -> None:
        world = World()
        await world.hook("StopFailure", agent_id="a1", last_assistant_message=WALL)
        assert await world.hook("UserPromptSubmit", session_id="s2", prompt="hello") == {}
        answer = await world.hook("UserPromptSubmit", prompt="hello")
        assert "Sub-agent a1" in answer["hookSpecificOutput"]["additionalContext"]
        assert await world.hook("UserPromptSubmit", prompt="hello") == {}

    run(main())


# --- who is trusted ---------------------------------------------------------------------------


def answered(world: World, path: bytes, reported: object, **headers: str) -> tuple[int, bytes]:
    question = Question(path, reported, **headers)
    world.endpoint.answer(question)
    assert question.answer is not None
    return question.answer


def test_strangers_are_not_answered_and_the_line_is_the_services() -> None:
    world = World()
    assert answered(world, b"/_jackline/hook", {})[0] == 401
    assert answered(world, b"/_jackline/statusline", {"session_id": "s9"})[0] == 401
    line = answered(world, b"/_jackline/statusline", {"session_id": "s9"}, x_jackline_control="t")
    assert line == (200, b"line of s9")


def test_of_a_stranger_nothing_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    monkeypatch.setattr(endpoint, "parse_hook_input", parsed.append)
    world = World()
    for path in (b"/_jackline/hook", b"/_jackline/statusline"):
        for headers in ({}, {"x_jackline_hook": "guessed"}, {"x_jackline_control": "guessed"}):
            assert answered(world, path, {"tool_response": [{}] * 9}, **headers)[0] == 401
    assert parsed == []


def test_the_plugins_token_is_good_for_news_of_an_end_and_for_nothing_else() -> None:
    async def main() -> None:
        world = World()
        news = {
            "hook_event_name": "StopFailure",
            "session_id": "s1",
            "cwd": "/elsewhere",
            "last_assistant_message": WALL,
        }
        assert answered(world, b"/_jackline/hook", news, x_jackline_hook="guessed")[0] == 401
        prompt = {**news, "hook_event_name": "UserPromptSubmit"}
        assert answered(world, b"/_jackline/hook", prompt, x_jackline_hook=TOKEN)[0] == 401
        assert answered(world, b"/_jackline/statusline", news, x_jackline_hook=TOKEN)[0] == 401
        assert answered(world, b"/_jackline/hook", news, x_jackline_hook=TOKEN) == (200, b"")
        assert world.stopped == [], "a session that no trusted hook has reported"
        await world.hook("UserPromptSubmit", prompt="go")
        assert answered(world, b"/_jackline/hook", news, x_jackline_hook=TOKEN) == (200, b"")
        (stopped,) = world.stopped
        assert (stopped.session.cwd, stopped.session.processes) == ("/work", (41, 40))

    run(main())


def test_a_wall_that_the_gateway_hands_to_a_main_thread_stops_its_session_once() -> None:
    async def main() -> None:
        world = World()
        world.wall()
        world.call("refused", agent=None)
        assert world.stopped == [], "nobody knows where it lives"
        await world.hook("UserPromptSubmit", prompt="go", transcript_path="/t/s1.jsonl")
        world.wall()
        world.call("refused", agent=None, tag="run-1")
        (stopped,) = world.stopped
        assert (stopped.session.id, stopped.session.transcript) == ("s1", "/t/s1.jsonl")
        assert (stopped.model, stopped.run) == ("opus", "run-1")
        assert stopped.cause.resets_at == NOON.replace(hour=15)
        await world.hook("StopFailure", last_assistant_message=WALL)
        world.call("refused", agent=None, attempts=0)
        assert len(world.stopped) == 1
        await world.clock.advance(5 * 3600)
        await world.hook("StopFailure", last_assistant_message=WALL)
        assert len(world.stopped) == 2, "the next wall is another one"

    run(main())


def test_the_mode_of_a_session_is_the_latest_of_its_main_thread() -> None:
    async def main() -> None:
        world = World()
        await world.hook("UserPromptSubmit", prompt="go", permission_mode="plan")
        await world.hook("PreToolUse", agent_id="a1", permission_mode="acceptEdits")
        await world.hook("SessionStart")
        news = {"hook_event_name": "StopFailure", "session_id": "s1", "permission_mode": "default"}
        news["last_assistant_message"] = WALL
        assert answered(world, b"/_jackline/hook", news, x_jackline_hook=TOKEN) == (200, b"")
        (stopped,) = world.stopped
        assert stopped.session.mode == "plan"

    run(main())


def test_a_hooks_answer_is_what_the_client_reads() -> None:
    async def main() -> None:
        world = World()
        world.wall()
        world.call("refused")
        answer = await world.hook("PostToolUse", tool_name="Agent", tool_response=gave_back(WALL))
        assert json.dumps(answer)
        assert answer["hookSpecificOutput"]["hookEventName"] == "PostToolUse"

    run(main())
