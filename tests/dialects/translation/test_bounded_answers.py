"""An answer in another dialect costs no more than its length says, whatever its server writes."""

from __future__ import annotations

import json
import re
import time
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from jackline.dialects.json_bounds import MOST_VALUES
from jackline.dialects.neutral import stream as message_writer
from jackline.dialects.neutral.answer import MOST_CALLS, is_object
from jackline.dialects.neutral.fields import TranslationNotes
from jackline.dialects.neutral.options import AnswerOptions
from jackline.dialects.neutral.stream import StreamTranslator
from jackline.dialects.openai_chat import ChatStreamTranslator, from_chat
from jackline.dialects.openai_responses import ResponsesStreamTranslator, from_responses
from jackline.dialects.sse import event_of

Json = dict[str, object]
OPTIONS = AnswerOptions("claude-x")
THINKS = AnswerOptions("claude-x", remember=lambda _id, _kept: None)
STOP = b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


def chunk(delta: Json, foreign_id: str = "chatcmpl-1") -> bytes:
    result = {"id": foreign_id, "choices": [{"index": 0, "delta": delta}]}
    return b"data: " + json.dumps(result).encode() + b"\n\n"


def call(index: int, arguments: str = "{}") -> Json:
    function = {"name": "look", "arguments": arguments}
    return {"index": index, "id": f"call_{index}", "function": function}


def event(kind: str, **fields: object) -> bytes:
    return event_of(kind.encode(), json.dumps({"type": kind, **fields}).encode())


def read_chat(events: list[bytes]) -> ChatStreamTranslator:
    stream = ChatStreamTranslator(OPTIONS)
    for each in events:
        stream.feed(each)
    return stream


def read_responses(events: list[bytes]) -> ResponsesStreamTranslator:
    stream = ResponsesStreamTranslator(THINKS)
    for each in events:
        stream.feed(each)
    return stream


def calls_without_index(n: int) -> Callable[[], object]:
    """First as many as the answer may have, each with an index, and then more of the last one."""
    few = [chunk({"tool_calls": [{"index": index} for index in range(n)]})]
    return lambda: read_chat([*few, chunk({"tool_calls": [{}] * (8 * n)})])


def open_call(n: int) -> Callable[[], object]:
    """The first call never becomes whole, and both go on."""
    events = [chunk({"tool_calls": [call(0, '{"a":"' + "}" * 400 * n), call(1, "")]})]
    more: Json = {
        "tool_calls": [{"index": index, "function": {"arguments": "}"}} for index in (0, 1)]
    }
    return lambda: read_chat([*events, *([chunk(more)] * n)])


def open_call_of_responses(n: int) -> Callable[[], object]:
    item = {"type": "function_call", "call_id": "c", "name": "look"}
    events = [event("response.created", response={"id": "resp_1"})]
    added = "response.output_item.added"
    events += [event(added, output_index=index, item=item) for index in (0, 1)]
    kind = "response.function_call_arguments.delta"
    events.append(event(kind, output_index=0, delta='{"a":"' + "x" * 400 * n))
    for index in (0, 1):
        events += [event(kind, output_index=index, delta="}")] * n
    return lambda: read_responses(events)


def long_answer_id(n: int) -> Callable[[], object]:
    """Short ids of calls are made unique by the id of the answer."""
    calls = [chunk({"tool_calls": [call(index)]}) for index in range(n)]
    return lambda: read_chat([chunk({}, "c" * 2000 * n), *calls])


def thoughts(n: int) -> Callable[[], object]:
    """Encrypted reasoning and text in turns, and no call that it could belong to."""
    thought = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x"}
    message = {"type": "message", "content": [{"type": "output_text", "text": "a"}]}
    body = json.dumps({"id": "resp_1", "output": [thought, message] * n}).encode()
    return lambda: from_responses(body, THINKS)


