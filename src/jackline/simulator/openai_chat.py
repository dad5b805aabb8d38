"""Write replies as the bytes that OpenAI's Chat Completions endpoint sends.

Laws: as in wire.py; usage in a stream is told only to those who ask for it.
Not here: refusals (openai_refusals.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from jackline.simulator.conversation import JsonObject
from jackline.simulator.openai_refusals import CREATED, OpenAIWords, event_error
from jackline.simulator.wire import JSON, SSE, Answer, Message, in_parts

_FINISH = {
    "end_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "stop",
}
_DONE = b"data: [DONE]\n\n"


class OpenAIChat(OpenAIWords):
    """`POST /v1/chat/completions`."""

    name = "openai-chat"

    def whole(self, message: Message) -> Answer:
        """The completion as one JSON document."""
        words = "refusal" if message.say.stop_reason == "refusal" else "content"
        spoken: JsonObject = {"role": "assistant", "content": None, "refusal": None}
        if message.say.text:
            spoken[words] = message.say.text
        if calls := list(_calls(message)):
            spoken["tool_calls"] = calls
        choice = {
            "index": 0,
            "message": spoken,
            "logprobs": None,
            "finish_reason": _FINISH[message.say.stop_reason],
        }
        document = _document(message, "chat.completion", [choice])
        return Answer(JSON, [json.dumps({**document, "usage": _usage(message)}).encode()], 0)

    def stream(self, message: Message) -> Answer:
        """The completion as chunks; the last ones tell why it ended, its cost if asked, the end."""
        chunks = [_chunk(message, delta) for delta in _deltas(message)]
        closing = [_chunk(message, {}, _FINISH[message.say.stop_reason])]
        options = message.asked.body.get("stream_options")
        if isinstance(options, dict) and options.get("include_usage"):
            cost = _document(message, "chat.completion.chunk", [])
            closing.append(_data({**cost, "usage": _usage(message)}))
        closing.append(_DONE)
        return Answer(SSE, chunks + closing, len(closing))

    def error_event(self, body: str, after: int = 0) -> bytes:  # noqa: ARG002
        """A chunk that holds nothing but the error."""
        return _data({"error": event_error(body)})


def _document(message: Message, kind: str, choices: list[JsonObject]) -> JsonObject:
    return {
        "id": f"chatcmpl-{message.id}",
        "object": kind,
        "created": CREATED,
        "model": message.asked.model,
        "service_tier": "default",
        "system_fingerprint": "fp_simulated",
        "choices": choices,
    }


def _usage(message: Message) -> JsonObject:
    said = message.say.output_tokens
    return {
        "prompt_tokens": message.input_tokens,
        "completion_tokens": said,
        "total_tokens": message.input_tokens + said,
        "prompt_tokens_details": {"cached_tokens": message.hit.read},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def _calls(message: Message) -> Iterable[JsonObject]:
    for index, (name, given) in enumerate(message.say.calls):
        yield {
            "id": f"call_{message.id}{index:02d}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(given)},
        }


def _deltas(message: Message) -> Iterable[JsonObject]:
    """Words in small parts, then each call: its name first, its arguments in parts."""
    yield {"role": "assistant", "content": "", "refusal": None}
    words = "refusal" if message.say.stop_reason == "refusal" else "content"
    for part in in_parts(message.say.text):
        yield {words: part}
    for index, call in enumerate(_calls(message)):
        function = call["function"]
        named = {"index": index, **call, "function": {**function, "arguments": ""}}
        yield {"tool_calls": [named]}
        for part in in_parts(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": part}}]}


def _chunk(message: Message, delta: JsonObject, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return _data(_document(message, "chat.completion.chunk", [choice]))


def _data(document: JsonObject) -> bytes:
    return f"data: {json.dumps(document)}\n\n".encode()
