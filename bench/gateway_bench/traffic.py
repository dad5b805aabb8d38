"""Make the requests that Claude Code would send, and the answers that it would take.

Rules: (1) no two requests have the same body: a counter stands inside the last message; (2) the
large body is made of many messages and tools, as a long session's is, not of one long string;
(3) an answer counts only when it is whole: status 200, and a message or a stream that ends.
Not here: sending (load.py, upstream.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

MODEL = "claude-sonnet-4-5"
COUNTER = "0000000000"
SMALL, LARGE = 2_048, 150 * 1024
_CODE = 'def read(path):\n\t"""The file\'s text."""\n\twith open(path, "rb") as file:\n\t\t...\n'
_PROSE = "The quick agents of a fleet share one account, one endpoint and one window of patience. "

_USAGE = {"input_tokens": 812, "output_tokens": 9}


def _message(content: list[object], stop_reason: str | None) -> dict[str, object]:
    return {
        "id": "msg_01BenchBenchBenchBenchBe",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": _USAGE,
    }


def event(kind: str, **fields: object) -> bytes:
    """One server-sent event."""
    data = json.dumps({"type": kind, **fields}, separators=(",", ":"))
    return f"event: {kind}\ndata: {data}\n\n".encode()


def text_event(text: str) -> bytes:
    """A piece of the answer's text."""
    return event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})


OPENING = (
    event("message_start", message=_message([], None)),
    event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
)
ENDING = (
    event("content_block_stop", index=0),
    event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage=_USAGE),
    event("message_stop"),
)
_PING = event("ping")


def chunk(data: bytes) -> bytes:
    """The bytes as one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _head(status: str, *lines: str) -> bytes:
    always = ("request-id: req_011BenchBenchBenchBench", "anthropic-organization-id: bench")
    return "\r\n".join((f"HTTP/1.1 {status}", *lines, *always, "", "")).encode()


STREAM_HEAD = _head(
    "200 OK",
    "content-type: text/event-stream; charset=utf-8",
    "cache-control: no-cache",
    "transfer-encoding: chunked",
)
LAST_CHUNK = b"0\r\n\r\n"


def stream_answer() -> bytes:
    """A whole streamed answer, one chunk to an event as the vendor sends it."""
    texts = [text_event(f"word {number} ") for number in range(4)]
    events = (*OPENING, _PING, *texts, *ENDING)
    return STREAM_HEAD + b"".join(map(chunk, events)) + LAST_CHUNK


def json_answer() -> bytes:
    """A whole answer that is not streamed."""
    content: list[object] = [{"type": "text", "text": "word 0 word 1 word 2 word 3 "}]
    body = json.dumps(_message(content, "end_turn"), separators=(",", ":")).encode()
    return _head("200 OK", "content-type: application/json", f"content-length: {len(body)}") + body


EMPTY_ANSWER = _head("200 OK", "content-length: 0")


def is_whole(answer: bytes, *, stream: bool) -> bool:
    """Whether a client would take this answer for complete."""
    if not answer.startswith(b"HTTP/1.1 200"):
        return False
    if stream:
        return b"event: message_stop" in answer and b'"message_start"' in answer
    return b'"type":"message"' in answer or b'"type": "message"' in answer


@dataclass(frozen=True, slots=True)
class Request:
    """A request in three parts; the counter goes between the second and the third."""

    head: bytes
    before: bytes
    after: bytes

    def numbered(self, number: int) -> tuple[bytes, bytes, bytes, bytes]:
        """The parts to write, with the counter in its place."""
        return self.head, self.before, b"%010d" % number, self.after


def body_text(size: int, *, stream: bool, model: str = MODEL) -> str:
    """A request body of exactly `size` bytes, with `COUNTER` in it once."""
    large = size > 20_000
    messages: list[dict[str, object]] = []
    # In the order in which Claude Code writes its keys.
    body: dict[str, object] = {
        "model": model,
        "messages": messages,
        "system": [{"type": "text", "text": _PROSE * (120 if large else 3)}],
        "tools": [_tool(number) for number in range(30 if large else 1)],
        "metadata": {"user_id": '{"device_id":"bench","account_uuid":"","session_id":"bench"}'},
        "max_tokens": 64_000,
        "stream": stream,
    }
    while large and len(json.dumps(body)) < size - 8_000:
        messages += [
            {"role": "user", "content": [{"type": "text", "text": _CODE * 12}]},
            {"role": "assistant", "content": [{"type": "text", "text": _PROSE * 8}]},
        ]
    last = {"type": "text", "text": f"{COUNTER} "}
    messages.append({"role": "user", "content": [last]})
    missing = size - len(json.dumps(body, separators=(",", ":")))
    last["text"] += "x" * missing
    return json.dumps(body, separators=(",", ":"))


def _tool(number: int) -> dict[str, object]:
    fields = {
        f"field_{name}": {"type": "string", "description": _PROSE} for name in range(1 + number % 6)
    }
    schema = {"type": "object", "properties": fields, "required": list(fields)[:1]}
    return {"name": f"tool_{number}", "description": _PROSE * 2, "input_schema": schema}


def build(
    body: str,
    *,
    port: int,
    session: str,
    key: str,
    extra: Sequence[tuple[str, str]] = (),
) -> Request:
    """The request bytes of one connection: a main thread with its own session."""
    before, after = body.split(COUNTER)
    own = dict(extra)
    lines = [
        "POST /v1/messages?beta=true HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Accept: application/json",
        "Content-Type: application/json",
        "User-Agent: claude-cli/2.1.197 (external, cli)",
        f"X-Claude-Code-Session-Id: {session}",
        f"x-api-key: {key}",
        "anthropic-version: 2023-06-01",
        "anthropic-beta: claude-code-20250219,interleaved-thinking-2025-05-14",
        "anthropic-dangerous-direct-browser-access: true",
        "x-app: cli",
        "X-Stainless-Arch: x64",
        "X-Stainless-Lang: js",
        "X-Stainless-OS: Linux",
        "X-Stainless-Package-Version: 0.74.0",
        "X-Stainless-Retry-Count: 0",
        "X-Stainless-Runtime: node",
        "X-Stainless-Runtime-Version: v24.3.0",
        "X-Stainless-Timeout: 600",
        *(f"{name}: {value}" for name, value in own.items()),
        "Connection: keep-alive",
        f"Content-Length: {len(body.encode())}",
    ]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode()
    return Request(head, before.encode(), after.encode())