def thoughts_streamed(n: int) -> Callable[[], object]:
    kind = "response.output_item.done"
    thought = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x"}
    message = {"type": "message", "content": [{"type": "output_text", "text": "a"}]}
    both = [event(kind, item=thought), event(kind, item=message)]
    return lambda: read_responses([event("response.created", response={"id": "r"}), *(both * n)])


def seconds(work: Callable[[], object]) -> float:
    """Of this thread alone, the least of some tries: how busy the machine is changes little."""
    tries = []
    for _ in range(3):
        began = time.thread_time()
        work()
        tries.append(time.thread_time() - began)
    return min(tries)


@pytest.mark.parametrize(
    ("work", "few"),
    [
        (calls_without_index, 120),
        (open_call, 300),
        (open_call_of_responses, 300),
        (long_answer_id, 120),
        (thoughts, 300),
        (thoughts_streamed, 300),
    ],
)
def test_eight_times_as_much_costs_no_more_than_about_eight_times_as_much(
    work: Callable[[int], Callable[[], object]], few: int
) -> None:
    assert seconds(work(8 * few)) < 24 * seconds(work(few))


@pytest.mark.parametrize("named", [False, True])
def test_an_answer_of_more_calls_than_any_model_makes_is_not_followed(named: bool) -> None:
    def calls(count: int) -> list[bytes]:
        result: list[Json] = [call(n) if named else {"index": n} for n in range(count)]
        return [chunk({"tool_calls": [each]}) for each in result]

    assert not read_chat(calls(MOST_CALLS)).broken
    assert read_chat(calls(MOST_CALLS + 1)).broken


def test_a_response_of_more_calls_than_any_model_makes_is_not_followed() -> None:
    def added(index: int) -> bytes:
        item = {"type": "function_call", "call_id": f"call_{index}", "name": "look"}
        return event("response.output_item.added", output_index=index, item=item)

    begun = event("response.created", response={"id": "resp_1"})
    events = [begun, *map(added, range(MOST_CALLS))]
    assert not read_responses(events).broken
    assert read_responses([*events, added(MOST_CALLS)]).broken


def test_a_whole_answer_of_more_calls_than_any_model_makes_is_no_answer() -> None:
    def chat(count: int) -> bytes:
        message = {"tool_calls": [call(n) for n in range(count)]}
        return json.dumps({"id": "c", "choices": [{"message": message}]}).encode()

    def response(count: int) -> bytes:
        item = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
        return json.dumps({"id": "r", "output": [item] * count}).encode()

    for read, body in ((from_chat, chat), (from_responses, response)):
        assert not read(body(MOST_CALLS), OPTIONS).is_error
        assert read(body(MOST_CALLS + 1), OPTIONS).is_error


def test_a_document_of_more_values_than_an_answer_has_is_not_parsed() -> None:
    """Each would become an object, though nothing of it is used."""
    many = b"[" + b"0," * MOST_VALUES + b"0]"
    for read, name in ((from_chat, b"choices"), (from_responses, b"output")):
        result = read(b'{"id":"c","%b":%b}' % (name, many), OPTIONS)
        assert result.is_error
        # Nothing in it was looked at: there is no note of any place.
        assert not result.notes
    event_data = b'data: {"id":"c","type":"response.created","unknown":%b}\n\n' % many
    assert read_chat([event_data]).broken
    assert read_responses([event_data]).broken


def test_an_event_of_more_objects_than_its_bytes_can_mean_is_not_followed() -> None:
    assert not read_chat([chunk({"content": [{}] * 3000})]).broken
    assert read_chat([chunk({"content": [{}] * 20_000})]).broken


def test_an_answer_may_come_in_as_many_pieces_as_it_has_tokens() -> None:
    """The longest answers have 128,000 tokens, and many servers send them one by one."""
    stream = read_chat([chunk({"content": "a"})] * 128_000)
    stream.feed(STOP + DONE)
    assert stream.whole


