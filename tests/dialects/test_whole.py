"""A stream that came in one piece is read as it would be event by event."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.dialects.anthropic_stream import AnthropicStreamReader
from jackline.dialects.anthropic_whole import read_whole
from jackline.dialects.sse import EventSplitter
from tests.dialects.answers import ANSWERS


def read_slowly(data: bytes) -> AnthropicStreamReader:
    reader, splitter = AnthropicStreamReader(), EventSplitter()
    for event in splitter.feed(data):
        if reader.whole and not reader.broken:
            reader.give_up()
        reader.feed(event)
    if splitter.rest:
        reader.give_up()
    return reader


@pytest.mark.parametrize("name", ANSWERS)
def test_whole_answers_are_recognised_with_what_they_cost(name: str) -> None:
    answer = ANSWERS[name]
    whole = read_whole(answer.stream)
    slow = read_slowly(answer.stream)
    assert slow.whole
    if whole is not None:
        assert whole.usage == slow.usage


def test_the_usual_spelling_takes_the_short_way() -> None:
    assert read_whole(ANSWERS["text"].stream) is not None
    assert read_whole(ANSWERS["text"].stream[:-1]) is None


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
    if read_whole(data) is not None:
        slow = read_slowly(data)
        assert slow.whole
        assert not slow.broken
