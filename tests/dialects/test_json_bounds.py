"""The end of a conversation is found without reading all of it."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from itertools import islice

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackline.dialects import read_answer
from jackline.dialects.answer_facts import is_openai_answer
from jackline.dialects.json_bounds import MOST_VALUES, has_too_many_values, last_items
from jackline.dialects.request_facts import continues_openai_turn, continues_turn

TEXT = st.text(st.sampled_from('ab"\\[]{},: \n\té'), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
SPACING = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n ", "\t:")])


@settings(max_examples=500)
@given(st.lists(VALUES, max_size=6), SPACING, st.booleans(), st.sampled_from(["", " ", "\n\t"]))
def test_the_last_items_are_those_that_a_decoder_finds(
    items: list[object], spacing: tuple[str, str], ascii_only: bool, around: str
) -> None:
    text = json.dumps(items, separators=spacing, ensure_ascii=ascii_only)
    array = f"{around}[{around}{text[1:-1]}{around}]{around}".encode()
    assert [json.loads(each) for each in last_items(array)] == items[::-1]


@given(st.integers(0, 9), st.integers(60_000, 70_000), st.sampled_from(['"', "\\", "a", "}"]))
@settings(max_examples=60, deadline=None)
def test_items_of_any_length_are_found_whole(before: int, length: int, letter: str) -> None:
    """Also where a window ends within a string, or between backslashes."""
    items: list[object] = [{"n": n} for n in range(before)]
    items += [{"text": letter * length}, {"text": letter * 7, "list": [letter] * 3}]
    found = list(last_items(json.dumps(items).encode()))
    assert [json.loads(each) for each in found] == items[::-1][: len(found)]
    # A quote that is escaped is a step of its own: there it may end early.
    assert len(found) == len(items) or letter == '"'


def test_what_is_no_array_has_no_items() -> None:
    for text in (b"", b"null", b'"[1]"', b"[]", b" [ \n] ", b"{}", b"1"):
        assert list(last_items(text)) == []


def test_an_item_that_takes_too_many_steps_is_not_found() -> None:
    array = json.dumps([1, {"a": '"' * 300_000}, 2]).encode()
    assert list(last_items(array)) == [b"2"]


MANY = 900_000
RESULT = b'{"role":"user","content":[{"type":"tool_result"}]}'
OUTPUT = b'{"type":"function_call_output"}'


def many(before: bytes, item: bytes, last: bytes) -> bytes:
    return b"%b[%b,%b]}" % (before, b",".join([item] * MANY), last)


@pytest.mark.parametrize(
    ("reader", "body", "middle"),
    [
        (continues_turn, many(b'{"messages":', b"{}", RESULT), True),
        (continues_turn, many(b'{"messages":', b"1", b'{"role":"user"}'), False),
        (
            continues_turn,
            b'{"messages":[%b]}' % many(b'{"role":"user","content":', b"{}", b"{}"),
            False,
        ),
        (continues_turn, many(b'{"messages":', b"{}", b'{"role":"system"}'), False),
        (continues_openai_turn, many(b'{"input":', b"{}", OUTPUT), True),
        (continues_openai_turn, many(b'{"messages":', b"{}", b'{"role":"tool"}'), True),
        (continues_openai_turn, many(b'{"input":', b'""', b'{"role":"user"}'), False),
    ],
)
def test_a_turn_is_judged_without_an_object_for_each_message(
    reader: Callable[[bytes], bool], body: bytes, middle: bool
) -> None:
    tracemalloc.start()
    try:
        assert reader(body) is middle
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A copy or two of the bytes, but no million of objects, each of which is larger than its text.
    assert most < 4 * len(body)


def test_an_answer_is_read_without_an_object_for_each_block() -> None:
    body = many(b'{"type":"message","content":', b"{}", b"{}")
    tracemalloc.start()
    try:
        assert read_answer(body) is not None
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < len(body)
    assert read_answer(b'{"type":"message","content":{}}') is None
    assert read_answer(b'{"type":"message","content":"x"}') is None


@pytest.mark.parametrize(
    ("body", "responses", "expected"),
    [
        (many(b'{"choices":', b'{"message":{}}', b"1"), False, True),
        (many(b'{"id":"r","output":', b'{"type":"message"}', b"1"), True, True),
        (b'{"choices":[]}', False, False),
        (b'{"choices":[{"text":"x"}]}', False, False),
        (b'{"id":"r","output":[]}', True, False),
        (b'{"status":"ok"}', True, False),
        (b"<html>", False, False),
    ],
)
def test_an_openai_answer_is_known_by_its_first_item(
    body: bytes, responses: bool, expected: bool
) -> None:
    tracemalloc.start()
    try:
        assert is_openai_answer(body, responses=responses) is expected
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 100_000


def test_values_are_counted_only_where_there_may_be_many() -> None:
    assert not has_too_many_values(b"," * (MOST_VALUES + 1))
    assert not has_too_many_values(b"x" * 3 * MOST_VALUES)
    assert not has_too_many_values(b"x" * 2 * MOST_VALUES + b"," * MOST_VALUES)
    assert has_too_many_values(b"x" * 2 * MOST_VALUES + b"," * (MOST_VALUES + 1))


@pytest.mark.parametrize("count", [1, 10_000])
def test_a_real_conversation_is_judged_by_its_last_message(count: int) -> None:
    message = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "input": {}}]}
    found = {"role": "user", "content": [{"type": "tool_result", "content": 'a "b" \\ [c] {d}, '}]}
    for last, middle in ((found, True), (message, False)):
        body = msgspec.json.encode({"messages": [message, found] * count + [last]})
        assert continues_turn(body) is middle


def test_only_as_much_is_read_as_is_requested() -> None:
    array = b"[%b]" % b",".join(b"%d" % n for n in range(100_000))
    assert list(islice(last_items(array), 3)) == [b"99999", b"99998", b"99997"]