def test_interleaved_calls_are_written_as_soon_as_the_first_is_whole() -> None:
    stream = ChatStreamTranslator(OPTIONS)
    stream.feed(chunk({"tool_calls": [call(0, ""), call(1, "")]}))
    pieces = ['{"a":"', "\\", '"}', "{[", '","b":[{}', ', "\\\\"]', "} ", " "]
    for piece in pieces[:-2]:
        result = stream.feed(
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
        )
        assert b"content_block_stop" not in result
        stream.feed(chunk({"tool_calls": [{"index": 1, "function": {"arguments": "{"}}]}))
    result = stream.feed(chunk({"tool_calls": [{"index": 0, "function": {"arguments": "} "}}]}))
    assert b'content_block_stop","index":0' in result
    assert result.count(b"event: content_block_start") == 1


def first_call_then_another(*pieces: str) -> list[bytes]:
    """The arguments of a call in pieces, and a second one that asks whether the first is whole."""
    more = [{"index": 0, "function": {"arguments": piece}} for piece in pieces]
    deltas = [call(0, ""), *more, call(1)]
    return [chunk({"tool_calls": [each]}) for each in deltas]


@pytest.mark.parametrize("sign", ['"', "{", "[", "\\", '["', "[]", '\\"', '["",['])
def test_searching_for_the_end_of_a_call_stops_at_a_limit(
    sign: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each bracket, quote and backslash is a step of Python, and a packed stream has millions."""
    steps = 0

    class Counted:
        def finditer(self, text: str, start: int) -> Iterator[re.Match[str]]:
            nonlocal steps
            for found in message_writer_mark.finditer(text, start):
                steps += 1
                yield found

    message_writer_mark = message_writer._MARK
    monkeypatch.setattr(message_writer, "_MARK", Counted())
    signs = sign * (300_000 // len(sign))
    stream = read_chat(first_call_then_another('{"a":[' + signs, signs))
    assert not stream.broken
    assert 0 < steps <= 110_000


def test_a_call_whose_end_was_not_found_is_written_in_order() -> None:
    long = json.dumps({"a": ["x"] * 60_000})
    stream = ChatStreamTranslator(OPTIONS)
    result = b"".join(stream.feed(each) for each in first_call_then_another(long))
    assert b'content_block_stop","index":0' not in result
    result = stream.feed(STOP + DONE)
    assert stream.whole
    assert stream.writer.malformed == 0
    assert result.count(b"event: content_block_stop") == 2


def feed_events(stream: StreamTranslator, event: bytes, times: int) -> int:
    """How much is stored after so many events of the same bytes, or until no more are accepted."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(times):
            stream.feed(event)
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def begun_chat(*calls: Json) -> ChatStreamTranslator:
    return read_chat([chunk({"tool_calls": list(calls)})])


def begun_response(*items: Json) -> ResponsesStreamTranslator:
    begun = [event("response.created", response={"id": "resp_1"})]
    added = "response.output_item.added"
    begun += [event(added, output_index=n, item=each) for n, each in enumerate(items)]
    return read_responses(begun)


MEGABYTE = "y" * 1_000_000
FUNCTION: Json = {"type": "function_call", "call_id": "c", "name": "look"}
NAMELESS: Json = {"index": 0, "function": {"arguments": MEGABYTE}}
MORE: Json = {"index": 0, "function": {"arguments": MEGABYTE}}
DELTA = "response.function_call_arguments.delta"
TEXT_DELTA = "response.output_text.delta"
THOUGHT: Json = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": MEGABYTE}


@pytest.mark.parametrize(
    ("stream", "fed"),
    [
        (lambda: begun_chat(call(0, "")), chunk({"tool_calls": [MORE]})),
        (lambda: begun_chat({"index": 0}), chunk({"tool_calls": [NAMELESS]})),
        (lambda: begun_chat(call(0, "{")), chunk({"content": MEGABYTE})),
        (lambda: begun_response(FUNCTION), event(DELTA, output_index=0, delta=MEGABYTE)),
        (lambda: begun_response(FUNCTION), event(TEXT_DELTA, output_index=1, delta=MEGABYTE)),
    ],
    ids=["arguments", "no name", "words behind a call", "response", "words behind its call"],
)
def test_what_waits_or_is_looked_at_again_is_bounded(
    stream: Callable[[], StreamTranslator], fed: bytes
) -> None:
    following = stream()
    assert feed_events(following, fed, 3) < 5_000_000
    assert not following.broken
    following = stream()
    assert feed_events(following, fed, 40) < 12_000_000
    assert following.broken


def test_names_and_ids_of_calls_count_as_well() -> None:
    for more in ({"id": MEGABYTE}, {"function": {"name": MEGABYTE}}):
        result = [chunk({"tool_calls": [{"index": n, **more}]}) for n in range(20)]
        assert not read_chat(result[:3]).broken
        assert read_chat(result).broken


def test_reasoning_that_no_call_follows_is_stored_up_to_a_limit() -> None:
    """An answer is as good without them, so it goes on."""
    stream = begun_response()
    done = event("response.output_item.done", output_index=0, item=THOUGHT)
    assert feed_events(stream, done, 40) < 16_000_000
    assert not stream.broken
    assert any("encrypted_content" in each for each in stream.notes.sentences())


def test_small_reasoning_items_and_empty_pieces_are_bounded_by_their_number() -> None:
    small = THOUGHT | {"encrypted_content": "x"}
    stream = begun_response()
    fed = event("response.output_item.done", output_index=0, item=small)
    few = feed_events(stream, fed, 2_000)
    assert feed_events(stream, fed, 8_000) < max(few, 200_000)
    nameless = begun_chat({"index": 0})
    empty = chunk({"tool_calls": [{"index": 0, "function": {"arguments": ""}}]})
    assert feed_events(nameless, empty, 20_000) < 100_000


def test_arguments_that_come_in_more_pieces_than_a_model_writes_are_not_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(message_writer, "_MOST_PIECES", 1000)
    stream = begun_chat(call(0, ""))
    piece = chunk({"tool_calls": [{"index": 0, "function": {"arguments": "ж"}}]})
    feed_events(stream, piece, 990)
    assert not stream.broken
    feed_events(stream, piece, 20)
    assert stream.broken


def test_text_blocks_that_wait_for_a_call_are_bounded() -> None:
    stream = begun_response(FUNCTION)
    message = {"type": "message", "content": [{"type": "output_text", "text": "a"}]}
    done = event("response.output_item.done", output_index=1, item=message)
    feed_events(stream, done, MOST_CALLS)
    assert not stream.broken
    feed_events(stream, done, 2 * MOST_CALLS)
    assert stream.broken


def test_the_places_of_a_response_are_bounded() -> None:
    """Those that were streamed are stored, so that nothing is written twice."""
    stream = begun_response()
    for place in range(5_000):
        stream.feed(event(TEXT_DELTA, output_index=place, delta="a"))
    assert not stream.broken
    for place in range(5_000, 12_000):
        stream.feed(event(TEXT_DELTA, output_index=place, delta="a"))
    assert stream.broken


@pytest.mark.parametrize("ended_by", ["another call", "the end"])
def test_arguments_are_checked_without_an_object_for_each_of_their_values(ended_by: str) -> None:
    """59 KB of a packed answer took 1.7 GB: they came in events that each had few values."""
    pieces = ['{"a":[', *["[],{}," * 100_000] * 4, "0]}"]
    events = first_call_then_another(*pieces)
    stream = read_chat(events[:-1])
    assert not stream.broken
    tracemalloc.start()
    try:
        stream.feed(events[-1] if ended_by == "another call" else STOP)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert not stream.broken
    assert stream.writer.malformed == 0
    # Twice their 2.4 MB, where 800,000 lists and maps took more than 50.
    assert peak < 10_000_000


def test_arguments_are_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(arguments: str) -> bool:
        asked.append(arguments)
        return is_object(arguments)

    monkeypatch.setattr(message_writer, "is_object", counted)
    stream = read_chat([*first_call_then_another('{"a":', "1}"), STOP, DONE])
    assert stream.whole
    assert asked == ['{"a":1}', "{}"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("{}", True),
        (' {"a": [1, {"b": "\\n"}]} ', True),
        ('{"a":1} {"b":2}', False),
        ("[]", False),
        ('"{}"', False),
        ("1", False),
        ('{"a":', False),
        ('{"a":01}', False),
        ('{"a":"\\x"}', False),
        ('{"a":"\ud800"}', False),
        ('{"a":' * 5_000, False),
    ],
)
def test_only_one_whole_object_is_one(arguments: str, expected: bool) -> None:
    assert is_object(arguments) is expected


