"""Write replies as the bytes that OpenAI's Responses endpoint sends.

Laws: as in wire.py; events are numbered without a gap.
Not here: refusals (openai_refusals.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from jackline.simulator.conversation import Asked, JsonObject
from jackline.simulator.openai_refusals import CREATED, OpenAIWords, event_error
from jackline.simulator.wire import JSON, SSE, Answer, Message, in_parts, sse

ENCRYPTED = "reasoning.encrypted_content"
_SEAL = "gAAAAsim"


def seals_in(asked: Asked) -> Iterable[str]:
    """The encrypted thoughts that a client brings back."""
    given = asked.body.get("input")
    for item in given if isinstance(given, list) else ():
        if isinstance(item, dict) and item.get("type") == "reasoning":
            yield str(item.get("encrypted_content") or "")


def seal_of(serial: int) -> str:
    """What a model thought in an answer, as only its own server can read it."""
    return f"{_SEAL}{serial:05d}=="


class OpenAIResponses(OpenAIWords):
    """`POST /v1/responses`."""

    name = "openai-responses"

    def whole(self, message: Message) -> Answer:
        """The response as one JSON document."""
        return Answer(JSON, [json.dumps(_document(message)).encode()], 0)

    def stream(self, message: Message) -> Answer:
        """The response as events."""
        whole = _document(message)
        begun = {**whole, "status": "in_progress", "output": [], "usage": None}
        begun["incomplete_details"] = None
        events: list[JsonObject] = [
            {"type": "response.created", "response": begun},
            {"type": "response.in_progress", "response": begun},
        ]
        for index, item in enumerate(whole["output"]):
            events += _item_events(index, item)
        events.append({"type": f"response.{whole['status']}", "response": whole})
        pieces = [sse({**event, "sequence_number": n}) for n, event in enumerate(events)]
        return Answer(SSE, pieces, 1)

    def error_event(self, body: str, after: int = 0) -> bytes:
        """`error`, and the response that has failed."""
        error = event_error(body)
        failure = {"code": error["code"], "message": error["message"]}
        failed = {"object": "response", "status": "failed", "error": failure, "output": []}
        told = sse({"type": "error", "error": error, "sequence_number": after})
        ended = {"type": "response.failed", "response": failed, "sequence_number": after + 1}
        return told + sse(ended)


def _document(message: Message) -> JsonObject:
    asked, say = message.asked, message.say
    cut = say.stop_reason == "max_tokens"
    return {
        "id": f"resp_{message.id}",
        "object": "response",
        "created_at": CREATED,
        "status": "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "instructions": None,
        "metadata": {},
        "model": asked.model,
        "output": list(_items(message)),
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "temperature": 1.0,
        "text": asked.body.get("text") or {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": message.input_tokens,
            "input_tokens_details": {
                "cached_tokens": message.hit.read,
                "cache_write_tokens": 0,
            },
            "output_tokens": say.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": message.input_tokens + say.output_tokens,
        },
    }


def _items(message: Message) -> Iterable[JsonObject]:
    say = message.say
    if ENCRYPTED in (message.asked.body.get("include") or ()):
        yield {
            "type": "reasoning",
            "id": f"rs_{message.id}",
            "summary": [],
            "encrypted_content": seal_of(message.serial),
        }
    if say.text:
        part: JsonObject = {"type": "output_text", "text": say.text, "annotations": []}
        if say.stop_reason == "refusal":
            part = {"type": "refusal", "refusal": say.text}
        yield {
            "type": "message",
            "id": f"msg_{message.id}",
            "role": "assistant",
            "status": "incomplete" if say.stop_reason == "max_tokens" else "completed",
            "content": [part],
        }
    for index, (name, given) in enumerate(say.calls):
        yield {
            "type": "function_call",
            "id": f"fc_{message.id}{index:02d}",
            "call_id": f"call_{message.id}{index:02d}",
            "name": name,
            "arguments": json.dumps(given),
            "status": "completed",
        }


def _item_events(index: int, item: JsonObject) -> Iterable[JsonObject]:
    """The start, the parts and the end of an output item."""
    if item["type"] == "reasoning":
        for what in ("added", "done"):
            yield {"type": f"response.output_item.{what}", "output_index": index, "item": item}
        return
    spoken = item["type"] == "message"
    empty: JsonObject = {"content": []} if spoken else {"arguments": ""}
    begun = {**item, **empty, "status": "in_progress"}
    place = {"item_id": item["id"], "output_index": index}
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    yield from _part_events(place, item["content"][0]) if spoken else _call_events(place, item)
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _part_events(place: JsonObject, part: JsonObject) -> Iterable[JsonObject]:
    field = "refusal" if part["type"] == "refusal" else "text"
    kind = f"response.{'refusal' if field == 'refusal' else 'output_text'}"
    place = {**place, "content_index": 0}
    odds: JsonObject = {"logprobs": []} if field == "text" else {}
    yield {"type": "response.content_part.added", **place, "part": {**part, field: ""}}
    for text in in_parts(part[field]):
        yield {"type": f"{kind}.delta", **place, "delta": text, **odds}
    yield {"type": f"{kind}.done", **place, field: part[field], **odds}
    yield {"type": "response.content_part.done", **place, "part": part}


def _call_events(place: JsonObject, item: JsonObject) -> Iterable[JsonObject]:
    kind = "response.function_call_arguments"
    for part in in_parts(item["arguments"]):
        yield {"type": f"{kind}.delta", **place, "delta": part}
    yield {"type": f"{kind}.done", **place, "name": item["name"], "arguments": item["arguments"]}
