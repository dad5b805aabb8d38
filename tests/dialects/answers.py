"""Answers as the vendor streams them, small enough to be cut at every byte.

Rules: (1) each is valid from message_start to message_stop; (2) what a client must have at the end
is written down apart from the bytes.
Not here: the client that reads them (strict_client.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Block = dict[str, Any]


@dataclass(frozen=True)
class Answered:
    """An answer: its content, its stop reason, and its events as bytes."""

    blocks: list[Block]
    stop_reason: str
    events: list[bytes]

    @property
    def stream(self) -> bytes:
        return b"".join(self.events)


def event(kind: str, **fields: object) -> bytes:
    data = json.dumps({"type": kind, **fields}, ensure_ascii=False, separators=(",", ":"))
    return f"event: {kind}\ndata: {data}\n\n".encode()


PING = event("ping")


def text(texts: str) -> Block:
    return {"type": "text", "text": texts}


def thinking(texts: str) -> Block:
    return {"type": "thinking", "thinking": texts, "signature": "c2ln"}


def tool(name: str, **value: object) -> Block:
    return {"type": "tool_use", "id": f"toolu_{name}", "name": name, "input": value}


def answered(
    blocks: Sequence[Block],
    stop_reason: str = "end_turn",
    *,
    id: str = "msg_1",  # noqa: A002 -- the name of the field
    line_end: bytes = b"\n",
    pings: bool = True,
) -> Answered:
    """Stream some content, with pings where the vendor puts them."""
    message: dict[str, object] = {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": 11, "cache_read_input_tokens": 5, "output_tokens": 1},
    }
    events = [event("message_start", message=message)]
    for index, block in enumerate(blocks):
        events.append(event("content_block_start", index=index, content_block=_empty(block)))
        if pings and index == 0:
            events.append(PING)
        events += [
            event("content_block_delta", index=index, delta=delta) for delta in _deltas(block)
        ]
        events.append(event("content_block_stop", index=index))
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    events.append(event("message_delta", delta=delta, usage={"output_tokens": 42}))
    events.append(event("message_stop"))
    return Answered(list(blocks), stop_reason, [one.replace(b"\n", line_end) for one in events])


def _empty(block: Block) -> Block:
    match block["type"]:
        case "text":
            return {**block, "text": ""}
        case "thinking":
            return {**block, "thinking": "", "signature": ""}
        case "tool_use" | "server_tool_use":
            return {**block, "input": {}}
    return block


def _deltas(block: Block) -> Iterable[Block]:
    match block["type"]:
        case "text":
            yield from ({"type": "text_delta", "text": part} for part in _parts(block["text"], 7))
        case "thinking":
            for part in _parts(block["thinking"], 9):
                yield {"type": "thinking_delta", "thinking": part}
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "tool_use" | "server_tool_use":
            yield {"type": "input_json_delta", "partial_json": ""}
            for part in _parts(json.dumps(block["input"]), 11):
                yield {"type": "input_json_delta", "partial_json": part}


def _parts(texts: str, size: int) -> list[str]:
    return [texts[at : at + size] for at in range(0, len(texts), size)]


SEARCH: Block = {
    "type": "server_tool_use",
    "id": "srv_1",
    "name": "web_search",
    "input": {"q": "x"},
}
FOUND: Block = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"a": 1}]}

ANSWERS: dict[str, Answered] = {
    "text": answered([text("Two roads, and I took the other one. ")]),
    "thinking and text": answered([thinking("Hm, let me see."), text("It is four.")]),
    "text and a tool": answered([text("I look.\n\n"), tool("Bash", command="ls")], "tool_use"),
    "parallel tools": answered(
        [tool("Read", path="a"), tool("Read2", path="b"), tool("Grep", what="c\nd")], "tool_use"
    ),
    "tool, then text, then tool": answered(
        [tool("Read", path="a"), text("And now the other."), tool("Read2", path="b")], "tool_use"
    ),
    "tool, then thinking, then tool": answered(
        [tool("Read", path="a"), thinking("Well."), tool("Read2", path="b")], "tool_use"
    ),
    "server tools": answered([text("I search."), SEARCH, FOUND, text("Found it.")]),
    "server tool after a tool": answered(
        [tool("Read", path="a"), SEARCH, FOUND, tool("Read2", path="b")], "tool_use"
    ),
    "refusal": answered([], "refusal"),
    "empty text": answered([text(""), tool("Bash", command="ls")], "tool_use"),
    "empty text after a tool": answered(
        [tool("Bash", command="ls"), text(""), text(" \n")], "tool_use"
    ),
    "two texts": answered([text("One. "), text("Two.")], "max_tokens"),
    "unicode": answered([text("Grüße, 世界 🌍 and \u2028 more"), tool("Say", x="ä🌍")], "tool_use"),
    "carriage returns": answered(
        [text("Line by line"), tool("Bash", command="ls"), text("so.")], line_end=b"\r\n"
    ),
    "only carriage returns": answered([text("Old."), tool("Bash", x=1)], line_end=b"\r"),
}
OTHER = answered(
    [thinking("Again."), text("A wholly other answer."), tool("Other", y=2)], "tool_use", id="msg_2"
)
