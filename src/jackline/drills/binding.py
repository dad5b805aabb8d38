"""Check that every tool call of a conversation has its own result, in either vendor's words.

Laws: (1) pure; (2) calls and results belong together by id, within one turn of the model; (3) a
call that echoes a word must have that word in its result, so that swapped ids are seen.
Not here: what the model says (catalogue.py), other figures (judging.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

JsonObject: TypeAlias = Mapping[str, Any]

ECHO = "echo "


def misbound(body: JsonObject) -> int:
    """How many calls and results of this request's conversation do not fit together."""
    wrong = 0
    calls: dict[str, str] = {}
    for entry in _objects(body.get("messages")):
        results = list(_results(entry))
        for id_, words in results:
            word = calls.pop(id_, None)
            wrong += word is None or word not in words
        if not results or entry.get("role") == "assistant":
            wrong += len(calls)
            calls = dict(_calls(entry))
    # What is called last is answered by the next request.
    return wrong


def _calls(entry: JsonObject) -> Iterable[tuple[str, str]]:
    """The calls of one of the model's entries: the id, and the word that it echoes."""
    for call in _objects(entry.get("tool_calls")):
        function = call.get("function", {})
        yield str(call.get("id")), _word(json.loads(function.get("arguments") or "{}"))
    for block in _objects(entry.get("content")):
        if block.get("type") == "tool_use":
            yield str(block.get("id")), _word(block.get("input", {}))


def _results(entry: JsonObject) -> Iterable[tuple[str, str]]:
    if entry.get("role") == "tool":
        yield str(entry.get("tool_call_id")), json.dumps(entry.get("content"))
    for block in _objects(entry.get("content")):
        if block.get("type") == "tool_result":
            yield str(block.get("tool_use_id")), json.dumps(block.get("content"))


def _word(given: JsonObject) -> str:
    command = str(given.get("command", ""))
    return command.removeprefix(ECHO) if command.startswith(ECHO) else ""


def _objects(value: object) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