def count_notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The places of all notes that are made from now on."""
    places: list[str] = []
    add = TranslationNotes.add

    def counted(self: TranslationNotes, at: str, why: str, times: int = 1) -> None:
        places.append(at)
        add(self, at, why, times)

    monkeypatch.setattr(TranslationNotes, "add", counted)
    return places


def test_fields_that_nobody_knows_are_noted_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A note is dear: 9 MB of them stopped the gateway for more than two seconds."""
    unknown: Json = {f"x{number}": 1 for number in range(20_000)}
    answer = {"id": "c", "choices": [{"message": {"content": "a"} | unknown}] + [0] * 100}
    body = json.dumps(answer).encode()
    places = count_notes(monkeypatch)
    result = from_chat(body, OPTIONS)
    assert not result.is_error
    assert "choices[*].message.* (19950 times)" in " ".join(result.notes)
    assert len(places) < 500
    stream = read_chat([chunk({"content": "a"} | unknown)])
    assert not stream.broken
    assert len(places) < 1000


def test_a_whole_answer_of_more_choices_than_can_be_requested_is_none() -> None:
    def body(count: int) -> bytes:
        return json.dumps({"id": "c", "choices": [{"message": {}}] * count}).encode()

    assert not from_chat(body(128), OPTIONS).is_error
    assert from_chat(body(129), OPTIONS).is_error


