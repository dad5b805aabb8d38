"""A stream that came in one piece is read as it would be event by event."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.dialects.anthropic_stream import AnthropicStreamReader, read_whole_stream
from jackline.dialects.sse import EventSplitter
from tests.dialects.answers import ANSWERS


def read_slowly(data: bytes) -> AnthropicStreamReader:
    """Event by event, as a call follows it: deltas that begin alike are not looked into."""
    reader, splitter = AnthropicStreamReader(), EventSplitter()
    for event in splitter.feed(data):
        if reader.whole and not reader.broken:
            reader.give_up()
        head = reader.delta_head
        plain = event.count(b"\n") == 3 and event.endswith(b"\n\n") and b"\r" not in event
        if not (head and plain and event.startswith(head)):
            reader.feed(event)
    if splitter.rest:
        reader.give_up()
    return reader


@pytest.mark.parametrize("name", ANSWERS)
def test_whole_answers_are_recognised_with_what_they_cost(name: str) -> None:
    answer = ANSWERS[name]
    whole = read_whole_stream(answer.stream)
    slow = read_slowly(answer.stream)
    assert slow.whole
    if whole is not None:
        assert whole == slow.usage


def one_block(deltas: int, index: int = 0, stop_reason: str = '"end_turn"', gap: str = "") -> bytes:
    def event(name: str, fields: str = "") -> str:
        return f'event: {name}\ndata: {{"type":{gap}"{name}"{fields}}}\n\n'

    delta = event("content_block_delta", f',{gap}"index":{gap}{index},"delta":{{"text":"a"}}')
    return "".join(
        (
            event("message_start", ',"message":{"usage":{"input_tokens":7,"output_tokens":1}}'),
            event("ping"),
            event("content_block_start", ',"index":0,"content_block":{"type":"text"}'),
            *((delta, event("ping")) * deltas),
            event("content_block_stop", f',{gap}"index":{gap}0'),
            event("message_delta", f',"delta":{{"stop_reason":{stop_reason}}},"usage":{{}}'),
            event("message_stop"),
        )
    ).encode()


@pytest.mark.parametrize("gap", ["", " "])
@pytest.mark.parametrize("deltas", [0, 1, 3])
def test_an_answer_of_one_block_is_whole_with_what_it_cost(deltas: int, gap: str) -> None:
    whole = read_whole_stream(one_block(deltas, gap=gap))
    assert whole is not None
    assert (whole.input_tokens, whole.output_tokens) == (7, 1)


@pytest.mark.parametrize(
    "data",
    [
        one_block(2, index=1),
        one_block(2, stop_reason="null"),
        one_block(2).replace(b"message_stop", b"message_halt"),
        one_block(2).replace(b'"a"}', b'"a"', 1),
        one_block(2).replace(b'"index":0,"delta"', b'"index":0,"index":1,"delta"', 1),
        one_block(2) + one_block(1),
        one_block(2)[:-1],
    ],
    ids=["other block", "no reason", "no end", "not JSON", "two indexes", "two answers", "cut"],
)
def test_an_answer_of_one_block_that_is_not_in_order_is_not_whole(data: bytes) -> None:
    assert read_whole_stream(data) is None


def test_the_usual_spelling_takes_the_short_way() -> None:
    assert read_whole_stream(ANSWERS["text"].stream) is not None
    assert read_whole_stream(ANSWERS["text"].stream[:-1]) is None


@given(
    st.sampled_from(sorted(ANSWERS)),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.booleans()), max_size=3),
    st.binary(max_size=4),
    st.integers(0, 4000),
)
def test_nothing_is_accepted_that_would_not_be_whole_event_by_event(
    name: str, moves: list[tuple[int, int, bool]], junk: bytes, at: int
) -> None:
    events = list(ANSWERS[name].events)
    for first, second, copies in moves:
        one, other = first % len(events), second % len(events)
        if copies:
            events.insert(other, events[one])
        else:
            events[one], events[other] = events[other], events[one]
    data = b"".join(events)
    at %= len(data)
    data = data[:at] + junk + data[at:]
    if read_whole_stream(data) is not None:
        slow = read_slowly(data)
        assert slow.whole
        assert not slow.broken
