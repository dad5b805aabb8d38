"""A stream is whole only when every part came in its place; nothing makes the reader raise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.dialects import AnthropicStreamReader, TokenUsage
from tests.dialects.answers import ANSWERS, event


def read(events: list[bytes]) -> AnthropicStreamReader:
    reader = AnthropicStreamReader()
    for one in events:
        reader.feed(one)
    return reader


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_are_followed_to_their_end_and_are_whole_only_there(name: str) -> None:
    answer = ANSWERS[name]
    for count in range(len(answer.events)):
        assert not read(answer.events[:count]).whole
    reader = read(answer.events)
    assert reader.whole
    assert not reader.broken
    assert [block.type for block in reader.blocks] == [block["type"] for block in answer.blocks]
    assert all(block.complete for block in reader.blocks)
    assert reader.stop_reason == answer.stop_reason
    assert reader.usage == TokenUsage(input_tokens=11, output_tokens=42, cache_read_tokens=5)


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_lacks_any_event_but_a_delta_or_ping_is_not_whole(name: str) -> None:
    events = ANSWERS[name].events
    for left_out, one in enumerate(events):
        stored = events[:left_out] + events[left_out + 1 :]
        spare = b"event: content_block_delta" in one or b"event: ping" in one
        assert read(stored).whole == spare


def test_open_blocks_are_distinguished_from_complete_ones() -> None:
    events = ANSWERS["text and a tool"].events
    reader = read(events[: next(i for i, e in enumerate(events) if b'"tool_use"' in e) + 1])
    assert [(block.type, block.complete) for block in reader.blocks] == [
        ("text", True),
        ("tool_use", False),
    ]
    assert reader.open_block is reader.blocks[1]


def test_the_latest_count_is_used() -> None:
    usage = {"input_tokens": 9, "output_tokens": 1, "cache_creation_input_tokens": 4}
    start = event("message_start", message={"usage": usage})
    result = {"output_tokens": 30, "input_tokens": None, "cache_read_input_tokens": 7}
    reader = read([start, event("message_delta", delta={}, usage=result)])
    assert reader.usage == TokenUsage(
        input_tokens=9, output_tokens=30, cache_read_tokens=7, cache_write_tokens=4
    )


@pytest.mark.parametrize("usage", ["much", [], {"output_tokens": "many"}, None])
def test_a_bill_that_cannot_be_read_does_not_break_the_answer(usage: object) -> None:
    reader = read([event("message_start", message={"usage": usage})])
    assert reader.started
    assert not reader.broken
    assert reader.usage == TokenUsage()


def test_an_error_is_stored_as_written() -> None:
    reader = read([b'event: error\ndata: {"type": "error",  "error": {}}\n\n'])
    assert reader.error_event == b'{"type": "error",  "error": {}}'
    assert reader.broken


def test_unknown_events_are_named_and_change_nothing() -> None:
    reader = read(ANSWERS["text"].events[:2])
    assert reader.feed(event("from_the_future", index=9)) == b"from_the_future"
    assert reader.feed(b": comment\n\n") == b""
    assert not reader.broken


@pytest.mark.parametrize(
    "odd",
    [
        b"event: message_start\n\n",
        b"event: message_start\ndata: " + b'{"a":' * 100_000 + b"\n\n",
        b'event: message_start\ndata: {"type":"message_stop","message":{}}\n\n',
        b'event: content_block_start\ndata: {"type":"content_block_start","index":"0"}\n\n',
        b"event: content_block_stop\ndata: \xff\xfe\n\n",
    ],
)
def test_odd_data_breaks_the_stream_for_good(odd: bytes) -> None:
    reader = read([odd, *ANSWERS["text"].events])
    assert reader.broken
    assert not reader.whole


@given(st.lists(st.binary(max_size=40), max_size=5), st.sampled_from(ANSWERS["text"].events))
def test_nothing_raises(junk: list[bytes], one: bytes) -> None:
    name = one.split(b"\n")[0]
    reader = read([name + b"\ndata: " + part + b"\n\n" for part in junk] + junk)
    assert not reader.whole


def test_a_delta_names_what_all_deltas_of_its_block_begin_with() -> None:
    events = ANSWERS["text"].events
    reader = read(events[:4])
    assert reader.delta_head is not None
    assert all(one.startswith(reader.delta_head) for one in events[4:-3])
    assert read(events[:-2]).delta_head is None
    other_order = b'event: content_block_delta\ndata: {"index":0,"type":"content_block_delta"}\n\n'
    reader = read([*events[:2], other_order])
    assert reader.delta_head is None
    assert not reader.broken


def test_blocks_are_read_up_to_a_number_and_their_types_are_cut() -> None:
    def read_blocks(count: int) -> AnthropicStreamReader:
        reader = AnthropicStreamReader()
        reader.feed(event("message_start", message={}))
        for index in range(count):
            block = {"type": "text"}
            reader.feed(event("content_block_start", index=index, content_block=block))
            reader.feed(event("content_block_stop", index=index))
        return reader

    assert not read_blocks(10_000).broken
    assert read_blocks(10_001).broken
    reader = read_blocks(0)
    reader.feed(event("content_block_start", index=0, content_block={"type": "x" * 100_000}))
    assert not reader.broken
    assert len(reader.blocks[0].type) < 100
