"""A client that takes an answer as Claude Code does, and tolerates no event out of place.

Rules: (1) a tool starts when its block ends; (2) a turn counts as complete when message_stop came;
(3) it shares no code with what it judges.
Not here: asking again.
"""

from __future__ import annotations

import json
from typing import Any


class StrictClient:
    """Accumulates one message."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.blocks: list[dict[str, Any]] = []
        self.open = False
        self.tools_started: list[dict[str, Any]] = []
        self.stop_reason: str | None = None
        self.complete = False
        self._parts: list[str] = []

    def read(self, data: bytes) -> None:
        """Take bytes that consist of whole events."""
        lines = data.decode().replace("\r\n", "\n").replace("\r", "\n")
        assert not lines or lines.endswith("\n\n"), "half an event"
        for written in lines.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in written.split("\n") if line)
            if "data" in fields:
                result = json.loads(fields["data"])
                assert result["type"] == fields["event"]
                self._take(result)

    def _take(self, result: dict[str, Any]) -> None:
        kind = result["type"]
        if kind == "ping":
            return
        assert not self.complete, f"{kind} after message_stop"
        getattr(self, f"_{kind}")(result)

    def _message_start(self, result: dict[str, Any]) -> None:
        assert self.id is None, "a second message"
        self.id = result["message"]["id"]

    def _content_block_start(self, result: dict[str, Any]) -> None:
        assert self.id is not None
        assert not self.open
        assert result["index"] == len(self.blocks), "a gap or a block twice"
        self.blocks.append(dict(result["content_block"]))
        self.open = True
        self._parts = []

    def _content_block_delta(self, result: dict[str, Any]) -> None:
        assert self.open
        assert result["index"] == len(self.blocks) - 1
        block, delta = self.blocks[-1], result["delta"]
        match delta["type"]:
            case "text_delta":
                assert block["type"] == "text"
                block["text"] += delta["text"]
            case "thinking_delta":
                block["thinking"] += delta["thinking"]
            case "signature_delta":
                block["signature"] = delta["signature"]
            case "input_json_delta":
                self._parts.append(delta["partial_json"])
            case other:
                raise AssertionError(other)

    def _content_block_stop(self, result: dict[str, Any]) -> None:
        assert self.open
        assert result["index"] == len(self.blocks) - 1
        self.open = False
        block = self.blocks[-1]
        if self._parts:
            block["input"] = json.loads("".join(self._parts))
        if block["type"] == "tool_use":
            self.tools_started.append(block)

    def _message_delta(self, result: dict[str, Any]) -> None:
        assert self.id is not None
        assert not self.open, "the message ends inside of a block"
        self.stop_reason = result["delta"]["stop_reason"] or self.stop_reason

    def _message_stop(self, _told: dict[str, Any]) -> None:
        assert self.stop_reason is not None
        self.complete = True

    def _error(self, result: dict[str, Any]) -> None:
        raise AssertionError(f"an error was passed on: {result}")
