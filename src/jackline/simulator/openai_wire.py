"""Write replies as the bytes that OpenAI's Chat Completions and Responses endpoints send.

Rules: (1) as in anthropic_wire.py; (2) chat streams contain usage only for clients that request
it; events of Responses are numbered without a gap; (3) texts of refusals come from the collected
facts where these have one; the same refusal preserves its meaning: a limit that names itself
stays one, a wall becomes a used-up quota, an overload a 503; (4) bodies that are not the API's
(an edge's page, a script's own) stay unchanged.
Not here: deciding to refuse (provider.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from jackline.simulator.anthropic_wire import (
    JSON,
    SSE,
    Answer,
    PendingReply,
    VendorRefusal,
    in_parts,
    request_id,
    sse,
)
from jackline.simulator.client_request import ClientRequest, JsonObject
from jackline.simulator.exchange import OverRate, Rejected, error_words

CREATED = 1_767_225_600
"""2026-01-01: replies are dated, and the same ones each time."""
_LIMITS = "anthropic-ratelimit-"
# The later one wins: OpenAI counts tokens together, and input is what a request is refused for.
_COUNTED = {"output-tokens": "tokens", "input-tokens": "tokens", "requests": "requests"}
_MORE = "Visit https://platform.openai.com/account/rate-limits to learn more."
_RETRY = (
    "You can retry your request, or contact us through our help center at help.openai.com if the"
    " error persists."
)
_QUOTA = (
    "You exceeded your current quota, please check your plan and billing details. For more"
    " information on this error, read the docs:"
    " https://platform.openai.com/docs/guides/error-codes/api-errors."
)
_OVERLOADED = f"That model is currently overloaded with other requests. {_RETRY}"
_FAILED = (
    f"The server experienced an error while processing your request. Sorry about that! {_RETRY}"
)
_EVENTS: dict[str, JsonObject] = {
    "overloaded_error": {
        "type": "service_unavailable_error",
        "code": "server_is_overloaded",
        "message": "Our servers are currently overloaded. Please try again later.",
    },
    "rate_limit_error": {
        "type": "requests",
        "code": "rate_limit_exceeded",
        "message": "Rate limit reached for requests",
    },
}


class OpenAIWords:
    """What all of OpenAI's endpoints say alike, refusals above all."""

    def models(self, names: Sequence[str]) -> bytes:
        """The reply of `/v1/models`."""
        dated = {"object": "model", "created": CREATED, "owned_by": "simulated"}
        data = [{"id": name, **dated} for name in names]
        return json.dumps({"object": "list", "data": data}).encode()

    def identity(self, serial: int) -> Mapping[str, str]:
        """`x-request-id`."""
        return {"x-request-id": request_id(serial)}

    def ping(self) -> bytes:
        """A comment, which event streams may hold anywhere."""
        return b": keepalive\n\n"

    def announced(self, headers: Mapping[str, str], epoch: float) -> Mapping[str, str]:
        """`x-ratelimit-*`, with resets as durations; a subscription's windows are not told."""
        told = {name: text for name, text in headers.items() if not name.startswith(_LIMITS)}
        for counted, unit in _COUNTED.items():
            limit = headers.get(f"{_LIMITS}{counted}-limit")
            if limit is None:
                continue
            resets = datetime.fromisoformat(headers[f"{_LIMITS}{counted}-reset"]).timestamp()
            told[f"x-ratelimit-limit-{unit}"] = limit
            told[f"x-ratelimit-remaining-{unit}"] = headers[f"{_LIMITS}{counted}-remaining"]
            told[f"x-ratelimit-reset-{unit}"] = go_duration(resets - epoch)
        return told

    def refused(self, refused: Rejected, model: str, epoch: float) -> VendorRefusal:
        """The error document of OpenAI's API."""
        words = error_words(refused.body)
        if words is None:
            return VendorRefusal(refused.status, refused.headers, refused.body)
        headers = dict(self.announced(refused.headers, epoch))
        if refused.wall:
            # A quota that money has used up comes back at no time that could be told.
            headers.pop("retry-after", None)
        status = 503 if refused.status == 529 else refused.status
        error = _error(refused, *words, model=model, wait=headers.get("retry-after"))
        return VendorRefusal(status, headers, json.dumps({"error": error}))


def event_error(body: str) -> JsonObject:
    """The error that a stream tells."""
    kind = (error_words(body) or ("", ""))[0]
    failed = {"type": "server_error", "code": "server_error", "message": _FAILED}
    return {**_EVENTS.get(kind, failed), "param": None}


