"""The readers of server-sent events: what vendors stream, and what clients are streamed.

Rules: no bytes make a reader raise; the events joined are the bytes that came; how the bytes were
cut into packets changes nothing; a stream that has become whole was not broken before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from jackline.agents.gateway_model import AnswerStreamReader
from jackline.dialects.anthropic_stream import AnthropicStreamReader, read_whole_stream
from jackline.dialects.openai_chat import ChatStreamReader
from jackline.dialects.openai_responses import ResponsesStreamReader
from jackline.dialects.sse import EventSplitter, name_and_data
from tests.fuzz.cutting import in_packets, one_by_one

WORDS = (
    *(
        b"\n\n",
        b"\r\n\r\n",
        b"\r\r",
        b"\n",
        b"\r",
        b"event: ",
        b"data: ",
        b"data:",
        b": ping",
        b"id: ",
    ),
    *(
        b"message_start",
        b"message_delta",
        b"message_stop",
        b"content_block_start",
        b"error",
        b"ping",
    ),
    *(
        b"content_block_delta",
        b"content_block_stop",
        b'"index":',
        b'"type":',
        b'"usage":',
        b'"text"',
    ),
    *(b'"tool_use"', b'"input_json_delta"', b'"partial_json":', b'"signature_delta"', b"[DONE]"),
    *(b"null", b"-1", b"1e999", b"[" * 50, b'{"a":' * 50, b'"\\ud800"', b"\xff", b"\xef\xbb\xbf"),
    *(b"response.created", b"response.completed", b'"choices":', b'"finish_reason":', b'"delta":'),
)
_READERS: tuple[Callable[[], Any], ...] = (
    AnthropicStreamReader,
    ChatStreamReader,
    ResponsesStreamReader,
)
_SMALL = 600


def seeds() -> Iterable[bytes]:
    """One whole stream in each dialect, and parts of them."""
    anthropic = _anthropic()
    yield anthropic
    yield anthropic.replace(b"\n", b"\r\n")
    yield anthropic.replace(b"\n", b"\r")
    yield anthropic[: len(anthropic) // 2]
    yield b": ping\n\nevent: ping\ndata: {}\n\n" + anthropic
    yield b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n'
    chat = {"id": "c", "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}]}
    last = {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {}}
    yield b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in (chat, last))
    yield b"data: [DONE]\n\n"
    done = {
        "type": "response.completed",
        "response": {"id": "r", "status": "completed", "output": []},
    }
    yield b"event: response.completed\ndata: %b\n\n" % json.dumps(done).encode()


def _anthropic() -> bytes:
    told: list[dict[str, Any]] = [
        {
            "type": "message_start",
            "message": {"id": "m", "model": "x", "usage": {"input_tokens": 1}},
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "t", "name": "look", "input": {}},
        },
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": '{"a": 1}'},
        },
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 2},
        },
        {"type": "message_stop"},
    ]
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (each["type"].encode(), json.dumps(each).encode())
        for each in told
    )


def check(data: bytes) -> None:
    """Split and read the bytes, as one packet and as many."""
    events = _split([data])
    for event in events:
        name, told = name_and_data(event)
        assert len(name) + len(told) <= len(event)
    for make in _READERS:
        reader = make()
        for event in events:
            reader.feed(event)
            if reader.whole:
                assert not reader.broken
                break  # what comes behind is nobody's
    read_whole_stream(data)
    whole, cut = _answer([data]), _answer(in_packets(data))
    assert whole == cut, "packets change the answer"


def _split(packets: list[bytes]) -> list[bytes]:
    whole = EventSplitter()
    data = b"".join(packets)
    events = whole.feed(data)
    assert b"".join(events) + whole.rest == data
    ways = [in_packets(data)] + ([one_by_one(data)] if len(data) <= _SMALL else [])
    for way in ways:
        cut = EventSplitter()
        found = [event for packet in way for event in cut.feed(packet)]
        assert b"".join(found) + cut.rest == data
        assert [event.strip(b"\r\n") for event in found] == [e.strip(b"\r\n") for e in events]
    return events


def _answer(packets: Iterable[bytes]) -> tuple[bool, bool, bool, object]:
    reader = AnswerStreamReader()
    for packet in packets:
        reader.feed(packet)
    answer = reader.answer() if reader.whole else None
    assert reader.error_event is None or reader.error_event.endswith(b"\n\n")
    return reader.whole, reader.broken, reader.began, answer or reader.text