def test_one_event_has_only_so_many_objects_however_long_it_is() -> None:
    part: Json = {"type": "text", "text": "a"}
    assert not read_chat([chunk({"content": [part] * 10_000})]).broken
    assert read_chat([chunk({"content": [part] * 30_000})]).broken
    assert not read_chat([chunk({"content": [part] * 10_000})] * 5).broken


def test_an_item_of_a_response_has_only_so_many_parts() -> None:
    """Each part of an item that was not streamed could become an event of its own."""

    def item(count: int) -> bytes:
        message = {"type": "message", "content": [{"text": "a"}] * count}
        return event("response.output_item.done", output_index=0, item=message)

    created = event("response.created", response={"id": "resp_1"})
    stream = ResponsesStreamTranslator(OPTIONS)
    stream.feed(created)
    written = stream.feed(item(10_000))
    assert not stream.broken
    assert b"a" * 10_000 in written
    assert len(written) < 11_000
    assert read_responses([created, item(30_000)]).broken


@pytest.mark.parametrize("value", [b'{"text":"a"}', b"[]", b'"a"'])
def test_an_event_of_more_values_than_the_longest_answer_is_not_decoded(value: bytes) -> None:
    many = b",".join([value] * 510_000)
    for kind in (b"content", b"other"):
        item = b'{"type":"message","' + kind + b'":[' + many + b"]}"
        data = b'{"type":"response.output_item.done","item":' + item + b"}"
        assert read_responses([event_of(b"response.output_item.done", data)]).broken
        chat = b'{"id":"c","choices":[{"index":0,"delta":{"' + kind + b'":[' + many + b"]}}]}"
        assert read_chat([b"data: " + chat + b"\n\n"]).broken