def go_duration(seconds: float) -> str:
    """`20ms`, `1s`, `6m0s` or `1h2m3s`."""
    if 0 < seconds < 1:
        return f"{max(1, round(seconds * 1000))}ms"
    whole = max(0, round(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours}h{minutes}m{whole % 60}s"
    return f"{minutes}m{whole % 60}s" if minutes else f"{whole}s"


def _error(
    refused: Rejected, kind: str, message: str, *, model: str, wait: str | None
) -> JsonObject:
    code: str | None = None
    if refused.wall:
        kind, code, message = "insufficient_quota", "insufficient_quota", _QUOTA
    elif refused.over is not None:
        kind = "requests" if refused.over.unit == "requests" else "tokens"
        code, message = "rate_limit_exceeded", _over(refused.over, model, wait)
    elif kind in _EVENTS and refused.status == 429:
        throttled = _EVENTS["rate_limit_error"]
        kind, code, message = throttled["type"], throttled["code"], throttled["message"]
    elif kind == "overloaded_error":
        kind, message = "server_error", _OVERLOADED
    elif kind == "api_error":
        kind, message = "server_error", _FAILED
    elif kind == "authentication_error":
        kind, code = "invalid_request_error", "invalid_api_key"
    elif kind == "invalid_encrypted_content":
        kind, code = "invalid_request_error", kind
    elif kind == "not_found_error":
        kind, code = "invalid_request_error", "model_not_found"
    return {"message": message, "type": kind, "param": None, "code": code}


def _over(over: OverRate, model: str, wait: str | None) -> str:
    unit, short = ("requests", "RPM") if over.unit == "requests" else ("tokens", "TPM")
    soon = f" Please try again in {go_duration(float(wait))}." if wait else ""
    return (
        f"Rate limit reached for {model} in organization org-simulated on {unit} per min"
        f" ({short}): Limit {over.limit}, Used {over.limit}, Requested 1.{soon} {_MORE}"
    )


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

    def whole(self, message: PendingReply) -> Answer:
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
        document = _completion_document(message, "chat.completion", [choice])
        return Answer(JSON, [json.dumps({**document, "usage": _usage(message)}).encode()], 0)

    def stream(self, message: PendingReply) -> Answer:
        """The completion as chunks; the last ones tell why it ended, its cost if asked, the end."""
        chunks = [_chunk(message, delta) for delta in _deltas(message)]
        closing = [_chunk(message, {}, _FINISH[message.say.stop_reason])]
        options = message.asked.body.get("stream_options")
        if isinstance(options, dict) and options.get("include_usage"):
            cost = _completion_document(message, "chat.completion.chunk", [])
            closing.append(_data({**cost, "usage": _usage(message)}))
        closing.append(_DONE)
        return Answer(SSE, chunks + closing, len(closing))

    def error_event(self, body: str, after: int = 0) -> bytes:  # noqa: ARG002
        """A chunk that holds nothing but the error."""
        return _data({"error": event_error(body)})


def _completion_document(message: PendingReply, kind: str, choices: list[JsonObject]) -> JsonObject:
    return {
        "id": f"chatcmpl-{message.id}",
        "object": kind,
        "created": CREATED,
        "model": message.asked.model,
        "service_tier": "default",
        "system_fingerprint": "fp_simulated",
        "choices": choices,
    }


def _usage(message: PendingReply) -> JsonObject:
    said = message.say.output_tokens
    return {
        "prompt_tokens": message.input_tokens,
        "completion_tokens": said,
        "total_tokens": message.input_tokens + said,
        "prompt_tokens_details": {"cached_tokens": message.hit.read},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def _calls(message: PendingReply) -> Iterable[JsonObject]:
    for index, (name, given) in enumerate(message.say.calls):
        yield {
            "id": f"call_{message.id}{index:02d}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(given)},
        }


def _deltas(message: PendingReply) -> Iterable[JsonObject]:
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


def _chunk(message: PendingReply, delta: JsonObject, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return _data(_completion_document(message, "chat.completion.chunk", [choice]))


def _data(document: JsonObject) -> bytes:
    return f"data: {json.dumps(document)}\n\n".encode()


ENCRYPTED = "reasoning.encrypted_content"
_SEAL = "gAAAAsim"


def encrypted_reasoning_in(asked: ClientRequest) -> Iterable[str]:
    """The encrypted thoughts that a client brings back."""
    given = asked.body.get("input")
    for item in given if isinstance(given, list) else ():
        if isinstance(item, dict) and item.get("type") == "reasoning":
            yield str(item.get("encrypted_content") or "")


def encrypted_reasoning_of(serial: int) -> str:
    """What a model thought in an answer, as only its own server can read it."""
    return f"{_SEAL}{serial:05d}=="


class OpenAIResponses(OpenAIWords):
    """`POST /v1/responses`."""

    name = "openai-responses"

    def whole(self, message: PendingReply) -> Answer:
        """The response as one JSON document."""
        return Answer(JSON, [json.dumps(_response_document(message)).encode()], 0)

    def stream(self, message: PendingReply) -> Answer:
        """The response as events."""
        whole = _response_document(message)
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


def _response_document(message: PendingReply) -> JsonObject:
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


def _items(message: PendingReply) -> Iterable[JsonObject]:
    say = message.say
    if ENCRYPTED in (message.asked.body.get("include") or ()):
        yield {
            "type": "reasoning",
            "id": f"rs_{message.id}",
            "summary": [],
            "encrypted_content": encrypted_reasoning_of(message.serial),
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
