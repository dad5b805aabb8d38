"""Lines as `claude -p --output-format stream-json` prints them."""

from __future__ import annotations

import json
from typing import Any

SESSION = "11111111-1111-4111-8111-111111111111"


def line(type_: str, **more: Any) -> bytes:
    return json.dumps({"type": type_, "session_id": SESSION, **more}).encode() + b"\n"


def init() -> bytes:
    return line("system", subtype="init", model="claude-opus-4-8[1m]", tools=["Bash"])


def said(name: str, *blocks: dict[str, Any], parent: str | None = None) -> bytes:
    usage = {"input_tokens": 3, "output_tokens": 1, "cache_read_input_tokens": 10}
    message = {
        "id": name,
        "model": "claude-opus-4-8",
        "content": list(blocks),
        "stop_reason": None,
        "usage": usage,
    }
    return line("assistant", message=message, parent_tool_use_id=parent, request_id=f"req_{name}")


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(name: str, tool: str = "Bash", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": tool, "input": given}


def resulted(name: str, words: str) -> bytes:
    block = {"type": "tool_result", "tool_use_id": name, "content": words}
    message = {"role": "user", "content": [block]}
    return line("user", message=message, parent_tool_use_id=None)


def synthetic(words: str, tag: str | None = "rate_limit") -> bytes:
    message = {"id": "x", "model": "<synthetic>", "content": [text(words)], "usage": {}}
    more = {} if tag is None else {"error": tag}
    return line("assistant", message=message, parent_tool_use_id=None, request_id="req_e", **more)


def retried() -> bytes:
    return line("system", subtype="api_retry", attempt=1, error_status=529, error="overloaded")


def task_started(name: str) -> bytes:
    return line("system", subtype="task_started", task_id=name, task_type="local_agent")


def task_ended(name: str, status: str) -> bytes:
    return line("system", subtype="task_notification", task_id=name, status=status)


def result(**more: Any) -> bytes:
    usage = {"inputTokens": 6, "outputTokens": 40, "cacheReadInputTokens": 20}
    given = {
        "subtype": "success",
        "is_error": False,
        "result": "The answer.",
        "stop_reason": "end_turn",
        "total_cost_usd": 0.5,
        "modelUsage": {"claude-opus-4-8": usage},
        **more,
    }
    return line("result", **given)
