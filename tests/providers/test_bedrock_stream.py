"""Bedrock's frames as Anthropic's events: exceptions, damage, and botocore's own reading."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.dialects import EventSplitter
from jackline.dialects.sse import name_and_data
from jackline.failures import Kind, Observation, Scope, classify
from jackline.providers.bedrock import BedrockStream, HeaderValue
from tests.providers.exchanges import NOW, decoded
from tests.providers.frames import EVENTS, STREAM, check_whole, chunk, exception, frame


@pytest.mark.parametrize(
    ("said", "kind", "shown"),
    [
        (
            exception("throttlingException", message="Too many tokens, please wait."),
            Kind.RATE_LIMIT,
            "rate_limit_error",
        ),
        (
            exception("modelStreamErrorException", message="An error", originalStatusCode=500),
            Kind.UPSTREAM_5XX,
            "api_error",
        ),
        (
            exception(
                "modelStreamErrorException",
                message="An error",
                originalStatusCode=529,
                originalMessage="Overloaded",
            ),
            Kind.OVERLOADED,
            "overloaded_error",
        ),
        (exception("internalServerException", message="Oh"), Kind.UPSTREAM_5XX, "api_error"),
        (
            exception("serviceUnavailableException", message="Bedrock is unable"),
            Kind.OVERLOADED,
            "overloaded_error",
        ),
        (exception("modelTimeoutException", message="Slow"), Kind.TIMEOUT, "timeout_error"),
        (
            exception(
                "validationException", message="prompt is too long: 200049 tokens > 200000 maximum"
            ),
            Kind.INVALID_REQUEST,
            "invalid_request_error",
        ),
        (exception("somethingNewException", message="New"), Kind.UPSTREAM_5XX, "api_error"),
        (
            frame(
                {
                    ":message-type": "error",
                    ":error-code": "InternalError",
                    ":error-message": "An internal server error occurred",
                },
                b"",
            ),
            Kind.UPSTREAM_5XX,
            "api_error",
        ),
        (b"\0\0\0\x20damaged on its way", Kind.TRUNCATED_STREAM, "api_error"),
        (
            frame({":message-type": "event", ":event-type": "chunk"}, b"no json"),
            Kind.TRUNCATED_STREAM,
            "api_error",
        ),
    ],
)
def test_an_exception_in_the_middle_becomes_an_error_event_that_is_judged_right(
    said: bytes, kind: Kind, shown: str
) -> None:
    stream = BedrockStream()
    begun = stream.feed(b"".join(map(chunk, EVENTS[:3])) + said + chunk(EVENTS[3]))
    name, data = name_and_data(EventSplitter().feed(begun)[-1])
    assert name == b"error"
    error = decoded(data)["error"]
    assert isinstance(error, dict)
    assert error["type"] == shown
    reported = b"event: error\ndata: " + data + b"\n\n"
    assert classify(Observation.of_stream(reported), now=NOW).kind is kind
    assert stream.feed(STREAM) + stream.end() == b"", "nothing follows an error"


def test_an_exception_of_one_model_does_not_concern_the_others() -> None:
    """By Bedrock's own name for it, which Anthropic's types do not distinguish."""
    reported = BedrockStream().feed(exception("modelStreamErrorException", message="An error"))
    assert classify(Observation.of_stream(reported), now=NOW).scope is Scope.MODEL
    reported = BedrockStream().feed(exception("internalServerException", message="An error"))
    assert classify(Observation.of_stream(reported), now=NOW).scope is Scope.UPSTREAM


def test_events_that_nobody_knows_are_passed_over() -> None:
    odd = frame({":message-type": "event", ":event-type": "metadata"}, b"{}")
    stream = BedrockStream()
    check_whole(stream.feed(odd + STREAM))


def test_line_ends_between_the_tokens_of_an_event_do_not_end_it() -> None:
    reported = BedrockStream().feed(chunk(b'{\r\n "type":\n"ping"\r}'))
    assert reported == b'event: ping\ndata: {   "type": "ping" }\n\n'


@given(st.lists(st.binary(max_size=40), max_size=4))
def test_whatever_comes_nothing_raises(pieces: list[bytes]) -> None:
    stream = BedrockStream()
    for piece in pieces:
        stream.feed(piece)
        stream.feed(frame({":message-type": "event", ":event-type": "chunk"}, piece))
    stream.end()


def test_botocores_own_parser_finds_the_same_events() -> None:
    """The bytes of our tests are what AWS's client takes for an answer of this operation."""
    loader: Any = import_module("botocore.loaders").Loader()
    model: Any = import_module("botocore.model")
    service = model.ServiceModel(loader.load_service_model("bedrock-runtime", "service-2"))
    shape = service.shape_for("ResponseStream")
    parser: Any = import_module("botocore.parsers").EventStreamJSONParser()
    buffer: Any = import_module("botocore.eventstream").EventStreamBuffer()
    buffer.add_data(STREAM)
    theirs = [parser.parse(event.to_response_dict(), shape)["chunk"]["bytes"] for event in buffer]
    assert theirs == list(EVENTS)
    names_known = set(shape.members)
    assert {"throttlingException", "modelStreamErrorException", "internalServerException"} < (
        names_known
    )
    buffer = import_module("botocore.eventstream").EventStreamBuffer()
    buffer.add_data(exception("throttlingException", message="Slow down"))
    (raised,) = [parser.parse(event.to_response_dict(), shape) for event in buffer]
    assert raised["Error"] == {"Code": "throttlingException", "Message": "Slow down"}


@pytest.mark.parametrize("size", [300_000, 3_000_000])
@pytest.mark.parametrize("field", ["message", "originalMessage"])
def test_an_exception_of_a_size_that_none_has_is_a_damaged_stream(field: str, size: int) -> None:
    """Its words would be searched for keys: seconds of the event loop for some megabytes."""
    headers: dict[str, HeaderValue] = {":message-type": "exception", ":exception-type": "x"}
    reported = BedrockStream().feed(frame(headers, json.dumps({field: "sk " * size}).encode()))
    assert b"the event stream is damaged" in reported


def test_of_a_long_exception_only_what_is_shown_is_searched_for_keys() -> None:
    words = "throttled, " * 20_000
    reported = BedrockStream().feed(exception("throttlingException", message=words))
    assert len(reported) < 1_300
