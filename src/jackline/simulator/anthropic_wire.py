"""Write replies as the bytes that Anthropic, Amazon Bedrock and Google Vertex AI send.

Rules: (1) pure: values in, bytes out; (2) a stream is a list of whole events, so that a server
can stop between any two; (3) usage adds up: fresh, newly cached and cached input make the whole;
(4) clouds send Anthropic's events byte for byte; only the framing and the refusals are their own,
and they announce no limits in headers; (5) a frame of Amazon's event stream is whole: lengths and
both checksums are right.
Not here: when each piece is sent (connection.py), OpenAI's formats (openai_wire.py), checking
signatures: every signature is accepted.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from jackline.simulator.client_request import ClientRequest, JsonObject
from jackline.simulator.exchange import NO_HEADERS, Rejected, error_words
from jackline.simulator.prompt_cache import Hit
from jackline.simulator.reply_script import Say

SSE = "text/event-stream; charset=utf-8"
JSON = "application/json"
LETTERS_PER_DELTA = 80


@dataclass(frozen=True, slots=True)
class PendingReply:
    """A reply about to be written, and the request it answers."""

    serial: int
    asked: ClientRequest
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


class VendorRefusal(NamedTuple):
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

    def whole(self, message: PendingReply) -> Answer:
        """The answer in one document."""
        ...

    def stream(self, message: PendingReply) -> Answer:
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

    def refused(self, refused: Rejected, model: str, epoch: float) -> VendorRefusal:
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

    def whole(self, message: PendingReply) -> Answer:
        """The message as one JSON document."""
        return Answer(JSON, [json.dumps(self._document(message)).encode()], 0)

    def stream(self, message: PendingReply) -> Answer:
        """The message as events, words and arguments in small deltas."""
        return Answer(SSE, [sse(event) for event in self.events(message)], 2)

    def events(self, message: PendingReply) -> list[JsonObject]:
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

    def refused(self, refused: Rejected, model: str, epoch: float) -> VendorRefusal:  # noqa: ARG002
        """The model's own words are Anthropic's."""
        return VendorRefusal(refused.status, refused.headers, refused.body)

    def count_tokens(self, asked: ClientRequest) -> bytes:
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

    def _document(self, message: PendingReply) -> JsonObject:
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


def _blocks(message: PendingReply) -> Iterable[JsonObject]:
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


CONTENT_TYPE = "application/vnd.amazon.eventstream"
_PRELUDE = 12
_CHECKSUM = 4
_STRING = 7


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """One message: prelude, its checksum, headers, payload, the checksum of all."""
    told = b"".join(_header(name, value) for name, value in headers.items())
    total = _PRELUDE + len(told) + len(payload) + _CHECKSUM
    prelude = struct.pack(">II", total, len(told))
    body = prelude + struct.pack(">I", zlib.crc32(prelude)) + told + payload
    return body + struct.pack(">I", zlib.crc32(body))


def _header(name: str, value: str) -> bytes:
    text = value.encode()
    return (
        struct.pack(">B", len(name)) + name.encode() + struct.pack(">BH", _STRING, len(text)) + text
    )


_BUSY = "Bedrock is unable to process your request."
_TOO_MANY = "please wait before trying again."
# Anthropic's error: Amazon's exception, its status, its words ("" keeps the model's).
_AMAZON = {
    "overloaded_error": ("ServiceUnavailableException", 503, _BUSY),
    "api_error": ("InternalServerException", 500, "The system encountered an unexpected error."),
    "authentication_error": (
        "MissingAuthenticationTokenException",
        403,
        "Missing Authentication Token",
    ),
    "permission_error": ("AccessDeniedException", 403, ""),
    "not_found_error": ("ResourceNotFoundException", 404, ""),
}
# Anthropic's error: Google's status, the HTTP status, its words ("" keeps the model's).
_GOOGLE = {
    "overloaded_error": ("UNAVAILABLE", 503, "The model is overloaded. Please try again later."),
    "api_error": ("INTERNAL", 500, "Internal error encountered."),
    "authentication_error": (
        "UNAUTHENTICATED",
        401,
        "Request is missing required authentication credential.",
    ),
    "permission_error": ("PERMISSION_DENIED", 403, ""),
    "not_found_error": ("NOT_FOUND", 404, ""),
}
_QUOTA = "Quota exceeded for aiplatform.googleapis.com/online_prediction_{unit}_per_base_model"
_DAY_USED_UP = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [{"quotaId": "OnlinePredictionTokensPerDayPerProjectPerBaseModel"}],
}


class _Resold(AnthropicMessages):
    """Anthropic's messages from somebody else, who keeps quiet about limits."""

    def announced(self, headers: Mapping[str, str], epoch: float) -> Mapping[str, str]:  # noqa: ARG002
        """Nothing."""
        return NO_HEADERS


