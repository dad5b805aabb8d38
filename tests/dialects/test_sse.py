"""A stream of events is cut at its blank lines, byte for byte, however it was chunked."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jackline.dialects import EventSplitter, data_of, event_of, name_and_data
from jackline.dialects.sse import LARGEST_EVENT
from tests.dialects.answers import ANSWERS

pieces = st.sampled_from(
    [b"\n", b"\r", b"\r\n", b"event: a", b"data: x", b"data", b": c", "ü🌍".encode(), b"x:y"]
)
streams = st.lists(pieces, max_size=30).map(b"".join)


def split(chunks: list[bytes]) -> tuple[list[bytes], bytes]:
    splitter = EventSplitter()
    events = [event for chunk in chunks for event in splitter.feed(chunk)]
    return events, splitter.rest


def dispatched(stream: bytes) -> list[tuple[bytes, bytes]]:
    """The events of a stream as the standard has them, read line by line."""
    result = []
    name, data = b"", list[bytes]()
    *lines, _unfinished = re.split(rb"\r\n|\r|\n", stream)
    for line in lines:
        field, _, value = line.partition(b":")
        if not line:
            if name or data:
                result.append((name, b"\n".join(data)))
            name, data = b"", []
        elif field == b"event":
            name = value.removeprefix(b" ")
        elif field == b"data":
            data.append(value.removeprefix(b" "))
    return result


@given(streams)
@example(b"a\r\n\r\nb\n\r\nc\r\rd\r\n\ne\n\rf")
def test_nothing_is_lost_or_added(stream: bytes) -> None:
    events, rest = split([stream])
    assert b"".join(events) + rest == stream


@given(streams, st.data())
def test_chunks_change_nothing(stream: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert split(chunks) == split([stream])
    assert split([stream[at : at + 1] for at in range(len(stream))]) == split([stream])


@given(streams)
def test_events_are_those_of_the_standard(stream: bytes) -> None:
    events, rest = split([stream])
    read = [(name_and_data(event)[0], data_of(event)) for event in events]
    # A last blank line that ends in \r may still get its \n: until then its event waits.
    expected = dispatched(stream if not rest.endswith(b"\r") else stream.removesuffix(b"\r"))
    assert [result for result in read if result != (b"", b"")] == [
        result for result in expected if result != (b"", b"")
    ]


@pytest.mark.parametrize("name", ANSWERS)
def test_every_event_of_an_answer_comes_out_as_it_is_complete(name: str) -> None:
    answer = ANSWERS[name]
    splitter = EventSplitter()
    for event in answer.events:
        assert splitter.feed(event) == [event]
        assert splitter.rest == b""


def test_the_last_name_counts_and_lines_of_data_are_joined() -> None:
    assert name_and_data(b"event: a\nevent: b\n\n")[0] == b"b"
    assert name_and_data(b"event:a\r\n\r\n")[0] == b"a"
    assert name_and_data(b"data: event: a\n\n")[0] == b""
    assert name_and_data(b"eventful: a\n\n")[0] == b""
    assert data_of(b"data: a\ndata:b\nid: 1\ndata\n\n") == b"a\nb\n"


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\n")).map(str.encode))
def test_what_is_written_is_read_again(data: bytes) -> None:
    event = event_of(b"message_stop", data)
    assert split([event]) == ([event], b"")
    assert (name_and_data(event)[0], data_of(event)) == (b"message_stop", data)


@pytest.mark.parametrize("in_one_piece", [True, False])
def test_an_event_without_end_is_refused_before_it_fills_the_memory(in_one_piece: bool) -> None:
    splitter = EventSplitter()
    chunk = b"data: " + b"x" * (LARGEST_EVENT // 4)
    if in_one_piece:
        with pytest.raises(ValueError, match="32 MB"):
            splitter.feed(chunk * 4 + b"\n\n")
        return
    for _ in range(3):
        assert splitter.feed(chunk) == []
    with pytest.raises(ValueError, match="32 MB"):
        splitter.feed(chunk)
