"""Write replies as the bytes that OpenAI's Chat Completions and Responses endpoints send.

Rules: (1) as in anthropic_wire.py; (2) chat streams contain usage only for clients that request
it; events of Responses are numbered without a gap; (3) texts of refusals come from the collected
facts where these have one; the same refusal preserves its meaning: a limit that names itself
stays one, a wall becomes a used-up quota, an overload a 503; (4) bodies that are not the API's
(an edge's page, a script's own) stay unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from jackline.simulator.anthropic_wire import (
    JSON,
    SSE,
    Answer,
    Dialect,
    PendingReply,
    in_parts,
    request_id,
    sse,
)
from jackline.simulator.client_request import JsonObject
from jackline.simulator.exchange import ProviderRefusal, Rejected, read_error

CREATED = 1_767_225_600
"""2026-01-01: replies have a date, always the same."""
_LIMITS = "anthropic-ratelimit-"
# The later one wins: OpenAI counts tokens together, and requests are refused because of input.
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
# Anthropic's error: OpenAI's type, its code, its message ("" keeps the model's).
_ERRORS: dict[str, tuple[str, str | None, str]] = {
    "overloaded_error": ("server_error", None, _OVERLOADED),
    "api_error": ("server_error", None, _FAILED),
    "authentication_error": ("invalid_request_error", "invalid_api_key", ""),
    "invalid_encrypted_content": ("invalid_request_error", "invalid_encrypted_content", ""),
    "not_found_error": ("invalid_request_error", "model_not_found", ""),
}
# Our stop reason: the finish reason of chat.
_FINISH = {
    "end_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "stop",
}


def go_duration(seconds: float) -> str:
    """`20ms`, `1s`, `6m0s` or `1h2m3s`."""
    if 0 < seconds < 1:
        return f"{max(1, round(seconds * 1000))}ms"
    whole = max(0, round(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours}h{minutes}m{whole % 60}s"
    return f"{minutes}m{whole % 60}s" if minutes else f"{whole}s"


class _OpenAIDialect(Dialect):
    """What all of OpenAI's endpoints have in common, refusals above all."""

    def models(self, names: Sequence[str]) -> bytes:
        dated = {"object": "model", "created": CREATED, "owned_by": "simulated"}
        data = [{"id": name, **dated} for name in names]
        return json.dumps({"object": "list", "data": data}).encode()

    def identity(self, serial: int) -> Mapping[str, str]:
        return {"x-request-id": request_id(serial)}

    def ping(self) -> bytes:
        # A comment, which event streams may have anywhere.
        return b": keepalive\n\n"

    def announced(self, headers: Mapping[str, str], epoch: float) -> Mapping[str, str]:
        # `x-ratelimit-*`, with resets as durations; a subscription's windows are left out.
        own = {name: text for name, text in headers.items() if not name.startswith(_LIMITS)}
        for counted, unit in _COUNTED.items():
            limit = headers.get(f"{_LIMITS}{counted}-limit")
            if limit is None:
                continue
            resets = datetime.fromisoformat(headers[f"{_LIMITS}{counted}-reset"]).timestamp()
            own[f"x-ratelimit-limit-{unit}"] = limit
            own[f"x-ratelimit-remaining-{unit}"] = headers[f"{_LIMITS}{counted}-remaining"]
            own[f"x-ratelimit-reset-{unit}"] = go_duration(resets - epoch)
        return own

    def _refusal(self, refused: Rejected, kind: str, message: str, model: str) -> ProviderRefusal:
        headers = dict(refused.headers)
        if refused.wall:
            # A quota that was paid for and used up has no reset that could be announced.
            headers.pop("retry-after", None)
        code: str | None = None
        if refused.wall:
            kind, code, message = "insufficient_quota", "insufficient_quota", _QUOTA
        elif refused.over is not None:
            unit, short = ("requests", "RPM")
            if refused.over.unit != "requests":
                unit, short = ("tokens", "TPM")
            wait, limit = headers.get("retry-after"), refused.over.limit
            soon = f" Please try again in {go_duration(float(wait))}." if wait else ""
            kind, code = unit, "rate_limit_exceeded"
            message = (
                f"Rate limit reached for {model} in organization org-simulated on {unit} per min"
                f" ({short}): Limit {limit}, Used {limit}, Requested 1.{soon} {_MORE}"
            )
        elif kind in _EVENTS and refused.status == 429:
            throttled = _EVENTS["rate_limit_error"]
            kind, code, message = throttled["type"], throttled["code"], throttled["message"]
        else:
            kind, code, text = _ERRORS.get(kind, (kind, None, ""))
            message = text or message
        error = {"message": message, "type": kind, "param": None, "code": code}
        status = 503 if refused.status == 529 else refused.status
        return ProviderRefusal(status, json.dumps({"error": error}), headers)

    def _stream_error(self, body: str) -> JsonObject:
        kind = (read_error(body) or ("", ""))[0]
        failed = {"type": "server_error", "code": "server_error", "message": _FAILED}
        return {**_EVENTS.get(kind, failed), "param": None}