class BedrockAnthropic(_Resold):
    """`POST /model/ID/invoke` and `/invoke-with-response-stream`."""

    name = "bedrock"

    def stream(self, message: PendingReply) -> Answer:
        """The events, each in a frame of Amazon's."""
        return Answer(CONTENT_TYPE, [_chunk(event) for event in self.events(message)], 2)

    def error_event(self, body: str, after: int = 0) -> bytes:  # noqa: ARG002
        """A frame that is an exception."""
        exception, _, words = _amazon(Rejected(0, 0.0, 500, NO_HEADERS, body), *_words(body))
        name = exception[0].lower() + exception[1:]
        return _frame({":exception-type": name, ":message-type": "exception"}, {"message": words})

    def ping(self) -> bytes:
        """Anthropic's sign of life, in a frame."""
        return _chunk({"type": "ping"})

    def identity(self, serial: int) -> Mapping[str, str]:
        """`x-amzn-requestid`."""
        return {"x-amzn-requestid": request_id(serial)}

    def refused(self, refused: Rejected, model: str, epoch: float) -> VendorRefusal:  # noqa: ARG002
        """The exception's name in a header, its words in the body."""
        words = error_words(refused.body)
        if words is None:
            return VendorRefusal(refused.status, refused.headers, refused.body)
        exception, status, message = _amazon(refused, *words)
        headers = {"x-amzn-errortype": exception}
        return VendorRefusal(status, headers, json.dumps({"message": message}))


class VertexAnthropic(_Resold):
    """`POST …/publishers/anthropic/models/ID:rawPredict` and `:streamRawPredict`."""

    name = "vertex"

    def refused(self, refused: Rejected, model: str, epoch: float) -> VendorRefusal:  # noqa: ARG002
        """Google's error document."""
        words = error_words(refused.body)
        if words is None:
            return VendorRefusal(refused.status, refused.headers, refused.body)
        status, code, message = _google(refused, *words, model=model)
        error: JsonObject = {"code": code, "message": message, "status": status}
        if refused.wall:
            error["details"] = [_DAY_USED_UP]
        return VendorRefusal(code, NO_HEADERS, json.dumps({"error": error}))


def _chunk(event: JsonObject) -> bytes:
    inside = base64.b64encode(json.dumps(event).encode()).decode()
    return _frame({":event-type": "chunk", ":message-type": "event"}, {"bytes": inside})


def _frame(headers: Mapping[str, str], document: JsonObject) -> bytes:
    told = {**headers, ":content-type": "application/json"}
    return frame(told, json.dumps(document).encode())


def _words(body: str) -> tuple[str, str]:
    return error_words(body) or ("api_error", "")


def _amazon(refused: Rejected, kind: str, message: str) -> tuple[str, int, str]:
    if kind == "rate_limit_error":
        tokens = refused.over is not None and refused.over.unit != "requests"
        what = "tokens per day" if refused.wall else "tokens" if tokens else "requests"
        return "ThrottlingException", 429, f"Too many {what}, {_TOO_MANY}"
    exception, status, words = _AMAZON.get(kind, ("ValidationException", refused.status, ""))
    kept = refused.status if refused.status in (502, 503, 504) else status
    return exception, kept, words or message


def _google(refused: Rejected, kind: str, message: str, *, model: str) -> tuple[str, int, str]:
    if kind == "rate_limit_error":
        told = "Resource exhausted, please try again later."
        if refused.over is not None or refused.wall:
            unit = "requests" if refused.over and refused.over.unit == "requests" else "tokens"
            told = f"{_QUOTA.format(unit=unit)} with base model: anthropic-{model}."
        return "RESOURCE_EXHAUSTED", 429, told
    status, code, words = _GOOGLE.get(kind, ("INVALID_ARGUMENT", refused.status, ""))
    kept = refused.status if refused.status in (502, 503, 504) else code
    return status, kept, words or message
