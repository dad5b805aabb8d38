"""Put a model's answer together from a stream of events or from one document.

Laws: (1) a block counts once it has ended, and only then; (2) a ping is no event; (3) a repeated
`message_start` begins the message anew as long as no block has ended.
Not here: when to ask again (builtin_client.py), bytes on a connection (http_exchange.py).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Block: TypeAlias = dict[str, Any]


class ErrorEventError(Exception):
    """The stream told of an error; `kind` is the API's name of it."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(slots=True)
class Answer:
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


def from_document(raw: bytes) -> Answer | None:
    """The answer that came in one document, or None if this is no message."""
    try:
        document = json.loads(raw)
    except ValueError:
        return None
    if not isinstance(document, dict) or not isinstance(document.get("content"), list):
        return None
    return Answer(document["content"], document.get("stop_reason"), begun=True)


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
