"""Streams and requests that are passed on as they are can still be followed."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.dialects import RequestFacts, TokenUsage
from jackline.dialects.openai_chat import ChatStreamReader
from jackline.dialects.openai_responses import ResponsesStreamReader
from jackline.dialects.request_facts import (
    continues_openai_turn,
    read_openai_request,
)
from tests.dialects.translation.foreign_answers import (
    Answer,
    answers,
    chat_events,
    data,
    named,
    responses_events,
)

READERS: list[tuple[Any, Any]] = [
    (ChatStreamReader, chat_events),
    (ResponsesStreamReader, responses_events),
]
BOTH = pytest.mark.parametrize(("reader_of", "events_of"), READERS)


@BOTH
@given(answer=answers())
def test_a_stream_is_whole_with_its_last_event_and_not_before(
    reader_of: Any, events_of: Any, answer: Answer
) -> None:
    reader = reader_of()
    for event in events_of(answer):
        assert not reader.whole
        reader.feed(event)
    assert reader.whole
    assert reader.started
    assert not reader.broken
    assert reader.usage == TokenUsage(40, 20, 60, 0)
    assert reader.stop_reason is not None


def test_chat_that_is_done_without_a_finish_reason_is_broken() -> None:
    reader = ChatStreamReader()
    events = chat_events(Answer((), ("Hi",), (), (), "stop"))
    for event in [*events[:-3], events[-1]]:
        reader.feed(event)
    assert reader.broken
    assert not reader.whole


@pytest.mark.parametrize(
    ("reader", "event"),
    [
        (ChatStreamReader(), data({"error": {"message": "No."}})),
        (ChatStreamReader(), b'event: error\ndata: {"message": "No."}\n\n'),
        (ResponsesStreamReader(), named({"type": "response.failed", "response": {}})),
        (ResponsesStreamReader(), data({"type": "error", "message": "No."})),
    ],
)
def test_an_error_breaks_a_stream_and_is_stored(reader: Any, event: bytes) -> None:
    reader.feed(event)
    assert reader.broken
    assert b"{" in reader.error_event


@pytest.mark.parametrize("reader_of", [ChatStreamReader, ResponsesStreamReader])
@given(noise=st.binary(max_size=60))
def test_noise_breaks_a_reader_or_says_nothing_but_never_raises(
    reader_of: Any, noise: bytes
) -> None:
    reader = reader_of()
    reader.feed(b"data: " + noise + b"\n\n")
    assert not reader.whole
    reader.give_up()
    assert reader.broken


def test_facts_of_requests() -> None:
    body = json.dumps({"model": "m", "stream": True, "max_completion_tokens": 7}).encode()
    assert read_openai_request(body) == RequestFacts("m", True, 7, len(body) // 4)
    body = json.dumps({"model": "m", "max_tokens": 8, "messages": []}).encode()
    assert read_openai_request(body) == RequestFacts("m", False, 8, len(body) // 4)
    body = json.dumps({"model": "m", "stream": True, "max_output_tokens": 9}).encode()
    assert read_openai_request(body) == RequestFacts("m", True, 9, len(body) // 4)


@given(st.binary(max_size=60))
def test_requests_that_cannot_be_read_have_no_facts(noise: bytes) -> None:
    body = b"{" + noise
    assert read_openai_request(body).input_tokens == len(body) // 4
    assert not continues_openai_turn(body)


@pytest.mark.parametrize(
    ("fields", "middle"),
    [
        ({"input": "hi"}, False),
        ({"input": [{"type": "message", "role": "user", "content": "hi"}]}, False),
        ({"input": [{"type": "function_call_output", "call_id": "a", "output": "b"}]}, True),
        (
            {
                "input": [
                    {"type": "custom_tool_call_output", "call_id": "a", "output": "b"},
                    {"type": "message", "role": "developer", "content": "mind the gap"},
                ]
            },
            True,
        ),
        ({"messages": [{"role": "tool", "tool_call_id": "a", "content": "b"}]}, True),
        ({"messages": [{"role": "tool"}, {"role": "user", "content": "stop"}]}, False),
        ({"messages": []}, False),
    ],
)
def test_results_of_tools_at_the_end_mean_the_middle_of_a_turn(
    fields: dict[str, object], middle: bool
) -> None:
    assert continues_openai_turn(json.dumps(fields).encode()) is middle


def test_choices_are_read_up_to_the_number_that_can_be_requested() -> None:
    """Each was stored: 3.6 million of them took 240 MB for as long as the stream was open."""

    def read(count: int) -> ChatStreamReader:
        reader = ChatStreamReader()
        for index in range(count):
            reader.feed(data({"choices": [{"index": index * 7, "finish_reason": "stop"}]}))
        reader.feed(b"data: [DONE]\n\n")
        return reader

    assert read(128).whole
    assert read(129).broken


def test_what_is_stored_of_choices_does_not_grow_with_an_event() -> None:
    def stored(count: int) -> int:
        chunk = data({"choices": [{"index": index} for index in range(10_000, 10_000 + count)]})
        reader = ChatStreamReader()
        tracemalloc.start()
        try:
            reader.feed(chunk)
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    assert stored(80_000) < stored(20_000) + 100_000
