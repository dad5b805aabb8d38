"""Write replies as the bytes that Anthropic, Amazon Bedrock and Google Vertex AI send.

Rules: (1) pure: values in, bytes out; (2) a stream is a list of whole events, so that a server
can stop between any two; (3) usage adds up: fresh, newly cached and cached input make the whole;
(4) clouds send Anthropic's events byte for byte; only the framing and the refusals are their own,
and they announce no limits in headers; (5) a frame of Amazon's event stream is whole: lengths and
both checksums are right.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from jackline.simulator.client_request import ClientRequest, JsonObject
from jackline.simulator.exchange import NO_HEADERS, ProviderRefusal, Rejected, read_error
from jackline.simulator.prompt_cache import Hit
from jackline.simulator.reply_script import Say

SSE = "text/event-stream; charset=utf-8"
JSON = "application/json"
_AMAZON_STREAM = "application/vnd.amazon.eventstream"
_DELTA_CHARACTERS = 80
# The byte sizes of a frame's prelude and checksum, and Amazon's number for a string header.
_PRELUDE, _CHECKSUM, _STRING = 12, 4, 7
_BUSY = "Bedrock is unable to process your request."
_TOO_MANY = "please wait before trying again."
# Anthropic's error: Amazon's exception, its status, its message ("" keeps the model's).
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
# Anthropic's error: Google's status, the HTTP status, its message ("" keeps the model's).
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


@dataclass(frozen=True, slots=True)
class PendingReply:
    """A reply that will be written, and the request that it answers.

    `cached` is what prompt caches have of the request; without it, nothing is cached.
    """

    serial: int
    request: ClientRequest
    say: Say
    cached: Hit | None = None

    @property
    def hit(self) -> Hit:
        """How the input divides between prompt caches and the rest."""
        return Hit(plain=self.request.input_tokens) if self.cached is None else self.cached

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
    """The pieces of a whole answer; only the last `closing` ones show that it is whole."""

    content_type: str
    pieces: Sequence[bytes]
    closing: int


class Dialect(ABC):
    """A wire format: one implementation per family of endpoints. `name` is used in the ledger."""

    name: ClassVar[str]

    @abstractmethod
    def whole(self, reply: PendingReply) -> Answer:
        """The answer in one document."""

    @abstractmethod
    def stream(self, reply: PendingReply) -> Answer:
        """The answer as events."""

    @abstractmethod
    def error_event(self, body: str, after: int = 0) -> bytes:
        """An error inside a stream, after so many events; `body` is Anthropic's."""

    @abstractmethod
    def ping(self) -> bytes:
        """An event without content, which shows that the stream is alive."""

    @abstractmethod
    def identity(self, serial: int) -> Mapping[str, str]:
        """The headers that name a request."""

    @abstractmethod
    def models(self, names: Sequence[str]) -> bytes:
        """The list of these models."""

    @abstractmethod
    def announced(self, headers: Mapping[str, str], epoch: float) -> Mapping[str, str]:
        """Anthropic's headers as this vendor writes them; `epoch` is now."""

    def refused(self, refused: Rejected, model: str, epoch: float) -> ProviderRefusal:
        """A refusal in this vendor's format; pages of an edge stay as they are."""
        error = read_error(refused.body)
        if error is None:
            return ProviderRefusal(refused.status, refused.body, refused.headers)
        own = refused._replace(headers=self.announced(refused.headers, epoch))
        return self._refusal(own, *error, model)

    @abstractmethod
    def _refusal(
        self, refused: Rejected, kind: str, message: str, model: str
    ) -> ProviderRefusal: ...


