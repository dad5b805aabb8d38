"""Talk to a model over HTTP: one request, its answer, and a check of tool calls and results.

Rules: (1) each request has its own HTTP/1.1 connection, which is closed when the block is left;
(2) whatever breaks is a `ConnectionError`, a clean end is none; (3) a content block counts once
it has ended, a ping is no event, and a repeated `message_start` begins the message again while no
block has ended; (4) calls and results belong together by id within one turn of the model, in any
vendor's format; a call that echoes a word must have that word in its result, so that swapped ids
are found.
Not here: when to send again (builtin_client.py, plain_program.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import urlsplit

READ_AT_ONCE = 65_536


@dataclass(frozen=True, slots=True)
class Response:
    """Status and headers (lower-case names) of an answer whose body is still to be read."""

    status: int
    headers: Mapping[str, str]
    reader: asyncio.StreamReader

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, piece by piece."""
        try:
            if self.headers.get("transfer-encoding", "").lower() == "chunked":
                async for piece in self._chunks():
                    yield piece
            else:
                left = int(self.headers.get("content-length", "0"))
                while left:
                    piece = await self.reader.read(min(left, READ_AT_ONCE))
                    if not piece:
                        raise ConnectionAbortedError("the answer ended early")
                    left -= len(piece)
                    yield piece
        except asyncio.IncompleteReadError as error:
            raise ConnectionAbortedError("the answer ended early") from error

    async def _chunks(self) -> AsyncIterator[bytes]:
        while size := int((await self.reader.readuntil(b"\r\n")).partition(b";")[0], 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readuntil(b"\r\n")

    async def whole(self) -> bytes:
        """The whole body."""
        return b"".join([piece async for piece in self.pieces()])


def posted(
    url: str, path: str, headers: Mapping[str, str], body: bytes
) -> AbstractAsyncContextManager[Response]:
    """The answer to a POST, once its headers are there."""
    return exchanged(url, "POST", path, headers, body)


@asynccontextmanager
async def exchanged(
    url: str, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
) -> AsyncIterator[Response]:
    """The answer to a request, once its headers are there."""
    place = urlsplit(url)
    try:
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
    except OSError as error:
        raise ConnectionRefusedError(f"nobody answers at {place.netloc}") from error
    try:
        sent = {"host": place.netloc, **(headers or {}), "content-length": str(len(body))}
        lines = [f"{method} {place.path}{path} HTTP/1.1", *(f"{k}: {v}" for k, v in sent.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        await writer.drain()
        yield await _response(reader)
    finally:
        writer.close()
        # The other side may have broken it already; it is over either way.
        with suppress(ConnectionError):
            await writer.wait_closed()


async def _response(reader: asyncio.StreamReader) -> Response:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.IncompleteReadError as error:
        raise ConnectionResetError("the connection ended before an answer") from error
    fields = (line.partition(":") for line in head[1:] if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in fields}
    return Response(int(head[0].split(" ", 2)[1]), headers, reader)


Block: TypeAlias = dict[str, Any]


class ErrorEventError(Exception):
    """The stream told of an error; `kind` is the API's name of it."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(slots=True)
class ModelAnswer:
    """The blocks that came whole, and why the model stopped, if it said so."""

    blocks: list[Block] = field(default_factory=list)
    stop_reason: str | None = None
    begun: bool = False
    _open: Block | None = None
    _parts: list[str] = field(default_factory=list)

    @property
    def calls(self) -> list[Block]:
        """The tools that the model called."""
        return [block for block in self.blocks if block["type"] == "tool_use"]

    @property
    def text(self) -> str:
        """All words of the answer."""
        return "".join(block["text"] for block in self.blocks if block["type"] == "text")

    def take(self, event: dict[str, Any]) -> None:
        """Take the next event of the stream."""
        kind = event.get("type")
        if kind == "error":
            told = event.get("error", {})
            raise ErrorEventError(str(told.get("type")), str(told.get("message")))
        self.begun = True
        if kind == "content_block_start":
            self._open, self._parts = dict(event["content_block"]), []
        elif kind == "content_block_delta":
            delta = event["delta"]
            self._parts.append(delta.get("text") or delta.get("partial_json") or "")
        elif kind == "content_block_stop":
            self._end_block()
        elif kind == "message_delta":
            self.stop_reason = event["delta"].get("stop_reason")

    def _end_block(self) -> None:
        block, written = self._open, "".join(self._parts)
        if block is None:
            return
        if block["type"] == "tool_use":
            block["input"] = json.loads(written or "{}")
        else:
            block["text"] = written
        self.blocks.append(block)
        self._open = None


def from_document(raw: bytes) -> ModelAnswer | None:
    """The answer that came in one document, or None if this is no message."""
    try:
        document = json.loads(raw)
    except ValueError:
        return None
    if not isinstance(document, dict) or not isinstance(document.get("content"), list):
        return None
    return ModelAnswer(document["content"], document.get("stop_reason"), begun=True)


async def events(pieces: AsyncIterator[bytes]) -> AsyncIterator[dict[str, Any]]:
    """The events of a stream, pings left out."""
    rest = b""
    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n\n")
        for lines in whole:
            data = b"".join(
                line[5:].strip() for line in lines.split(b"\n") if line.startswith(b"data:")
            )
            event = json.loads(data) if data else {}
            if event and event.get("type") != "ping":
                yield event


JsonObject: TypeAlias = Mapping[str, Any]

ECHO = "echo "
_FROM_MODEL = ("function_call", "reasoning")


def misbound(body: JsonObject) -> int:
    """How many calls and results of this request's conversation do not fit together."""
    wrong = 0
    calls: dict[str, str] = {}
    for entry in _entries(body):
        results = list(_results(entry))
        for id_, words in results:
            word = calls.pop(id_, None)
            wrong += word is None or word not in words
        if not results or entry.get("role") == "assistant":
            wrong += len(calls)
            calls = dict(_calls(entry))
    # What is called last is answered by the next request.
    return wrong


def _entries(body: JsonObject) -> Iterable[JsonObject]:
    """What was said, in order; items of Responses that belong to one turn come together."""
    if "input" not in body:
        yield from _objects(body.get("messages"))
        return
    said: list[JsonObject] = []
    for item in _objects(body["input"]):
        if item.get("type") in _FROM_MODEL or item.get("role") == "assistant":
            said.append(item)
            continue
        if said:
            yield {"role": "assistant", "items": said}
            said = []
        yield item
    if said:
        yield {"role": "assistant", "items": said}


def _calls(entry: JsonObject) -> Iterable[tuple[str, str]]:
    """The calls of one of the model's entries: the id, and the word that it echoes."""
    for call in _objects(entry.get("tool_calls")):
        function = call.get("function", {})
        yield str(call.get("id")), _word(json.loads(function.get("arguments") or "{}"))
    for item in _objects(entry.get("items")):
        if item.get("type") == "function_call":
            yield str(item.get("call_id")), _word(json.loads(item.get("arguments") or "{}"))
    for block in _objects(entry.get("content")):
        if block.get("type") == "tool_use":
            yield str(block.get("id")), _word(block.get("input", {}))


def _results(entry: JsonObject) -> Iterable[tuple[str, str]]:
    if entry.get("type") == "function_call_output":
        yield str(entry.get("call_id")), json.dumps(entry.get("output"))
    if entry.get("role") == "tool":
        yield str(entry.get("tool_call_id")), json.dumps(entry.get("content"))
    for block in _objects(entry.get("content")):
        if block.get("type") == "tool_result":
            yield str(block.get("tool_use_id")), json.dumps(block.get("content"))


def _word(given: JsonObject) -> str:
    command = str(given.get("command") or given.get("cmd") or "")
    return command.removeprefix(ECHO) if command.startswith(ECHO) else ""


def _objects(value: object) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
