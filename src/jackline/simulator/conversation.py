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
from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]

BYTES_PER_TOKEN = 4


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
        return headers.get("x-claude-code-session-id") or headers.get("session-id", "")

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
        return frozenset(str(tool.get("name", "")) for tool in _objects(self.body.get("tools")))

    @property
    def input_tokens(self) -> int:
        """About four bytes to a token."""
        return max(4, self.size // BYTES_PER_TOKEN)

    @property
    def cached_tokens(self) -> int:
        """The part of the input that an earlier turn has put in the cache."""
        return self.input_tokens * 9 // 10 if self.turn else 0


def read_asked(path: str, headers: Mapping[str, str], raw: bytes, call: int = 0) -> Asked | None:
    """The request, or None when its body is not a JSON object."""
    try:
        body = json.loads(raw)
    except ValueError:
        return None
    if not isinstance(body, dict):
        return None
    entries = _objects(body.get("messages") or body.get("input"))
    last = entries[-1] if entries else {}
    return Asked(
        path=path,
        headers=headers,
        body=body,
        size=len(raw),
        body_hash=hashlib.sha256(raw).hexdigest()[:16],
        prompt=_first_prompt(entries),
        latest="\n".join(_texts(last)),
        results="\n".join(_results(last)),
        turn=_turns(entries),
        call=call,
    )


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
    spoken = [e.get("role") == "assistant" or e.get("type") == "function_call" for e in entries]
    return sum(now and not before for before, now in zip([False, *spoken], spoken, strict=False))


def _texts(entry: JsonObject) -> Iterable[str]:
    content = entry.get("content")
    if isinstance(content, str):
        yield content
    for block in _objects(content):
        if isinstance(block.get("text"), str):
            yield block["text"]


def _results(entry: JsonObject) -> Iterable[str]:
    if entry.get("type") == "function_call_output":
        yield str(entry.get("output", ""))
    for block in _objects(entry.get("content")):
        if block.get("type") == "tool_result":
            yield from _texts(block)


def _objects(value: object) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
