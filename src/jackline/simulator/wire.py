"""Write replies as the bytes that an Anthropic endpoint sends.

Laws: (1) pure: values in, bytes out; (2) a stream is a list of whole events, so that a shell can
stop between any two; (3) usage adds up: fresh, newly cached and cached input make the whole.
Not here: when each piece is sent (answering.py), the other dialects (openai_chat.py,
openai_responses.py, clouds.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from jackline.simulator.conversation import Asked, JsonObject
from jackline.simulator.exchange import Rejected
from jackline.simulator.mind import Say
from jackline.simulator.prompt_cache import Hit

SSE = "text/event-stream; charset=utf-8"
JSON = "application/json"
LETTERS_PER_DELTA = 80


@dataclass(frozen=True, slots=True)
class Message:
    """A reply about to be written, and the request it answers."""

    serial: int
    asked: Asked
    say: Say
    cached: Hit | None = None
    """What prompt caches hold of the request; without it, nothing is cached."""

    @property
    def hit(self) -> Hit:
        """How the input divides between prompt caches and the rest."""
        return Hit(plain=self.asked.input_tokens) if self.cached is None else self.cached

    @property
    def input_tokens(self) -> int:
        """The whole input."""
        hit = self.hit
        return hit.read + hit.written + hit.plain

    @property
    def id(self) -> str:
        """An identifier that no other reply of this server has."""
        return f"sim{self.serial:05d}"


class Answer(NamedTuple):
    """The pieces of a whole answer; the last `closing` ones say that it is whole."""

    content_type: str
    pieces: Sequence[bytes]
    closing: int


class Native(NamedTuple):
    """A refusal as the vendor of a dialect writes it."""

    status: int
    headers: Mapping[str, str]
    body: str


class Dialect(Protocol):
    """A wire format: one implementation per family of endpoints."""

    @property
    def name(self) -> str:
        """The word for it in the ledger."""
        ...

    def whole(self, message: Message) -> Answer:
        """The answer in one document."""
        ...

    def stream(self, message: Message) -> Answer:
        """The answer as events."""
        ...

    def error_event(self, body: str, after: int = 0) -> bytes:
        """An error told inside a stream, `after` so many events; the body is Anthropic's."""
        ...

    def ping(self) -> bytes:
        """A sign of life that says nothing."""
        ...

    def identity(self, serial: int) -> Mapping[str, str]:
        """The headers that name a request."""
        ...

    def models(self, names: Sequence[str]) -> bytes:
        """The list of these models."""
        ...

    def announced(self, headers: Mapping[str, str], epoch: float) -> Mapping[str, str]:
        """What Anthropic's headers tell, as this vendor tells it; `epoch` is now."""
        ...

    def refused(self, refused: Rejected, model: str, epoch: float) -> Native:
        """A refusal in this vendor's words; pages of an edge stay as they are."""
        ...


def sse(event: JsonObject) -> bytes:
    """One server-sent event."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def request_id(serial: int) -> str:
    """The id under which a request is known to both sides."""
    return f"req_sim{serial:05d}"


def with_request_id(body: str, serial: int) -> str:
    """The API's error document with its request id; other bodies stay as they are."""
    try:
        document = json.loads(body)
    except ValueError:
        return body
    if not isinstance(document, dict) or document.get("type") != "error":
        return body
    return json.dumps({**document, "request_id": document.get("request_id") or request_id(serial)})


class AnthropicMessages:
    """`POST /v1/messages`."""

    name = "anthropic"

    def whole(self, message: Message) -> Answer:
        """The message as one JSON document."""
        return Answer(JSON, [json.dumps(self._document(message)).encode()], 0)

    def stream(self, message: Message) -> Answer:
        """The message as events, words and arguments in small deltas."""
        return Answer(SSE, [sse(event) for event in self.events(message)], 2)

    def events(self, message: Message) -> list[JsonObject]:
        """The events of a stream, before they are written."""
        whole = self._document(message)
        usage = whole["usage"]
        start = {
            **whole,
            "content": [],
            "stop_reason": None,
            "usage": {**usage, "output_tokens": 1},
        }
        stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        events: list[JsonObject] = [{"type": "message_start", "message": start}]
        for index, block in enumerate(whole["content"]):
            events += _block_events(index, block)
        events.append({"type": "message_delta", "delta": stop, "usage": usage})
        events.append({"type": "message_stop"})
        return events

    def error_event(self, body: str, after: int = 0) -> bytes:  # noqa: ARG002
        """`event: error` with the API's error document."""
        return f"event: error\ndata: {body}\n\n".encode()

    def ping(self) -> bytes:
        """`event: ping`."""
        return sse({"type": "ping"})

    def identity(self, serial: int) -> Mapping[str, str]:
        """`request-id`, and the name that proxies give it."""
        return {"request-id": request_id(serial), "x-request-id": request_id(serial)}

    def announced(self, headers: Mapping[str, str], epoch: float) -> Mapping[str, str]:  # noqa: ARG002
        """The model's own headers are Anthropic's."""
        return headers

    def refused(self, refused: Rejected, model: str, epoch: float) -> Native:  # noqa: ARG002
        """The model's own words are Anthropic's."""
        return Native(refused.status, refused.headers, refused.body)

    def count_tokens(self, asked: Asked) -> bytes:
        """The reply of `/v1/messages/count_tokens`."""
        return json.dumps({"input_tokens": asked.input_tokens}).encode()

    def models(self, names: Sequence[str]) -> bytes:
        """The reply of `/v1/models`."""
        data = [
            {
                "type": "model",
                "id": name,
                "display_name": name,
                "created_at": "2026-01-01T00:00:00Z",
            }
            for name in names
        ]
        ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
        return json.dumps({"data": data, "has_more": False, **ends}).encode()

    def _document(self, message: Message) -> JsonObject:
        asked, say = message.asked, message.say
        hit = message.hit
        return {
            "id": f"msg_{message.id}",
            "type": "message",
            "role": "assistant",
            "model": asked.model,
            "content": list(_blocks(message)),
            "stop_reason": say.stop_reason,
            "stop_sequence": None,
            "usage": {
                "input_tokens": hit.plain,
                "cache_creation_input_tokens": hit.written,
                "cache_read_input_tokens": hit.read,
                "cache_creation": {
                    "ephemeral_5m_input_tokens": hit.written_5m,
                    "ephemeral_1h_input_tokens": hit.written_1h,
                },
                "output_tokens": say.output_tokens,
                "service_tier": "standard",
            },
        }


def _blocks(message: Message) -> Iterable[JsonObject]:
    if message.say.text:
        yield {"type": "text", "text": message.say.text}
    for index, (name, given) in enumerate(message.say.calls):
        call = f"toolu_{message.id}{index:02d}"
        yield {"type": "tool_use", "id": call, "name": name, "input": given}


def _block_events(index: int, block: JsonObject) -> Iterable[JsonObject]:
    """The start, the deltas and the end of a content block."""
    if block["type"] == "text":
        empty: JsonObject = {**block, "text": ""}
        deltas = [{"type": "text_delta", "text": part} for part in in_parts(block["text"])]
    else:
        empty = {**block, "input": {}}
        written = in_parts(json.dumps(block["input"]))
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in written]
    yield {"type": "content_block_start", "index": index, "content_block": empty}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def in_parts(text: str) -> list[str]:
    """The text in the pieces in which a stream tells it."""
    return [text[i : i + LETTERS_PER_DELTA] for i in range(0, len(text), LETTERS_PER_DELTA)]
