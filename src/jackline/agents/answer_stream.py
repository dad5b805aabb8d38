"""Build one whole model answer from its event stream: blocks, stop reason, tokens.

Rules: (1) an answer is whole only when `AnthropicStreamReader` says so; (2) a block has the form
that the vendor's API returns in one piece, so that it can be sent again in the next turn; (3) a
tool call whose input was cut off is never returned, because it must not run; (4) no input raises.
Not here: sockets (gateway_model.py), splitting bytes into events (dialects/sse.py).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import msgspec

from jackline.agents.outcome import TokenUsage
from jackline.agents.runner import CUT_CALL, JsonObject, WholeAnswer
from jackline.dialects import HOLD_ID, AnthropicStreamReader, EventSplitter, TokensUsed
from jackline.dialects.sse import name_and_data
from jackline.dialects.tokens_used import bounded_count

# Where the pieces of each kind of delta belong in the block, and how they are called in it.
_PIECES = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("input", "partial_json"),
}


@dataclass(slots=True)
class _Block:
    """One content block as it began, and the pieces that came for one of its fields."""

    start: JsonObject
    grows: str = ""
    pieces: list[str] = field(default_factory=list)

    def finished(self) -> JsonObject:
        """The block as it would be in an answer of one piece."""
        written = "".join(self.pieces)
        if self.grows != "input":
            return {**self.start, self.grows: self.text} if self.grows else self.start
        if not written:
            return self.start
        try:
            given = _object(_decoded(written))
        except (ValueError, TypeError, RecursionError):
            return {"type": CUT_CALL, "name": self.start.get("name", "")}
        return {**self.start, "input": given}

    @property
    def text(self) -> str:
        """Its words so far."""
        return str(self.start.get(self.grows or "text", "")) + "".join(self.pieces)


class AnswerStreamReader:
    """Takes the bytes of one event stream; afterwards it is whole, broken, or cut short."""

    def __init__(self) -> None:
        self._splitter = EventSplitter()
        self._reader = AnthropicStreamReader()
        self._model = ""
        self._blocks: list[_Block] = []

    @property
    def whole(self) -> bool:
        """Whether all of it is here."""
        return self._reader.whole

    @property
    def broken(self) -> bool:
        """Whether it cannot become whole any more."""
        return self._reader.broken

    @property
    def began(self) -> bool:
        """Whether the model has begun to speak."""
        return self._reader.started

    @property
    def error_event(self) -> bytes | None:
        """The vendor's error inside of the stream."""
        told = self._reader.error_event
        return None if told is None else b"event: error\ndata: " + told + b"\n\n"

    @property
    def text(self) -> str:
        """The words so far."""
        return "".join(each.text for each in self._blocks if each.start.get("type") == "text")

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        try:
            for event in self._splitter.feed(data):
                self._take(event)
        except (ValueError, TypeError, KeyError, RecursionError):
            # What cannot be followed is no answer, whatever it is.
            self._reader.give_up()

    def answer(self, *, request_id: str | None, lane: str | None) -> WholeAnswer:
        """The whole answer; only when `whole`."""
        return WholeAnswer(
            content=[block.finished() for block in self._blocks],
            stop_reason=self._reader.stop_reason or "",
            usage=usage_of(self._reader.usage),
            model=self._model,
            request_id=request_id,
            lane=lane,
        )

    def _take(self, event: bytes) -> None:
        name, data = name_and_data(event)
        if name == b"message_start":
            message = _object(_object(_decoded(data))["message"])
            if message.get("id") == HOLD_ID:
                return  # a gateway's sign of life; the real one comes after it
            self._model = str(message.get("model", ""))
        self._reader.feed(event)
        if self._reader.broken:
            return
        if name == b"content_block_start":
            told = _object(_decoded(data))
            self._blocks.append(_Block(dict(_object(told["content_block"]))))
        elif name == b"content_block_delta":
            self._add(self._blocks[-1], _object(_object(_decoded(data))["delta"]))

    def _add(self, block: _Block, delta: JsonObject) -> None:
        kind = str(delta.get("type"))
        if kind in _PIECES:
            block.grows, piece = _PIECES[kind]
            block.pieces.append(str(delta[piece]))
        elif kind == "signature_delta":
            block.start["signature"] = delta["signature"]
        elif kind == "citations_delta":
            known = block.start.get("citations")
            cited = known if isinstance(known, list) else []
            block.start["citations"] = [*cited, delta["citation"]]


def answer_from_body(
    body: bytes, *, request_id: str | None, lane: str | None
) -> WholeAnswer | None:
    """An answer that came in one piece; None when the body is none."""
    try:
        told = _object(_decoded(body))
        content = told["content"]
        if told.get("type") != "message" or not isinstance(content, list):
            return None
        usage = _object(told.get("usage") or {})
        return WholeAnswer(
            content=[_object(block) for block in content],
            stop_reason=str(told.get("stop_reason") or ""),
            usage=TokenUsage(
                _count(usage, "input_tokens"),
                _count(usage, "output_tokens"),
                _count(usage, "cache_read_input_tokens"),
                _count(usage, "cache_creation_input_tokens"),
                _written_1h(usage),
            ),
            model=str(told.get("model", "")),
            request_id=request_id,
            lane=lane,
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def usage_of(tokens: TokensUsed) -> TokenUsage:
    """The wire's count as an agent's."""
    return TokenUsage(
        tokens.input,
        tokens.output,
        tokens.cache_read,
        tokens.cache_creation,
        tokens.cache_creation_1h,
    )


def _decoded(data: bytes | str) -> object:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        # Models now and then write half of a surrogate pair, which only the lenient reader takes.
        return json.loads(data)


def _object(value: object) -> JsonObject:
    if not isinstance(value, dict):
        raise TypeError("an object was expected")
    return value


def _written_1h(usage: JsonObject) -> int:
    split = usage.get("cache_creation")
    return _count(split, "ephemeral_1h_input_tokens") if isinstance(split, dict) else 0


def _count(usage: JsonObject, key: str) -> int:
    value = usage.get(key)
    return bounded_count(value) if isinstance(value, int) else 0
