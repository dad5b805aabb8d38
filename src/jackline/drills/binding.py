"""Check that every tool call of a conversation has its own result, in any vendor's words.

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
_FROM_MODEL = ("function_call", "reasoning")


def misbound(body: JsonObject) -> int:
    """How many calls and results of this request's conversation do not fit together."""
    wrong = 0
    calls: dict[str, str] = {}
    for entry in _entries(body):
        results = list(_results(entry))
        for id_, words in results:
            word = calls.pop(id_, None)
            wrong += word is None or word not in words
        if not results or entry.get("role") == "assistant":
            wrong += len(calls)
            calls = dict(_calls(entry))
    # What is called last is answered by the next request.
    return wrong


def _entries(body: JsonObject) -> Iterable[JsonObject]:
    """What was said, in order; items of Responses that belong to one turn come together."""
    if "input" not in body:
        yield from _objects(body.get("messages"))
        return
    said: list[JsonObject] = []
    for item in _objects(body["input"]):
        if item.get("type") in _FROM_MODEL or item.get("role") == "assistant":
            said.append(item)
            continue
        if said:
            yield {"role": "assistant", "items": said}
            said = []
        yield item
    if said:
        yield {"role": "assistant", "items": said}


def _calls(entry: JsonObject) -> Iterable[tuple[str, str]]:
    """The calls of one of the model's entries: the id, and the word that it echoes."""
    for call in _objects(entry.get("tool_calls")):
        function = call.get("function", {})
        yield str(call.get("id")), _word(json.loads(function.get("arguments") or "{}"))
    for item in _objects(entry.get("items")):
        if item.get("type") == "function_call":
            yield str(item.get("call_id")), _word(json.loads(item.get("arguments") or "{}"))
    for block in _objects(entry.get("content")):
        if block.get("type") == "tool_use":
            yield str(block.get("id")), _word(block.get("input", {}))


def _results(entry: JsonObject) -> Iterable[tuple[str, str]]:
    if entry.get("type") == "function_call_output":
        yield str(entry.get("call_id")), json.dumps(entry.get("output"))
    if entry.get("role") == "tool":
        yield str(entry.get("tool_call_id")), json.dumps(entry.get("content"))
    for block in _objects(entry.get("content")):
        if block.get("type") == "tool_result":
            yield str(block.get("tool_use_id")), json.dumps(block.get("content"))


def _word(given: JsonObject) -> str:
    command = str(given.get("command") or given.get("cmd") or "")
    return command.removeprefix(ECHO) if command.startswith(ECHO) else ""


def _objects(value: object) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
