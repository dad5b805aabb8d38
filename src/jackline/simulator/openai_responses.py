"""Write replies as the bytes that OpenAI's Responses endpoint sends.

Laws: as in wire.py.
Not here: limits and errors in OpenAI's own words; they join with the upstreams.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from jackline.simulator.conversation import JsonObject
from jackline.simulator.wire import JSON, SSE, Answer, Message, sse


class OpenAIResponses:
    """`POST /v1/responses`."""

    def whole(self, message: Message) -> Answer:
        """The response as one JSON document."""
        return Answer(JSON, [json.dumps(_document(message)).encode()], 0)

    def stream(self, message: Message) -> Answer:
        """The response as events."""
        whole = _document(message)
        begun = {**whole, "status": "in_progress", "output": [], "usage": None}
        events: list[JsonObject] = [{"type": "response.created", "response": begun}]
        for index, item in enumerate(whole["output"]):
            events += _item_events(index, item)
        events.append({"type": "response.completed", "response": whole})
        return Answer(SSE, [sse(event) for event in events], 1)

    def error_event(self, body: str) -> bytes:
        """`response.failed` with the error's words."""
        error = json.loads(body)["error"]
        failure = {"code": error["type"], "message": error["message"]}
        return sse({"type": "response.failed", "response": {"status": "failed", "error": failure}})

    def ping(self) -> bytes:
        """A comment, which event streams may hold anywhere."""
        return b": keepalive\n\n"


def _document(message: Message) -> JsonObject:
    asked, say = message.asked, message.say
    return {
        "id": f"resp_{message.id}",
        "object": "response",
        "status": "completed",
        "model": asked.model,
        "output": list(_items(message)),
        "usage": {
            "input_tokens": asked.input_tokens,
            "input_tokens_details": {"cached_tokens": asked.cached_tokens},
            "output_tokens": say.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": asked.input_tokens + say.output_tokens,
        },
    }


def _items(message: Message) -> Iterable[JsonObject]:
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
