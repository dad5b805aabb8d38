"""An answer in another dialect costs no more than its length says, whatever its server writes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from jackline.dialects.json_bounds import MOST_VALUES
from jackline.dialects.neutral.answer import MOST_CALLS
from jackline.dialects.neutral.options import AnswerAs
from jackline.dialects.openai_chat.answer import from_chat
from jackline.dialects.openai_chat.stream import ChatStreamTranslator
from jackline.dialects.openai_responses.answer import from_responses
from jackline.dialects.openai_responses.stream import ResponsesStreamTranslator
from jackline.dialects.sse import event_of

Json = dict[str, object]
FACE = AnswerAs("claude-x")
THINKS = AnswerAs("claude-x", remember=lambda _id, _kept: None)
STOP = b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


def chunk(delta: Json, foreign_id: str = "chatcmpl-1") -> bytes:
    told = {"id": foreign_id, "choices": [{"index": 0, "delta": delta}]}
    return b"data: " + json.dumps(told).encode() + b"\n\n"


def call(index: int, arguments: str = "{}") -> Json:
    function = {"name": "look", "arguments": arguments}
    return {"index": index, "id": f"call_{index}", "function": function}


def event(kind: str, **fields: object) -> bytes:
    return event_of(kind.encode(), json.dumps({"type": kind, **fields}).encode())


def read_chat(events: list[bytes]) -> ChatStreamTranslator:
    stream = ChatStreamTranslator(FACE)
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
    """Encrypted thoughts and words in turns, and no call that they could belong to."""
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
        told: list[Json] = [call(n) if named else {"index": n} for n in range(count)]
        return [chunk({"tool_calls": [each]}) for each in told]

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
        assert not read(body(MOST_CALLS), FACE).is_error
        assert read(body(MOST_CALLS + 1), FACE).is_error


def test_a_document_of_more_values_than_an_answer_has_is_not_taken_apart() -> None:
    """Each would become an object, though nothing of it is told."""
    many = b"[" + b"0," * MOST_VALUES + b"0]"
    for read, name in ((from_chat, b"choices"), (from_responses, b"output")):
        told = read(b'{"id":"c","%b":%b}' % (name, many), FACE)
        assert told.is_error
        # Nothing in it was looked at: there is no note of any place.
        assert not told.notes
    event_data = b'data: {"id":"c","type":"response.created","unknown":%b}\n\n' % many
    assert read_chat([event_data]).broken
    assert read_responses([event_data]).broken


def test_an_event_of_more_objects_than_its_bytes_can_mean_is_not_followed() -> None:
    assert not read_chat([chunk({"content": [{}] * 3000})]).broken
    assert read_chat([chunk({"content": [{}] * 20_000})]).broken


def test_an_answer_may_come_in_as_many_pieces_as_it_has_tokens() -> None:
    """The longest answers have 128,000 tokens, and many servers tell them one by one."""
    stream = read_chat([chunk({"content": "a"})] * 128_000)
    stream.feed(STOP + DONE)
    assert stream.whole


def test_calls_that_come_interleaved_are_told_as_soon_as_the_first_is_whole() -> None:
    stream = ChatStreamTranslator(FACE)
    stream.feed(chunk({"tool_calls": [call(0, ""), call(1, "")]}))
    pieces = ['{"a":"', "\\", '"}', "{[", '","b":[{}', ', "\\\\"]', "} ", " "]
    for piece in pieces[:-2]:
        told = stream.feed(chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}))
        assert b"content_block_stop" not in told
        stream.feed(chunk({"tool_calls": [{"index": 1, "function": {"arguments": "{"}}]}))
    told = stream.feed(chunk({"tool_calls": [{"index": 0, "function": {"arguments": "} "}}]}))
    assert b'content_block_stop","index":0' in told
    assert told.count(b"event: content_block_start") == 1
