"""Give Anthropic's answers as the clouds do that resell them: Amazon Bedrock and Google Vertex AI.

Laws: (1) what the model says is Anthropic's, byte for byte; only the wrapping and the refusals are
the cloud's; (2) a cloud tells nothing about limits in headers.
Not here: checking signatures: whatever is signed is believed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from jackline.simulator.aws_event_stream import CONTENT_TYPE, frame
from jackline.simulator.conversation import JsonObject
from jackline.simulator.exchange import NO_HEADERS, Rejected
from jackline.simulator.refusals import error_words
from jackline.simulator.wire import Answer, AnthropicMessages, Message, Native, request_id

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

    def stream(self, message: Message) -> Answer:
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

    def refused(self, refused: Rejected, model: str, epoch: float) -> Native:  # noqa: ARG002
        """The exception's name in a header, its words in the body."""
        words = error_words(refused.body)
        if words is None:
            return Native(refused.status, refused.headers, refused.body)
        exception, status, message = _amazon(refused, *words)
        headers = {"x-amzn-errortype": exception}
        return Native(status, headers, json.dumps({"message": message}))


class VertexAnthropic(_Resold):
    """`POST …/publishers/anthropic/models/ID:rawPredict` and `:streamRawPredict`."""

    name = "vertex"

    def refused(self, refused: Rejected, model: str, epoch: float) -> Native:  # noqa: ARG002
        """Google's error document."""
        words = error_words(refused.body)
        if words is None:
            return Native(refused.status, refused.headers, refused.body)
        status, code, message = _google(refused, *words, model=model)
        error: JsonObject = {"code": code, "message": message, "status": status}
        if refused.wall:
            error["details"] = [_DAY_USED_UP]
        return Native(code, NO_HEADERS, json.dumps({"error": error}))


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
