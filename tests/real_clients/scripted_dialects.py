"""Write a scripted reply as the bytes an Anthropic or OpenAI endpoint would send.

Laws: (1) pure: values in, bytes out; (2) token counts grow with the text, and most of
the input is read from cache after the first turn, as in real sessions.
Not here: rules, sockets (`scripted_server.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Say:
    """Words, then tool calls as (tool name, input); several calls run in parallel."""

    text: str = ""
    calls: tuple[tuple[str, JsonObject], ...] = ()
    delay: float = 0.0


@dataclass(frozen=True)
class Fail:
    """An HTTP error; without a `body`, the one Anthropic sends for `error` and `message`."""

    status: int
    error: str = "api_error"
    message: str = "Internal server error"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: JsonObject | None = None

    def json_body(self, request_id: str) -> JsonObject:
        """The JSON error document."""
        error = {"type": self.error, "message": self.message}
        return self.body or {"type": "error", "error": error, "request_id": request_id}


@dataclass(frozen=True)
class Message:
    """A reply about to be written, with what its numbers are made from."""

    serial: int
    model: str
    request_size: int
    turn: int
    say: Say

    @property
    def id(self) -> str:
        """An identifier no other reply of this server has."""
        return f"lab{self.serial:05d}"

    @property
    def input_tokens(self) -> int:
        """About four bytes to a token."""
        return self.request_size // 4

    @property
    def cached_tokens(self) -> int:
        """The part of the input that an earlier turn has put in the cache."""
        return self.input_tokens * 9 // 10 if self.turn else 0

    @property
    def output_tokens(self) -> int:
        """About four characters to a token, tool calls included."""
        return 5 + (len(self.say.text) + len(json.dumps(self.say.calls))) // 4


Encoder = Callable[[Message, bool], tuple[str, bytes]]


def dialect_of(path: str) -> Encoder:
    """What writes replies for this path."""
    if path.endswith("/count_tokens"):
        return count_tokens
    return openai_response if path.endswith("/responses") else anthropic_message


# --- Anthropic Messages ----------------------------------------------------------------


def count_tokens(message: Message, _stream: bool) -> tuple[str, bytes]:
    """The reply of `/v1/messages/count_tokens`."""
    return "application/json", json.dumps({"input_tokens": message.input_tokens}).encode()


def anthropic_message(message: Message, stream: bool) -> tuple[str, bytes]:
    """A message as one JSON document or as a stream of events."""
    blocks = list(_anthropic_blocks(message))
    usage = {
        "input_tokens": 3,
        "cache_creation_input_tokens": message.input_tokens - message.cached_tokens,
        "cache_read_input_tokens": message.cached_tokens,
        "output_tokens": message.output_tokens,
        "service_tier": "standard",
    }
    stop = "tool_use" if message.say.calls else "end_turn"
    whole = {
        "id": f"msg_{message.id}",
        "type": "message",
        "role": "assistant",
        "model": message.model,
        "content": blocks,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": usage,
    }
    if not stream:
        return "application/json", json.dumps(whole).encode()
    start = {**whole, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    events = [
        {"type": "message_start", "message": start},
        *(event for index, block in enumerate(blocks) for event in _block_events(index, block)),
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": usage,
        },
        {"type": "message_stop"},
    ]
    return "text/event-stream", _sse(events)


def _anthropic_blocks(message: Message) -> Iterable[JsonObject]:
    if message.say.text:
        yield {"type": "text", "text": message.say.text}
    for index, (name, given) in enumerate(message.say.calls):
        yield {
            "type": "tool_use",
            "id": f"toolu_{message.id}{index:02d}",
            "name": name,
            "input": given,
        }


def _block_events(index: int, block: JsonObject) -> Iterable[JsonObject]:
    """The start, the one delta and the end of a content block."""
    if block["type"] == "text":
        empty: JsonObject = {**block, "text": ""}
        delta = {"type": "text_delta", "text": block["text"]}
    else:
        empty = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    yield {"type": "content_block_start", "index": index, "content_block": empty}
    yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


# --- OpenAI Responses ------------------------------------------------------------------


def openai_response(message: Message, stream: bool) -> tuple[str, bytes]:
    """A response as one JSON document or as a stream of events."""
    items = list(_openai_items(message))
    usage = {
        "input_tokens": message.input_tokens,
        "input_tokens_details": {"cached_tokens": message.cached_tokens},
        "output_tokens": message.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": message.input_tokens + message.output_tokens,
    }
    whole: JsonObject = {
        "id": f"resp_{message.id}",
        "object": "response",
        "status": "completed",
        "model": message.model,
        "output": items,
        "usage": usage,
    }
    if not stream:
        return "application/json", json.dumps(whole).encode()
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    events = [
        {"type": "response.created", "response": begun},
        *(event for index, item in enumerate(items) for event in _item_events(index, item)),
        {"type": "response.completed", "response": whole},
    ]
    return "text/event-stream", _sse(events)


def _openai_items(message: Message) -> Iterable[JsonObject]:
    if message.say.text:
        yield {
            "type": "message",
            "id": f"msg_{message.id}",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": message.say.text, "annotations": []}],
        }
    for index, (name, given) in enumerate(message.say.calls):
        yield {
            "type": "function_call",
            "id": f"fc_{message.id}{index:02d}",
            "call_id": f"call_{message.id}{index:02d}",
            "name": name,
            "arguments": json.dumps(given),
            "status": "completed",
        }


def _item_events(index: int, item: JsonObject) -> Iterable[JsonObject]:
    """The start and the end of an output item, with its text as one delta."""
    yield {"type": "response.output_item.added", "output_index": index, "item": item}
    if item["type"] == "message":
        delta = {"type": "response.output_text.delta", "delta": item["content"][0]["text"]}
        yield {**delta, "item_id": item["id"], "output_index": index, "content_index": 0}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


# --- reading requests ------------------------------------------------------------------


def prompt_of(body: Mapping[str, Any]) -> str:
    """The text of the first thing the user asked; what clients wrap in tags is left out."""
    for text in _user_texts(body):
        if text and not text.lstrip().startswith("<"):
            return text
    return ""


def turns_of(body: Mapping[str, Any]) -> int:
    """How often the model has spoken: runs of assistant entries, so a batch counts once."""
    entries = body.get("messages") or body.get("input") or []
    spoken = [_is_models(entry) for entry in entries]
    return sum(now and not before for before, now in zip([False, *spoken], spoken, strict=False))


def _is_models(entry: Mapping[str, Any]) -> bool:
    return entry.get("role") == "assistant" or entry.get("type") == "function_call"


def _user_texts(body: Mapping[str, Any]) -> Iterable[str]:
    for entry in body.get("messages") or body.get("input") or []:
        if entry.get("role") != "user":
            continue
        content = entry["content"]
        blocks = [{"text": content}] if isinstance(content, str) else content
        yield from (str(block.get("text", "")) for block in blocks)


def _sse(events: Iterable[JsonObject]) -> bytes:
    lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return "".join(lines).encode()
