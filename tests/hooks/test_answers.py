"""Hooks change nothing unless a sub-agent truly died, and tell each death once."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from jackline.clock import VirtualClock
from jackline.failures import Observation, Where, classify
from jackline.hooks.answering import added, death_words, rewritten
from jackline.hooks.asked import HookAsked, read_asked
from jackline.hooks.deaths import Death, Deaths
from jackline.hooks.face import HooksFace
from tests.assembly.world import run

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
WALL = "You've hit your session limit · resets 3pm (UTC)"


def death(agent: str = "a1", text: str = WALL) -> Death:
    failure = classify(Observation(Where.CLI_TEXT, text=text), now=NOON)
    return Death("s1", agent, failure)


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
    asked = HookAsked("PostToolUse", "s1", tool_name="Agent", tool_response=told)
    answer = json.loads(json.dumps(rewritten(asked, "It died. More.")))
    new = answer["hookSpecificOutput"]["updatedToolOutput"]
    assert new == {**told, "content": [{"type": "text", "text": "It died. More."}]}
    assert answer["hookSpecificOutput"]["additionalContext"] == "It died."


def test_only_events_that_reach_the_model_carry_words_and_only_for_the_main_thread() -> None:
    assert added(HookAsked("UserPromptSubmit", "s1"), ["told"])
    assert added(HookAsked("Stop", "s1"), ["told"]) == {}
    assert added(HookAsked("UserPromptSubmit", "s1", agent_id="a1"), ["told"]) == {}
    assert added(HookAsked("UserPromptSubmit", "s1"), []) == {}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["die", "live", "tell"]))))
def test_each_death_is_told_once_and_never_after_a_revival(steps: list[tuple[str, str]]) -> None:
    deaths = Deaths()
    dead: set[str] = set()
    for agent, step in steps:
        if step == "die":
            deaths.heard(death(agent))
            dead.add(agent)
        elif step == "live":
            deaths.revived("s1", agent)
            dead.discard(agent)
        else:
            found = deaths.tell("s1", agent)
            assert (found is not None) == (agent in dead)
            dead.discard(agent)
    assert {each.agent for each in deaths.tell_all("s1")} == dead
    assert deaths.tell_all("s1") == []


@given(st.binary(max_size=60))
def test_no_input_makes_a_hook_stumble(body: bytes) -> None:
    asked = read_asked(body)
    assert asked is None or isinstance(asked.notified, list)


def test_a_transcript_is_looked_for_below_the_sessions_own_folder_only() -> None:
    asked = HookAsked("PostToolUse", "s1", transcript_path="/home/me/.claude/projects/p/s1.jsonl")
    assert asked.transcript_of("../../etc/passwd") is None
    assert asked.transcript_of("a1") == Path(
        "/home/me/.claude/projects/p/s1/subagents/agent-a1.jsonl"
    )


class Answered:
    """A request to the face, and its answer."""

    def __init__(self, path: bytes, told: object) -> None:
        self.method, self.path, self.query = b"POST", path, b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.body: bytes | bytearray = json.dumps(told).encode()
        self.gone, self.paused = False, False
        self.on_gone: Callable[[], None] | None = None
        self.on_resume: Callable[[], None] | None = None
        self.answer: tuple[int, bytes] | None = None

    def header(self, lowercase_name: bytes) -> bytes | None:  # noqa: ARG002
        return None

    def respond(
        self,
        status: int,
        headers: object = (),  # noqa: ARG002
        body: bytes = b"",
        notes: bytes = b"",  # noqa: ARG002
    ) -> None:
        self.answer = (status, body)

    def begin(self, status: int, headers: object = (), notes: bytes = b"") -> None: ...
    def send(self, data: bytes) -> None: ...
    def finish(self) -> None: ...
    def reset(self) -> None: ...


def test_strangers_are_not_answered_and_the_line_is_the_services() -> None:
    async def main() -> None:
        trusted = [False]
        face = HooksFace(
            VirtualClock(NOON),
            lambda _asked: trusted[0],
            lambda session: f"line of {session}",
            lambda _told, _failure, _processes: None,
        )
        stranger = Answered(b"/_jackline/hook", {})
        face.answer(stranger)
        assert stranger.answer is not None
        assert stranger.answer[0] == 401
        trusted[0] = True
        line = Answered(b"/_jackline/statusline", {"session_id": "s9"})
        face.answer(line)
        assert line.answer == (200, b"line of s9")

    run(main())


def test_a_main_thread_that_stopped_is_reported_with_its_failure() -> None:
    async def main() -> None:
        stopped: list[str] = []
        face = HooksFace(
            VirtualClock(NOON),
            lambda _asked: True,
            lambda _session: "",
            lambda told, failure, _processes: stopped.append(
                f"{told.session_id} {failure.kind.value}"
            ),
        )
        told = {
            "hook_event_name": "StopFailure",
            "session_id": "s1",
            "last_assistant_message": WALL,
        }
        asked = Answered(b"/_jackline/hook", told)
        face.answer(asked)
        while asked.answer is None:
            await VirtualClock(NOON).sleep(0)
        assert asked.answer == (200, b"")
        assert stopped == ["s1 account_quota"]

    run(main())
