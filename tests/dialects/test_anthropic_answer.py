"""Whole answers are result from everything else, and what the gateway says is valid on the wire."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.dialects import (
    PING,
    AnswerFacts,
    AnthropicStreamReader,
    EventSplitter,
    TokenUsage,
    block_stop,
    closing_events,
    data_of,
    error_event,
    name_and_data,
    placeholder_start,
    read_answer,
)
from tests.dialects.answers import ANSWERS
from tests.dialects.strict_client import StrictClient


def one_event(data: bytes) -> tuple[bytes, object]:
    (event,) = EventSplitter().feed(data)
    result = json.loads(data_of(event))
    assert result["type"] == name_and_data(event)[0].decode()
    return name_and_data(event)[0], result


def test_a_whole_answer_is_read() -> None:
    usage = {"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 5}
    body = {"type": "message", "content": [], "stop_reason": "end_turn", "usage": usage}
    assert read_answer(json.dumps(body).encode()) == AnswerFacts(
        TokenUsage(input_tokens=3, output_tokens=4, cache_read_tokens=5), "end_turn"
    )


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b'{"type":"error"}', b'{"type":"message"}', b'{"type":"message","con'],
)
def test_everything_else_is_no_answer(body: bytes) -> None:
    assert read_answer(body) is None


def test_the_placeholder_begins_a_message_and_says_nothing() -> None:
    name, result = one_event(placeholder_start("claude-x"))
    assert name == b"message_start"
    assert result == {
        "type": "message_start",
        "message": {
            "id": "msg_jackline_hold",
            "type": "message",
            "role": "assistant",
            "model": "claude-x",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        },
    }


def test_a_ping_is_a_ping() -> None:
    assert one_event(PING) == (b"ping", {"type": "ping"})


def test_closing_events_close_a_turn() -> None:
    events = ANSWERS["text and a tool"].events
    cut = next(index for index, one in enumerate(events) if b'"tool_use"' in one) - 1
    client = StrictClient()
    client.read(b"".join(events[:cut]) + block_stop(0) + closing_events("tool_use", 9))
    assert client.complete
    assert client.stop_reason == "tool_use"
    reader = AnthropicStreamReader()
    for event in [*events[:cut], *EventSplitter().feed(block_stop(0) + closing_events("x", 9))]:
        reader.feed(event)
    assert reader.whole
    assert reader.usage.output_tokens == 9


def test_the_vendors_error_is_passed_on_unchanged() -> None:
    body = (
        b'{"type":"error","error":{"type":"overloaded_error","message":"a \\n b"},"request_id":"r"}'
    )
    assert error_event(body) == b"event: error\ndata: " + body + b"\n\n"


@given(
    st.dictionaries(
        st.text(max_size=5), st.text(max_size=9) | st.floats(allow_nan=False, allow_infinity=False)
    ),
    st.sampled_from([None, 0, 2]),
)
def test_an_error_document_of_any_layout_fits_into_one_event(
    error: dict[str, object], indent: int | None
) -> None:
    body = {"type": "error", "error": error}
    assert one_event(error_event(json.dumps(body, indent=indent).encode())) == (b"error", body)


@given(st.binary(max_size=2000))
def test_any_page_becomes_a_short_error(body: bytes) -> None:
    name, result = one_event(error_event(body))
    assert name == b"error"
    assert isinstance(result, dict)
    assert result["error"]["type"] == "api_error"
    assert 0 < len(result["error"]["message"]) <= 300
