"""A foreign stream becomes exactly one valid stream of Anthropic's, however its bytes were cut."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.dialects import AnthropicStreamReader, EventSplitter, TokenUsage
from jackline.dialects.neutral.fields import TranslatedDocument
from jackline.dialects.neutral.options import AnswerOptions
from jackline.dialects.neutral.stream import StreamTranslator
from jackline.dialects.openai_chat import ChatStreamTranslator, from_chat
from jackline.dialects.openai_responses import ResponsesStreamTranslator, from_responses
from jackline.failures import Kind, Observation, classify
from tests.dialects.strict_client import StrictClient
from tests.dialects.translation.foreign_answers import (
    Answer,
    answers,
    chat_events,
    chat_whole,
    chunk,
    data,
    named,
    responses_events,
    responses_whole,
)


@dataclass(frozen=True)
class Dialect:
    """One foreign dialect, whole and streamed."""

    translator: Callable[[AnswerOptions], StreamTranslator]
    events: Callable[[Answer], list[bytes]]
    whole: Callable[[Answer], bytes]
    translate: Callable[[bytes, AnswerOptions], TranslatedDocument]


DIALECTS = {
    "chat": Dialect(ChatStreamTranslator, chat_events, chat_whole, from_chat),
    "responses": Dialect(
        ResponsesStreamTranslator, responses_events, responses_whole, from_responses
    ),
}
BOTH = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
OPTIONS = AnswerOptions("claude-opus-4-8", {"Read": "mcp__real__Read"})


def read(stream: bytes) -> tuple[AnthropicStreamReader, StrictClient]:
    reader, client = AnthropicStreamReader(), StrictClient()
    for event in EventSplitter().feed(stream):
        reader.feed(event)
    client.read(stream)
    return reader, client


@BOTH
@given(answer=answers())
def test_a_stream_says_what_the_whole_answer_says(dialect: Dialect, answer: Answer) -> None:
    translator = dialect.translator(OPTIONS)
    stream = translator.feed(b"".join(dialect.events(answer))) + translator.end()
    reader, client = read(stream)
    whole = json.loads(dialect.translate(dialect.whole(answer), OPTIONS).body)
    assert reader.whole
    assert translator.whole
    assert not translator.broken
    assert client.complete
    assert client.id == whole["id"]
    assert client.blocks == whole["content"]
    assert client.stop_reason == whole["stop_reason"]
    assert reader.usage == translator.usage == TokenUsage(40, 20, 60, 0)


@BOTH
@given(answer=answers())
def test_every_call_keeps_its_name_and_arguments_and_has_an_id_of_its_own(
    dialect: Dialect, answer: Answer
) -> None:
    translator = dialect.translator(OPTIONS)
    _, client = read(translator.feed(b"".join(dialect.events(answer))))
    result = [(call["name"], call["input"]) for call in client.tools_started]
    made = [
        (OPTIONS.tool_names.get(call.name, call.name), json.loads(call.arguments))
        for call in answer.calls
    ]
    assert result == made
    ids = [call["id"] for call in client.tools_started]
    assert len(set(ids)) == len(ids)
    for call, told_id in zip(answer.calls, ids, strict=True):
        assert (
            not re.fullmatch(r"[\w-]{16,}", call.id)
            or told_id == f"toolu_{call.id.removeprefix('call_')}"
        )


@BOTH
@given(answer=answers(), chunks=st.lists(st.integers(0, 4000), max_size=8))
def test_any_cut_of_the_bytes_gives_the_same_events(
    dialect: Dialect, answer: Answer, chunks: list[int]
) -> None:
    stream = b"".join(dialect.events(answer))
    at_once = dialect.translator(OPTIONS).feed(stream)
    edges = [0, *sorted(min(place, len(stream)) for place in chunks), len(stream)]
    translator = dialect.translator(OPTIONS)
    pieces = [translator.feed(stream[start:end]) for start, end in itertools.pairwise(edges)]
    assert b"".join(pieces) == at_once


@BOTH
def test_bytes_one_by_one_give_the_same_events(dialect: Dialect) -> None:
    answer = Answer(("Hm.",), ("Grüße 🌍", " du"), (), (), "stop")
    stream = b"".join(dialect.events(answer))
    translator = dialect.translator(OPTIONS)
    pieces = [translator.feed(stream[at : at + 1]) for at in range(len(stream))]
    assert b"".join(pieces) == dialect.translator(OPTIONS).feed(stream)


@BOTH
@given(answer=answers(), share=st.floats(0, 1, exclude_max=True))
def test_a_stream_that_was_cut_off_has_no_end(
    dialect: Dialect, answer: Answer, share: float
) -> None:
    events = dialect.events(answer)
    whole = dialect.translator(OPTIONS).feed(b"".join(events))
    # The last event is what makes an answer whole.
    cut = b"".join(events[:-1])
    cut = cut[: int(len(cut) * share)]
    translator = dialect.translator(OPTIONS)
    result = translator.feed(cut)
    assert whole.startswith(result)
    assert not translator.whole
    assert b"message_stop" not in result


@BOTH
@given(noise=st.binary(max_size=60), answer=answers())
def test_noise_breaks_a_stream_with_an_error_and_nothing_follows(
    dialect: Dialect, noise: bytes, answer: Answer
) -> None:
    events = dialect.events(answer)
    translator = dialect.translator(OPTIONS)
    result = translator.feed(
        events[0] + b"data: \x01" + noise.replace(b"\n", b"").replace(b"\r", b"") + b"\n\n"
    )
    assert translator.broken
    assert result.count(b"event: error\n") == 1
    failure = classify(Observation.of_stream(result), now=datetime(2026, 1, 1, tzinfo=UTC))
    assert failure.kind is Kind.TRUNCATED_STREAM
    assert failure.retry_same
    assert translator.feed(b"".join(events[1:])) + translator.end() == b""


@given(st.binary(max_size=200))
def test_nothing_that_a_server_sends_makes_a_translator_raise(noise: bytes) -> None:
    for dialect in DIALECTS.values():
        translator = dialect.translator(OPTIONS)
        translator.feed(noise + b"\n\n")
        translator.end()
        dialect.translate(noise, OPTIONS)


def test_chat_without_done_is_whole_when_it_ended_in_order_behind_a_finish_reason() -> None:
    events = chat_events(Answer((), ("Hi",), (), (), "stop"))
    translator = ChatStreamTranslator(OPTIONS)
    result = translator.feed(b"".join(events[:-2]))
    assert b"message_stop" not in result
    assert read(result + translator.end())[0].whole


def test_chat_that_ends_in_order_without_a_finish_reason_has_no_end() -> None:
    events = chat_events(Answer((), ("Hi",), (), (), "stop"))
    translator = ChatStreamTranslator(OPTIONS)
    result = translator.feed(b"".join(events[:-3])) + translator.end()
    assert b"message_stop" not in result
    assert not translator.whole


def test_chat_that_is_done_without_a_finish_reason_is_broken() -> None:
    events = chat_events(Answer((), ("Hi",), (), (), "stop"))
    translator = ChatStreamTranslator(OPTIONS)
    result = translator.feed(b"".join([*events[:-3], events[-1]]))
    assert b"message_stop" not in result
    assert result.count(b"event: error\n") == 1
    assert translator.broken


def call_chunk(index: int | None, known: str | None, name: str | None, piece: str) -> bytes:
    call: dict[str, Any] = {"function": {"arguments": piece}}
    if index is not None:
        call["index"] = index
    if known is not None:
        call |= {"id": known, "type": "function"}
    if name is not None:
        call["function"]["name"] = name
    return chunk({"tool_calls": [call]})


END = chunk({}, "tool_calls") + b"data: [DONE]\n\n"
A, B = "call_" + "A" * 24, "call_" + "B" * 24


def tools_of(stream: bytes) -> list[tuple[str, str, Any]]:
    translator = ChatStreamTranslator(OPTIONS)
    _, client = read(translator.feed(stream))
    assert translator.whole
    return [(call["id"], call["name"], call["input"]) for call in client.tools_started]


BOTH_CALLS = [
    (A.replace("call_", "toolu_"), "X", {"a": 1}),
    (B.replace("call_", "toolu_"), "Y", {"b": 2}),
]


@pytest.mark.parametrize(
    "events",
    {
        "all calls under one index": [
            call_chunk(0, A, "X", '{"a": 1}'),
            call_chunk(0, B, "Y", '{"b": 2}'),
        ],
        "no index at all": [
            call_chunk(None, A, "X", '{"a": '),
            call_chunk(None, None, None, "1}"),
            call_chunk(None, B, "Y", '{"b": 2}'),
        ],
        "the name again in every piece": [
            call_chunk(0, A, "X", '{"a": '),
            call_chunk(0, A, "X", "1}"),
            call_chunk(1, B, "Y", '{"b": 2}'),
        ],
        "the name behind the arguments": [
            call_chunk(0, A, None, '{"a": 1}'),
            call_chunk(1, B, "Y", '{"b": 2}'),
            call_chunk(0, None, "X", ""),
        ],
        "pieces crossing each other": [
            call_chunk(0, A, "X", '{"a"'),
            call_chunk(1, B, "Y", '{"b"'),
            call_chunk(0, None, None, ": 1}"),
            call_chunk(1, None, None, ": 2}"),
        ],
    }.items(),
    ids=lambda pair: pair[0] if isinstance(pair, tuple) else None,
)
def test_calls_are_distinguished_in_every_way_that_servers_write_them(
    events: tuple[str, list[bytes]],
) -> None:
    result = tools_of(b"".join(events[1]) + END)
    assert sorted(result) == BOTH_CALLS


def test_text_after_a_call_is_a_block_of_its_own() -> None:
    translator = ChatStreamTranslator(OPTIONS)
    stream = chunk({"content": "One."}) + call_chunk(0, A, "X", "{}") + chunk({"content": "Two."})
    _, client = read(translator.feed(stream + END))
    assert [block["type"] for block in client.blocks] == ["text", "tool_use", "text"]


def test_a_call_that_is_whole_is_closed_as_soon_as_the_next_one_begins() -> None:
    translator = ChatStreamTranslator(OPTIONS)
    translator.feed(call_chunk(0, A, "X", '{"a": 1}'))
    result = translator.feed(call_chunk(1, B, "Y", ""))
    assert result.startswith(b"event: content_block_stop")


def test_arguments_behind_a_whole_call_break_the_stream() -> None:
    translator = ChatStreamTranslator(OPTIONS)
    translator.feed(call_chunk(0, A, "X", "{}") + call_chunk(1, B, "Y", ""))
    assert b"event: error" in translator.feed(call_chunk(0, None, None, "{}"))


def test_arguments_that_are_no_object_are_sent_as_written_and_noted() -> None:
    translator = ChatStreamTranslator(OPTIONS)
    result = translator.feed(call_chunk(0, A, "X", '{"a": 1') + END)
    assert translator.whole
    assert b'"partial_json":"{\\"a\\": 1"' in result
    assert [note.split(":")[0] for note in translator.notes.sentences()] == ["arguments"]


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (
            data({"error": {"message": "Rate limit reached.", "code": "rate_limit_exceeded"}}),
            "rate_limit_error",
        ),
        (data({"object": "error", "message": "Out of memory", "code": 500}), "api_error"),
        (
            b'event: error\ndata: {"message": "Overloaded", "type": "overloaded_error"}\n\n',
            "overloaded_error",
        ),
    ],
)
def test_an_error_in_a_chat_stream_is_an_error_of_anthropics(event: bytes, kind: str) -> None:
    translator = ChatStreamTranslator(OPTIONS)
    result = translator.feed(chunk({"content": "Hi"}) + event)
    last = result.split(b"event: error\ndata: ")[1]
    assert json.loads(last)["error"]["type"] == kind
    assert translator.broken


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (
            {
                "type": "response.failed",
                "response": {
                    "error": {"code": "rate_limit_exceeded", "message": "Rate limit reached."}
                },
            },
            "rate_limit_error",
        ),
        ({"type": "error", "code": "server_error", "message": "Broken."}, "api_error"),
    ],
)
def test_an_error_in_a_responses_stream_is_an_error_of_anthropics(
    event: dict[str, Any], kind: str
) -> None:
    translator = ResponsesStreamTranslator(OPTIONS)
    result = translator.feed(named(event))
    assert json.loads(result.split(b"data: ")[1])["error"]["type"] == kind
    assert translator.broken


def test_reasoning_is_noted_and_not_shown() -> None:
    answer = Answer(("Two and two.",), ("Four.",), (), (), "stop")
    for dialect in DIALECTS.values():
        silent = dialect.translator(OPTIONS)
        result = silent.feed(b"".join(dialect.events(answer)))
        assert b"Two and two." not in result
        assert any("signed" in note for note in silent.notes.sentences())


def test_silent_work_becomes_pings_while_the_answer_is_open() -> None:
    answer = Answer(("Two", " and two."), ("Four.",), (), (), "stop")
    for dialect in DIALECTS.values():
        events = dialect.events(answer)
        translator = dialect.translator(OPTIONS)
        result = [translator.feed(event) for event in [b": queued\n\n", *events, b": late\n\n"]]
        assert result[0] == result[-1] == b""
        pings = [one for one in result if one == b'event: ping\ndata: {"type": "ping"}\n\n']
        assert len(pings) >= 2
        assert read(b"".join(result))[0].whole


def test_items_that_were_not_streamed_are_written_when_they_are_done() -> None:
    answer = Answer((), ("Hi.",), (), (), "stop")
    events = [
        e for e in responses_events(answer) if b"output_text" not in e or b"output_item.done" in e
    ]
    events = [e for e in events if b".delta" not in e.split(b"\n")[0]]
    translator = ResponsesStreamTranslator(OPTIONS)
    _, client = read(translator.feed(b"".join(events)))
    assert client.blocks == [{"type": "text", "text": "Hi."}]
