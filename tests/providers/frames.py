"""Write AWS event stream frames, as Bedrock would."""

from __future__ import annotations

import base64
import json
import struct
import zlib

from jackline.dialects import AnthropicStreamReader, EventSplitter
from jackline.dialects.sse import name_and_data
from jackline.providers.bedrock import HeaderValue

START = (
    b'{"type":"message_start","message":{"id":"msg_bdrk_1","type":"message","role":"assistant",'
    b'"model":"claude-opus-4-8","content":[],"stop_reason":null,"stop_sequence":null,'
    b'"usage":{"input_tokens":9,"output_tokens":1}}}'
)
ENDING = (
    b'{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},'
    b'"usage":{"output_tokens":4}}'
)
EVENTS = (
    START,
    b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
    b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\xc3\xbc"}}',
    b'{"type":"content_block_stop","index":0}',
    ENDING,
    b'{"type":"message_stop","amazon-bedrock-invocationMetrics":{"inputTokenCount":9}}',
)


def frame(headers: dict[str, HeaderValue], payload: bytes) -> bytes:
    """One frame; numbers are written as eight bytes."""
    written = b"".join(_header(name, value) for name, value in headers.items())
    prelude = struct.pack(">II", 16 + len(written) + len(payload), len(written))
    before = prelude + struct.pack(">I", zlib.crc32(prelude)) + written + payload
    return before + struct.pack(">I", zlib.crc32(before))


def _header(name: str, value: HeaderValue) -> bytes:
    named = bytes([len(name.encode())]) + name.encode()
    if isinstance(value, bool):
        return named + (b"\0" if value else b"\1")
    if isinstance(value, int):
        return named + b"\5" + struct.pack(">q", value)
    kind, data = (b"\7", value.encode()) if isinstance(value, str) else (b"\6", value)
    return named + kind + struct.pack(">H", len(data)) + data


def chunk(event: bytes) -> bytes:
    """An event of the model's answer."""
    payload = json.dumps({"bytes": base64.b64encode(event).decode(), "p": "abcdef"}).encode()
    headers: dict[str, HeaderValue] = {
        ":event-type": "chunk",
        ":content-type": "application/json",
        ":message-type": "event",
    }
    return frame(headers, payload)


def exception(name: str, **fields: object) -> bytes:
    """One of Bedrock's exceptions in the middle of an answer."""
    headers: dict[str, HeaderValue] = {
        ":exception-type": name,
        ":content-type": "application/json",
        ":message-type": "exception",
    }
    return frame(headers, json.dumps(fields).encode())


STREAM = b"".join(map(chunk, EVENTS))


def check_whole(events: bytes) -> None:
    reader = AnthropicStreamReader()
    reported = [name_and_data(event) for event in EventSplitter().feed(events)]
    for name, data in reported:
        reader.read(name, data)
    assert reader.whole
    assert [data for _, data in reported] == list(EVENTS)
