"""A prompt that could be a command is sent as text, and is found again in the conversation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jackline.agents.claude_code.runner import ClaudeCodeRunner
from jackline.agents.runner import AgentTask

SESSION = "0b0e2a0c-0000-4000-8000-000000000002"


@pytest.mark.parametrize(
    "prompt", ["Do it.", "# Plan\n\nDo it.", "- one\n- two", "/config", " x", ""]
)
def test_a_conversation_that_holds_its_task_is_not_told_it_again(
    tmp_path: Path, prompt: str
) -> None:
    environ = {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path)}
    runner = ClaudeCodeRunner("http://127.0.0.1:1", environment=environ)
    task = AgentTask("t", SESSION, prompt, cwd=tmp_path)
    transcript = tmp_path / ".claude" / "projects" / "-w" / f"{SESSION}.jsonl"
    transcript.parent.mkdir(parents=True)
    message = {"role": "user", "content": runner.as_text(prompt)}
    more = {"sessionId": SESSION, "uuid": "u1", "timestamp": "2026-11-15T06:57:28.001Z"}
    transcript.write_text(json.dumps({"type": "user", "message": message, **more}) + "\n")
    saved = runner.saved_session(task, SESSION)
    assert (saved.session_id, saved.holds_task) == (SESSION, True)
