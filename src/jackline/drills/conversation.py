"""Talk to a model over HTTP: one request, its answer, and a check of tool calls and results.

Rules: (1) each request has its own HTTP/1.1 connection, which is closed when the block is left;
(2) whatever breaks is a `ConnectionError`, a clean end is none; (3) a content block counts once
it has ended, a ping is no event, and a repeated `message_start` begins the message again while no
block has ended; (4) calls and results belong together by id within one turn of the model, in any
vendor's format; a call that echoes a text must have that text in its result, so that swapped ids
are found; (5) an agent is recognised by its first prompt, which every vendor's format has.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias
from urllib.parse import urlsplit

from jackline.dialects import EventSplitter, data_of
from jackline.http1.responses import ResponseParser
from jackline.simulator.client_request import ClientRequest

READ_AT_ONCE = 65_536
ECHO = "echo "
MAIN = "main"
"""The label of the thread that starts the sub-agents."""
_LABEL = re.compile(r"^(PART-\d+): ", re.MULTILINE)
_FROM_MODEL = ("function_call", "reasoning")

Block: TypeAlias = dict[str, Any]
JsonObject: TypeAlias = Mapping[str, Any]


class Response:
    """Status and headers (lower-case names) of an answer whose body is still to be read."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._parser = ResponseParser()
        self.headers: Mapping[str, str] = {}

    @property
    def status(self) -> int:
        """The status of the answer."""
        return self._parser.status

    async def read_head(self) -> None:
        """Wait for status and headers."""
        while self._parser.new_head is None:
            await self._read(ConnectionResetError("the connection ended before an answer"))
        self.headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in self._parser.new_head
        }

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, piece by piece."""
        while True:
            if self._parser.parts:
                yield self._parser.take_content()
            if self._parser.is_complete:
                return
            await self._read(ConnectionAbortedError("the answer ended early"))

    async def _read(self, if_ended: ConnectionError) -> None:
        if self._parser.fault is not None:
            raise self._parser.fault
        data = await self._reader.read(READ_AT_ONCE)
        if not data:
            raise if_ended
        self._parser.feed(data)

    async def whole(self) -> bytes:
        """The whole body."""
        return b"".join([piece async for piece in self.pieces()])

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """The events of a stream, without pings."""
        splitter = EventSplitter()
        async for piece in self.pieces():
            for raw in splitter.feed(piece):
                data = data_of(raw)
                event = json.loads(data) if data else {}
                if event and event.get("type") != "ping":
                    yield event


@asynccontextmanager
async def posted(
    url: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    *,
    method: str = "POST",
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
        response = Response(reader)
        await response.read_head()
        yield response
    finally:
        writer.close()
        # The other side may have broken it already; it is over either way.
        with suppress(ConnectionError):
            await writer.wait_closed()


class ClientGaveUpError(Exception):
    """A client has given up on its call, and its agent is lost; its user sees the text."""


class ErrorEventError(Exception):
    """The stream had an error event; `kind` is the API's name of the error."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(slots=True)
class ModelAnswer:
    """The blocks that came whole, and why the model stopped, if it reported that."""

    blocks: list[Block] = field(default_factory=list)
    stop_reason: str | None = None
    begun: bool = False
    _open: Block | None = None
    _parts: list[str] = field(default_factory=list)

    @classmethod
    def from_document(cls, raw: bytes) -> Self | None:
        """The answer that came in one document, or None if this is no message."""
        try:
            document = json.loads(raw)
        except ValueError:
            return None
        if not isinstance(document, dict) or not isinstance(document.get("content"), list):
            return None
        return cls(document["content"], document.get("stop_reason"), begun=True)

    @property
    def calls(self) -> list[Block]:
        """The tools that the model called."""
        return [block for block in self.blocks if block["type"] == "tool_use"]

    @property
    def text(self) -> str:
        """The texts of all blocks."""
        return "".join(block["text"] for block in self.blocks if block["type"] == "text")

    def take(self, event: dict[str, Any]) -> None:
        """Apply the next event of the stream."""
        kind = event.get("type")
        if kind == "error":
            error = event.get("error", {})
            raise ErrorEventError(str(error.get("type")), str(error.get("message")))
        self.begun = True
        if kind == "content_block_start":
            self._open, self._parts = dict(event["content_block"]), []
        elif kind == "content_block_delta":
            delta = event["delta"]
            self._parts.append(delta.get("text") or delta.get("partial_json") or "")
        elif kind == "content_block_stop" and self._open is not None:
            block, written = self._open, "".join(self._parts)
            if block["type"] == "tool_use":
                block["input"] = json.loads(written or "{}")
            else:
                block["text"] = written
            self.blocks.append(block)
            self._open = None
        elif kind == "message_delta":
            self.stop_reason = event["delta"].get("stop_reason")


def label_of(request: ClientRequest) -> str:
    """The agent whose conversation this is, by its first prompt, in any vendor's format."""
    entries = request.body.get("messages") or request.body.get("input") or ()
    for entry in entries:
        if entry.get("role") != "user":
            continue
        content = entry.get("content")
        texts = [content] if isinstance(content, str) else [b.get("text", "") for b in content]
        for text in texts:
            if found := _LABEL.search(text):
                return found[1]
    return MAIN


def misbound(body: JsonObject) -> int:
    """How many calls and results of this request's conversation do not fit together."""
    wrong = 0
    calls: dict[str, str] = {}
    for entry in _entries(body):
        results = list(_results(entry))
        for id_, text in results:
            echoed = calls.pop(id_, None)
            wrong += echoed is None or echoed not in text
        if not results or entry.get("role") == "assistant":
            wrong += len(calls)
            calls = dict(_calls(entry))
    # The last calls are answered by the next request.
    return wrong


def _entries(body: JsonObject) -> Iterable[JsonObject]:
    """The conversation in order; items of Responses that belong to one turn come together."""
    if "input" not in body:
        yield from _objects(body.get("messages"))
        return
    turn: list[JsonObject] = []
    for item in _objects(body["input"]):
        if item.get("type") in _FROM_MODEL or item.get("role") == "assistant":
            turn.append(item)
            continue
        if turn:
            yield {"role": "assistant", "items": turn}
            turn = []
        yield item
    if turn:
        yield {"role": "assistant", "items": turn}


def _calls(entry: JsonObject) -> Iterable[tuple[str, str]]:
    """The calls of one of the model's entries: the id, and the text that it echoes."""
    chat = [(one.get("id"), one.get("function", {})) for one in _objects(entry.get("tool_calls"))]
    items = [one for one in _objects(entry.get("items")) if one.get("type") == "function_call"]
    blocks = [one for one in _objects(entry.get("content")) if one.get("type") == "tool_use"]
    found = [(id_, json.loads(one.get("arguments") or "{}")) for id_, one in chat]
    found += [(one.get("call_id"), json.loads(one.get("arguments") or "{}")) for one in items]
    found += [(one.get("id"), one.get("input", {})) for one in blocks]
    for id_, arguments in found:
        command = str(arguments.get("command") or arguments.get("cmd") or "")
        yield str(id_), command.removeprefix(ECHO) if command.startswith(ECHO) else ""


def _results(entry: JsonObject) -> Iterable[tuple[str, str]]:
    if entry.get("type") == "function_call_output":
        yield str(entry.get("call_id")), json.dumps(entry.get("output"))
    if entry.get("role") == "tool":
        yield str(entry.get("tool_call_id")), json.dumps(entry.get("content"))
    for block in _objects(entry.get("content")):
        if block.get("type") == "tool_result":
            yield str(block.get("tool_use_id")), json.dumps(block.get("content"))


def _objects(value: object) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
