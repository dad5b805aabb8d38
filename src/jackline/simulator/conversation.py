"""Read a client's request: who asks, what for, and where in its conversation it stands.

Laws: (1) pure; a body that is not as expected gives empty answers, never an error; (2) what clients
wrap in tags (`<system-reminder>`) is not what the user asked.
Not here: choosing the reply (mind.py), HTTP (http_wire.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]

BYTES_PER_TOKEN = 4
_MODEL_ITEMS = ("function_call", "custom_tool_call", "reasoning")
_RESULT_ITEMS = ("function_call_output", "custom_tool_call_output")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as a mind sees it."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    size: int
    body_hash: str
    prompt: str
    """The first thing the user asked."""
    latest: str
    """All text of the last entry."""
    results: str
    """All text of the tool results in the last entry."""
    turn: int
    """How often the model has spoken in this conversation; a retry keeps its turn."""
    call: int
    """How many requests this speaker made before; a retry counts."""

    @property
    def agent(self) -> str:
        """The sub-agent that asks, or "" for the main thread."""
        return self.headers.get("x-claude-code-agent-id", "")

    @property
    def session(self) -> str:
        """The session that asks."""
        headers = self.headers
        named = headers.get("x-claude-code-session-id") or headers.get("session-id")
        return named or str(self.body.get("prompt_cache_key") or "")

    @property
    def model(self) -> str:
        """The model that is asked."""
        return str(self.body.get("model", ""))

    @property
    def stream(self) -> bool:
        """Whether the answer shall come in events."""
        return bool(self.body.get("stream"))

    @property
    def tools(self) -> frozenset[str]:
        """The names of the tools that the client offers."""
        return frozenset(_tool_name(tool) for tool in _objects(self.body.get("tools")))

    @property
    def wants_json(self) -> bool:
        """Whether the answer's text shall be a JSON document by a schema."""
        body = self.body
        places = (
            body.get("response_format"),
            _inside(body.get("text"), "format"),
            _inside(body.get("output_config"), "format"),
            body.get("output_format"),
        )
        return any(_inside(place, "type") in ("json_schema", "json_object") for place in places)

    @property
    def input_tokens(self) -> int:
        """About four bytes to a token."""
        return max(4, self.size // BYTES_PER_TOKEN)


def read_asked(
    path: str,
    headers: Mapping[str, str],
    raw: bytes,
    call: int = 0,
    told_by_path: Mapping[str, Any] | None = None,
) -> Asked | None:
    """The request, or None when its body is not a JSON object.

    `told_by_path` are fields that some endpoints have in their address instead of in the body.
    """
    try:
        body = json.loads(raw)
    except ValueError:
        return None
    if not isinstance(body, dict):
        return None
    if told_by_path:
        body = {**body, **told_by_path}
    entries = _entries(body)
    last = entries[-1] if entries else {}
    return Asked(
        path=path,
        headers=headers,
        body=body,
        size=len(raw),
        body_hash=hashlib.sha256(raw).hexdigest()[:16],
        prompt=_first_prompt(entries),
        latest="" if last.get("role") == "tool" else "\n".join(_texts(last)),
        results="\n".join(_results(entries)),
        turn=_turns(entries),
        call=call,
    )


def _entries(body: Mapping[str, Any]) -> list[JsonObject]:
    given = body.get("messages") or body.get("input")
    return [{"role": "user", "content": given}] if isinstance(given, str) else _objects(given)


def _first_prompt(entries: Iterable[JsonObject]) -> str:
    for entry in entries:
        if entry.get("role") != "user":
            continue
        for text in _texts(entry):
            if text and not text.lstrip().startswith("<"):
                return text
    return ""


def _turns(entries: Iterable[JsonObject]) -> int:
    """Runs of the model's entries, so that a batch of calls counts once."""
    spoken = [_from_model(entry) for entry in entries]
    return sum(now and not before for before, now in zip([False, *spoken], spoken, strict=False))


def _from_model(entry: JsonObject) -> bool:
    return entry.get("role") == "assistant" or entry.get("type") in _MODEL_ITEMS


def _texts(entry: JsonObject) -> Iterable[str]:
    content = entry.get("content")
    if isinstance(content, str):
        yield content
    for block in _objects(content):
        if isinstance(block.get("text"), str):
            yield block["text"]


def _results(entries: list[JsonObject]) -> Iterable[str]:
    """The results since the model spoke: blocks of the last entry, or entries of their own."""
    fresh = list(takewhile(lambda entry: not _from_model(entry), reversed(entries)))
    for entry in reversed(fresh):
        if entry.get("type") in _RESULT_ITEMS:
            yield from _texts({"content": entry.get("output")})
        elif entry.get("role") == "tool":
            yield from _texts(entry)
    for block in _objects(entries[-1].get("content")) if entries else ():
        if block.get("type") == "tool_result":
            yield from _texts(block)


def _tool_name(tool: JsonObject) -> str:
    return str(tool.get("name") or _inside(tool.get("function"), "name") or "")


def _inside(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, dict) else None


def _objects(value: object) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