def sse(event: JsonObject) -> bytes:
    """One server-sent event."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def request_id(serial: int) -> str:
    """The id of a request, known to both sides."""
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


def in_parts(text: str) -> list[str]:
    """The text in the pieces of a stream."""
    return [text[at : at + _DELTA_CHARACTERS] for at in range(0, len(text), _DELTA_CHARACTERS)]


class AnthropicMessages(Dialect):
    """`POST /v1/messages`."""

    name = "anthropic"

    def whole(self, reply: PendingReply) -> Answer:
        """The message as one JSON document."""
        return Answer(JSON, [json.dumps(self._document(reply)).encode()], 0)

    def stream(self, reply: PendingReply) -> Answer:
        """The message as events, text and arguments in small deltas."""
        return Answer(SSE, [sse(event) for event in self._events(reply)], 2)

    def error_event(self, body: str, after: int = 0) -> bytes:  # noqa: ARG002
        """`event: error` with the API's error document."""
        return f"event: error\ndata: {body}\n\n".encode()

    def ping(self) -> bytes:
        """`event: ping`."""
        return sse({"type": "ping"})

    def identity(self, serial: int) -> Mapping[str, str]:
        """`request-id`, and the name that proxies use."""
        return {"request-id": request_id(serial), "x-request-id": request_id(serial)}

    def announced(self, headers: Mapping[str, str], epoch: float) -> Mapping[str, str]:  # noqa: ARG002
        """The model's own headers are Anthropic's."""
        return headers

    def _refusal(self, refused: Rejected, kind: str, message: str, model: str) -> ProviderRefusal:  # noqa: ARG002
        return ProviderRefusal(refused.status, refused.body, refused.headers)

    def models(self, names: Sequence[str]) -> bytes:
        """The reply of `/v1/models`."""
        created = "2026-01-01T00:00:00Z"
        data = [
            {"type": "model", "id": name, "display_name": name, "created_at": created}
            for name in names
        ]
        ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
        return json.dumps({"data": data, "has_more": False, **ends}).encode()

    def _document(self, reply: PendingReply) -> JsonObject:
        say, hit = reply.say, reply.hit
        content: list[JsonObject] = [{"type": "text", "text": say.text}] if say.text else []
        for index, (name, value) in enumerate(say.calls):
            call = f"toolu_{reply.id}{index:02d}"
            content.append({"type": "tool_use", "id": call, "name": name, "input": value})
        return {
            "id": f"msg_{reply.id}",
            "type": "message",
            "role": "assistant",
            "model": reply.request.model,
            "content": content,
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

    def _events(self, reply: PendingReply) -> list[JsonObject]:
        whole = self._document(reply)
        usage = whole["usage"]
        first = {**usage, "output_tokens": 1}
        start = {**whole, "content": [], "stop_reason": None, "usage": first}
        events: list[JsonObject] = [{"type": "message_start", "message": start}]
        for index, block in enumerate(whole["content"]):
            if block["type"] == "text":
                empty: JsonObject = {**block, "text": ""}
                deltas = [{"type": "text_delta", "text": part} for part in in_parts(block["text"])]
            else:
                empty = {**block, "input": {}}
                parts = in_parts(json.dumps(block["input"]))
                deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
            events.append({"type": "content_block_start", "index": index, "content_block": empty})
            events += [
                {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
            ]
            events.append({"type": "content_block_stop", "index": index})
        stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        events.append({"type": "message_delta", "delta": stop, "usage": usage})
        events.append({"type": "message_stop"})
        return events


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """One message of Amazon's event stream: prelude, its checksum, headers, payload, checksum."""
    encoded = b""
    for name, value in headers.items():
        text = value.encode()
        encoded += struct.pack(">B", len(name)) + name.encode()
        encoded += struct.pack(">BH", _STRING, len(text)) + text
    total = _PRELUDE + len(encoded) + len(payload) + _CHECKSUM
    prelude = struct.pack(">II", total, len(encoded))
    body = prelude + struct.pack(">I", zlib.crc32(prelude)) + encoded + payload
    return body + struct.pack(">I", zlib.crc32(body))


class BedrockAnthropic(AnthropicMessages):
    """`POST /model/ID/invoke` and `/invoke-with-response-stream`."""

    name = "bedrock"

    def stream(self, reply: PendingReply) -> Answer:
        """The events, each in a frame of Amazon's."""
        return Answer(_AMAZON_STREAM, [self._chunk(event) for event in self._events(reply)], 2)

    def error_event(self, body: str, after: int = 0) -> bytes:  # noqa: ARG002
        """A frame that is an exception."""
        kind, message = read_error(body) or ("api_error", "")
        rejected = Rejected(0, 0.0, 500, NO_HEADERS, body)
        exception, _, text = self._exception(rejected, kind, message)
        name = exception[0].lower() + exception[1:]
        headers = {":exception-type": name, ":message-type": "exception", ":content-type": JSON}
        return frame(headers, json.dumps({"message": text}).encode())

    def ping(self) -> bytes:
        """Anthropic's ping, in a frame."""
        return self._chunk({"type": "ping"})

    def identity(self, serial: int) -> Mapping[str, str]:
        """`x-amzn-requestid`."""
        return {"x-amzn-requestid": request_id(serial)}

    def announced(self, headers: Mapping[str, str], epoch: float) -> Mapping[str, str]:  # noqa: ARG002
        """Nothing."""
        return NO_HEADERS

    def _refusal(self, refused: Rejected, kind: str, message: str, model: str) -> ProviderRefusal:  # noqa: ARG002
        exception, status, text = self._exception(refused, kind, message)
        body = json.dumps({"message": text})
        return ProviderRefusal(status, body, {"x-amzn-errortype": exception})

    def _exception(self, refused: Rejected, kind: str, message: str) -> tuple[str, int, str]:
        if kind == "rate_limit_error":
            tokens = refused.over is not None and refused.over.unit != "requests"
            what = "tokens per day" if refused.wall else "tokens" if tokens else "requests"
            return "ThrottlingException", 429, f"Too many {what}, {_TOO_MANY}"
        exception, status, text = _AMAZON.get(kind, ("ValidationException", refused.status, ""))
        status = refused.status if refused.status in (502, 503, 504) else status
        return exception, status, text or message

    def _chunk(self, event: JsonObject) -> bytes:
        inside = base64.b64encode(json.dumps(event).encode()).decode()
        headers = {":event-type": "chunk", ":message-type": "event", ":content-type": JSON}
        return frame(headers, json.dumps({"bytes": inside}).encode())


class VertexAnthropic(AnthropicMessages):
    """`POST …/publishers/anthropic/models/ID:rawPredict` and `:streamRawPredict`."""

    name = "vertex"

    def announced(self, headers: Mapping[str, str], epoch: float) -> Mapping[str, str]:  # noqa: ARG002
        """Nothing."""
        return NO_HEADERS

    def _refusal(self, refused: Rejected, kind: str, message: str, model: str) -> ProviderRefusal:
        if kind == "rate_limit_error":
            status, code, text = "RESOURCE_EXHAUSTED", 429, ""
            message = "Resource exhausted, please try again later."
            if refused.over is not None or refused.wall:
                unit = "requests" if refused.over and refused.over.unit == "requests" else "tokens"
                message = f"{_QUOTA.format(unit=unit)} with base model: anthropic-{model}."
        else:
            status, code, text = _GOOGLE.get(kind, ("INVALID_ARGUMENT", refused.status, ""))
            code = refused.status if refused.status in (502, 503, 504) else code
        error: JsonObject = {"code": code, "message": text or message, "status": status}
        if refused.wall:
            error["details"] = [_DAY_USED_UP]
        return ProviderRefusal(code, json.dumps({"error": error}), NO_HEADERS)