class OpenAIChat(_OpenAIDialect):
    """`POST /v1/chat/completions`."""

    name = "openai-chat"

    def whole(self, reply: PendingReply) -> Answer:
        """The completion as one JSON document."""
        say = reply.say
        message: JsonObject = {"role": "assistant", "content": None, "refusal": None}
        if say.text:
            message["refusal" if say.stop_reason == "refusal" else "content"] = say.text
        if calls := self._calls(reply):
            message["tool_calls"] = calls
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": _FINISH[say.stop_reason],
        }
        document = self._document(reply, "chat.completion", [choice])
        return Answer(JSON, [json.dumps({**document, "usage": self._usage(reply)}).encode()], 0)

    def stream(self, reply: PendingReply) -> Answer:
        """The completion as chunks; the last ones are the reason, the usage if requested, the end.

        Text comes in small parts, then each call: its name first, its arguments in parts.
        """
        say = reply.say
        field = "refusal" if say.stop_reason == "refusal" else "content"
        deltas: list[JsonObject] = [{"role": "assistant", "content": "", "refusal": None}]
        deltas += [{field: part} for part in in_parts(say.text)]
        for index, call in enumerate(self._calls(reply)):
            function = call["function"]
            named = {"index": index, **call, "function": {**function, "arguments": ""}}
            deltas.append({"tool_calls": [named]})
            for part in in_parts(function["arguments"]):
                more = {"index": index, "function": {"arguments": part}}
                deltas.append({"tool_calls": [more]})
        chunks = [self._chunk(reply, delta) for delta in deltas]
        closing = [self._chunk(reply, {}, _FINISH[say.stop_reason])]
        options = reply.request.body.get("stream_options")
        if isinstance(options, dict) and options.get("include_usage"):
            last = self._document(reply, "chat.completion.chunk", [])
            closing.append(_data({**last, "usage": self._usage(reply)}))
        closing.append(b"data: [DONE]\n\n")
        return Answer(SSE, chunks + closing, len(closing))

    def error_event(self, body: str, after: int = 0) -> bytes:  # noqa: ARG002
        """A chunk with nothing but the error."""
        return _data({"error": self._stream_error(body)})

    def _document(self, reply: PendingReply, kind: str, choices: list[JsonObject]) -> JsonObject:
        return {
            "id": f"chatcmpl-{reply.id}",
            "object": kind,
            "created": CREATED,
            "model": reply.request.model,
            "service_tier": "default",
            "system_fingerprint": "fp_simulated",
            "choices": choices,
        }

    def _usage(self, reply: PendingReply) -> JsonObject:
        output = reply.say.output_tokens
        return {
            "prompt_tokens": reply.input_tokens,
            "completion_tokens": output,
            "total_tokens": reply.input_tokens + output,
            "prompt_tokens_details": {"cached_tokens": reply.hit.read},
            "completion_tokens_details": {"reasoning_tokens": 0},
        }

    def _calls(self, reply: PendingReply) -> list[JsonObject]:
        return [
            {
                "id": f"call_{reply.id}{index:02d}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(value)},
            }
            for index, (name, value) in enumerate(reply.say.calls)
        ]

    def _chunk(self, reply: PendingReply, delta: JsonObject, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _data(self._document(reply, "chat.completion.chunk", [choice]))


def _data(document: JsonObject) -> bytes:
    return f"data: {json.dumps(document)}\n\n".encode()


def encrypted_reasoning_of(serial: int) -> str:
    """The reasoning of an answer, as only its own server can read it."""
    return f"gAAAAsim{serial:05d}=="


class OpenAIResponses(_OpenAIDialect):
    """`POST /v1/responses`."""

    name = "openai-responses"

    def whole(self, reply: PendingReply) -> Answer:
        """The response as one JSON document."""
        return Answer(JSON, [json.dumps(self._document(reply)).encode()], 0)

    def stream(self, reply: PendingReply) -> Answer:
        """The response as events."""
        whole = self._document(reply)
        begun = {**whole, "status": "in_progress", "output": [], "usage": None}
        begun["incomplete_details"] = None
        events: list[JsonObject] = [
            {"type": "response.created", "response": begun},
            {"type": "response.in_progress", "response": begun},
        ]
        for index, item in enumerate(whole["output"]):
            events += self._item_events(index, item)
        events.append({"type": f"response.{whole['status']}", "response": whole})
        pieces = [sse({**event, "sequence_number": n}) for n, event in enumerate(events)]
        return Answer(SSE, pieces, 1)

    def error_event(self, body: str, after: int = 0) -> bytes:
        """`error`, and the response that has failed."""
        error = self._stream_error(body)
        failure = {"code": error["code"], "message": error["message"]}
        failed = {"object": "response", "status": "failed", "error": failure, "output": []}
        first = sse({"type": "error", "error": error, "sequence_number": after})
        ended = {"type": "response.failed", "response": failed, "sequence_number": after + 1}
        return first + sse(ended)

    def _document(self, reply: PendingReply) -> JsonObject:
        request, say = reply.request, reply.say
        is_cut = say.stop_reason == "max_tokens"
        return {
            "id": f"resp_{reply.id}",
            "object": "response",
            "created_at": CREATED,
            "status": "incomplete" if is_cut else "completed",
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "instructions": None,
            "metadata": {},
            "model": request.model,
            "output": list(self._items(reply)),
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "temperature": 1.0,
            "text": request.body.get("text") or {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "usage": {
                "input_tokens": reply.input_tokens,
                "input_tokens_details": {
                    "cached_tokens": reply.hit.read,
                    "cache_write_tokens": 0,
                },
                "output_tokens": say.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": reply.input_tokens + say.output_tokens,
            },
        }

    def _items(self, reply: PendingReply) -> Iterable[JsonObject]:
        say = reply.say
        if "reasoning.encrypted_content" in (reply.request.body.get("include") or ()):
            yield {
                "type": "reasoning",
                "id": f"rs_{reply.id}",
                "summary": [],
                "encrypted_content": encrypted_reasoning_of(reply.serial),
            }
        if say.text:
            part: JsonObject = {"type": "output_text", "text": say.text, "annotations": []}
            if say.stop_reason == "refusal":
                part = {"type": "refusal", "refusal": say.text}
            yield {
                "type": "message",
                "id": f"msg_{reply.id}",
                "role": "assistant",
                "status": "incomplete" if say.stop_reason == "max_tokens" else "completed",
                "content": [part],
            }
        for index, (name, value) in enumerate(say.calls):
            yield {
                "type": "function_call",
                "id": f"fc_{reply.id}{index:02d}",
                "call_id": f"call_{reply.id}{index:02d}",
                "name": name,
                "arguments": json.dumps(value),
                "status": "completed",
            }

    def _item_events(self, index: int, item: JsonObject) -> Iterable[JsonObject]:
        """The start, the parts and the end of an output item."""
        start = {"type": "response.output_item.added", "output_index": index}
        end = {"type": "response.output_item.done", "output_index": index, "item": item}
        place = {"item_id": item["id"], "output_index": index}
        if item["type"] == "reasoning":
            yield {**start, "item": item}
        elif item["type"] == "message":
            yield {**start, "item": {**item, "content": [], "status": "in_progress"}}
            part = item["content"][0]
            is_refusal = part["type"] == "refusal"
            field = "refusal" if is_refusal else "text"
            kind = f"response.{'refusal' if is_refusal else 'output_text'}"
            place["content_index"] = 0
            more: JsonObject = {} if is_refusal else {"logprobs": []}
            yield {"type": "response.content_part.added", **place, "part": {**part, field: ""}}
            for text in in_parts(part[field]):
                yield {"type": f"{kind}.delta", **place, "delta": text, **more}
            yield {"type": f"{kind}.done", **place, field: part[field], **more}
            yield {"type": "response.content_part.done", **place, "part": part}
        else:
            yield {**start, "item": {**item, "arguments": "", "status": "in_progress"}}
            kind, arguments = "response.function_call_arguments", item["arguments"]
            for text in in_parts(arguments):
                yield {"type": f"{kind}.delta", **place, "delta": text}
            yield {"type": f"{kind}.done", **place, "name": item["name"], "arguments": arguments}
        yield end
