"""What Claude Code has written down is read as it is, to go on from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.dialects import TokenUsage
from jackline.errors import UnreadableError
from jackline.transcripts.saved_conversation import read_claude_session, read_dead_agent
from jackline.transcripts.sources import ClientFolders
from jackline.transcripts.story import TranscriptEnd
from tests.agents.claude_code.streams import SESSION, call, text


def entry(kind: str, content: object, **more: Any) -> dict[str, Any]:
    message = {"role": kind, "content": content, **more.pop("message", {})}
    given = {"type": kind, "sessionId": SESSION, "agentId": "a1", "isSidechain": True}
    return {**given, "timestamp": "2026-11-15T06:57:28.001Z", "message": message, **more}


def answer(name: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    usage = {"input_tokens": 5, "output_tokens": 2}
    told = {"id": name, "model": "claude-opus-4-8", "usage": usage}
    return entry("assistant", list(blocks), message=told)


def came(name: str, words: str) -> dict[str, Any]:
    return entry("user", [{"type": "tool_result", "tool_use_id": name, "content": words}])


def api_error(words: str) -> dict[str, Any]:
    told = {"id": "e", "model": "<synthetic>"}
    marks = {"isApiErrorMessage": True, "apiErrorStatus": 429, "error": "rate_limit"}
    return entry("assistant", [text(words)], message=told, **marks)


LIFE = [
    entry("user", "THE SUB-TASK"),
    entry("user", "<system-reminder>no prompt</system-reminder>", isMeta=True),
    answer("m1", text("I look.")),
    answer("m1", call("t1", command="ls"), call("t2", command="pwd")),
    came("t2", "/p"),
    came("t1", "a.py"),
    answer("m2", text("I build."), call("t3", command="make")),
    api_error("You've hit your session limit · resets 8:02am (UTC)"),
]


def written(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_of_a_dead_sub_agent_prompt_finished_turns_and_last_state_are_known(
    tmp_path: Path,
) -> None:
    dead = read_dead_agent(written(tmp_path / "agent-a1.jsonl", LIFE))
    assert (dead.agent_id, dead.session_id, dead.prompt) == ("a1", SESSION, "THE SUB-TASK")
    (turn,) = dead.turns
    assert turn.text == "I look."
    assert [one.shown_input for one in turn.calls] == ['{"command": "ls"}', '{"command": "pwd"}']
    assert dead.results == {"t1": "a.py", "t2": "/p"}
    assert [one.id for one in dead.lost] == ["t3"]
    assert dead.last_words == "I look."
    assert dead.story.ending is TranscriptEnd.FAILED
    assert dead.story.failures[-1].failure.kind == "account_quota"


RECORDED = sorted((Path(__file__).parents[2] / "data").rglob("agent-*.jsonl"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_what_real_sub_agents_left_behind_can_be_gone_on_from(path: Path) -> None:
    dead = read_dead_agent(path)
    assert path.stem == f"agent-{dead.agent_id}"
    assert dead.prompt
    assert dead.session_id


@given(st.integers(0, 5000))
def test_a_transcript_that_was_cut_off_anywhere_never_shows_an_unfinished_turn(
    tmp_path_factory: pytest.TempPathFactory, place: int
) -> None:
    path = written(tmp_path_factory.mktemp("cut") / "agent-a1.jsonl", LIFE)
    whole = path.read_bytes()
    path.write_bytes(whole[: place % (len(whole) + 1)])
    try:
        dead = read_dead_agent(path)
    except UnreadableError:
        return
    assert all(call.id in dead.results for turn in dead.turns for call in turn.calls)
    assert len(dead.turns) <= 1


def test_a_file_without_a_conversation_is_said_to_have_none(tmp_path: Path) -> None:
    (tmp_path / "agent-x.jsonl").write_text("not a line\n")
    with pytest.raises(UnreadableError, match="no conversation"):
        read_dead_agent(tmp_path / "agent-x.jsonl")
    with pytest.raises(UnreadableError, match="cannot be read"):
        read_dead_agent(tmp_path / "none.jsonl")


def test_a_session_knows_its_prompts_its_lost_calls_and_what_it_had_cost(tmp_path: Path) -> None:
    main = [{**line, "isSidechain": False} for line in LIFE]
    cost = {
        "type": "cost-state",
        "totalCostUSD": 0.5,
        "modelUsage": {"claude-opus-4-8": {"inputTokens": 7, "outputTokens": 3}},
    }
    side = answer("s1", call("t9", command="not ours"))
    session = read_claude_session(written(tmp_path / f"{SESSION}.jsonl", [*main, cost, side]))
    assert session.prompts == ["THE SUB-TASK"]
    assert [one.id for one in session.lost] == ["t3"]
    assert set(session.results) == {"t1", "t2"}
    assert session.cost == 0.5
    assert session.tokens["claude-opus-4-8"] == TokenUsage(7, 3)


def test_a_transcript_is_found_by_its_session_wherever_its_project_lies(tmp_path: Path) -> None:
    path = written(tmp_path / "projects" / "-some-project" / f"{SESSION}.jsonl", LIFE)
    folders = ClientFolders.of_process({"CLAUDE_CONFIG_DIR": str(tmp_path)})
    assert folders.claude_transcript(SESSION) == path
    assert folders.claude_transcript("none") is None
    assert folders.claude_transcript(f"../-some-project/{SESSION}") is None
    assert ClientFolders.of_process({"HOME": str(tmp_path)}).claude_transcript(SESSION) is None
