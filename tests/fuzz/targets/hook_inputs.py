"""The endpoint for Claude Code's hooks: any bytes as a hook's input, from whoever has the token.

Rules: every input is answered once, with an empty body or a JSON object, and nothing raises; an
input without the token is answered with 401, or empty for news of an end.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable

from jackline.hooks.endpoint import HOOK, LINE
from jackline.hooks.hook_input import HEADER
from tests.hooks.hook_requests import TOKEN, Question, World

WORDS = (
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b'"',
        b"null",
        b"true",
        b"1e999",
        b"\xff",
        b'"\\ud800"',
        b"[" * 60,
    ),
    *(b'"hook_event_name":', b'"session_id":', b'"transcript_path":', b'"agent_id":', b'"cwd":'),
    *(
        b'"tool_name":',
        b'"tool_use_id":',
        b'"tool_response":',
        b'"error":',
        b'"prompt":',
        b'"Agent"',
    ),
    *(b'"StopFailure"', b'"SubagentStart"', b'"PostToolUse"', b'"PostToolUseFailure"', b'"Task"'),
    *(b'"UserPromptSubmit"', b'"agentId":', b'"status":"completed"', b'"usage":', b'"content":'),
    *(
        b"<task-notification>",
        b"</task-notification>",
        b"<task-id>a1</task-id>",
        b"<result>",
        b"../",
    ),
    *(b"<status>failed</status>", b"<summary>", b"</summary>", b'"last_assistant_message":'),
)


def seeds() -> Iterable[bytes]:
    """Hooks as the client asks them."""
    common = {"session_id": "s1", "transcript_path": "nowhere/s1.jsonl", "cwd": "nowhere"}
    note = "<task-notification><task-id>a1</task-id><status>failed</status><summary>x</summary>"
    back = {"agentId": "a1", "status": "completed", "usage": {"input_tokens": 0}, "content": "x"}
    for event in (
        {"hook_event_name": "StopFailure", "error": "429", "last_assistant_message": "limit"},
        {"hook_event_name": "StopFailure", "agent_id": "a1", "error": "529"},
        {"hook_event_name": "SubagentStart", "agent_id": "a1"},
        {"hook_event_name": "PostToolUse", "tool_name": "Agent", "tool_response": back},
        {"hook_event_name": "PostToolUseFailure", "tool_name": "Agent", "tool_use_id": "t1"},
        {"hook_event_name": "UserPromptSubmit", "prompt": note + "</task-notification>"},
        {"hook_event_name": "SessionStart"},
    ):
        yield json.dumps(common | event).encode()
    yield b""
    yield b"[]"


def check(data: bytes) -> None:
    """Ask the endpoint with and without a token, and for the status line."""
    asyncio.run(_check(data))


async def _check(data: bytes) -> None:
    world = World()
    plugin = {HEADER.replace("-", "_"): TOKEN}
    for path, headers in (
        (HOOK, {"x_jackline_control": "t"}),
        (LINE, {"x_jackline_control": "t"}),
        (HOOK, plugin),
        (HOOK, {}),
    ):
        question = Question(path, None, **headers)
        question.body = data
        world.endpoint.answer(question)
        while pending := asyncio.all_tasks() - {asyncio.current_task()}:
            # Files are read in threads, which know no virtual time: it passes for sleepers alone.
            done, _ = await asyncio.wait(pending, timeout=0.0005)
            for task in done:
                task.result()
            if world.clock._sleepers:
                await world.clock.advance(0.05)
        assert question.answer is not None, "nobody answers"
        status, body = question.answer
        assert status == 200 or (status == 401 and "x_jackline_control" not in headers)
        if path == HOOK and status == 200 and body:
            assert isinstance(json.loads(body), dict)
