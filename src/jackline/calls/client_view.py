"""Know what a client has been given of an answer, and what can still be made of it.

Laws: (1) only events that went out are told here; (2) a turn is closed only where each block in it
is one that the vendor would take back in the next request; (3) text is decoded only while somebody
may need it.
Not here: what is kept back (stitching.py), asking again with the words so far (continuation.py).
"""

from __future__ import annotations

import io

import msgspec

from jackline.dialects.anthropic_answer import block_stop, closing_events
from jackline.dialects.anthropic_stream import BLOCK_DELTA, BLOCK_START, BLOCK_STOP, MESSAGE_START
from jackline.dialects.sse import EventSplitter, data_of

LONGEST_PREFILL = 1024 * 1024


class _Piece(msgspec.Struct):
    text: str = ""


class _Said(msgspec.Struct):
    delta: _Piece = msgspec.field(default_factory=_Piece)
    content_block: _Piece = msgspec.field(default_factory=_Piece)


UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)
_said = msgspec.json.Decoder(_Said)


def words_in(event: bytes) -> str:
    """The text that an event of a text block carries; raises one of UNREADABLE."""
    said = _said.decode(data_of(event))
    return said.delta.text + said.content_block.text


class ClientView:
    """The answer as the client has it. `listening` says that deltas must be told one by one."""

    __slots__ = (
        "_only_text",
        "_server_tool_waits",
        "_text",
        "_words",
        "blocks",
        "listening",
        "open_type",
        "started",
        "tool_started",
    )

    def __init__(self, *, keeps_text: bool) -> None:
        self.started = False
        self.blocks = 0
        self.open_type: str | None = None
        # A client starts a tool as soon as its block is complete: from then on it has happened.
        self.tool_started = False
        self.listening = False
        self._only_text = True
        self._server_tool_waits = False
        self._words = False
        self._text = io.StringIO() if keeps_text else None

    def saw(self, name: bytes, event: bytes, block_type: str) -> None:
        """Take note of an event that goes out, or of deltas that go out together."""
        if name == BLOCK_DELTA:
            if self.listening:
                self._heard_all(event)
        elif name == BLOCK_START:
            self.blocks += 1
            self.open_type = block_type
            self._words = False
            self._only_text = self._only_text and block_type == "text"
            self.listening = block_type == "text"
            if self.listening and self._text is not None:
                self._heard(event)
        elif name == BLOCK_STOP:
            self._block_ended()
        elif name == MESSAGE_START:
            self.started = True

    def _heard_all(self, deltas: bytes) -> None:
        if deltas.count(b"\n") == 3:
            self._heard(deltas)
            return
        splitter = EventSplitter()
        for event in [*splitter.feed(deltas), splitter.rest]:
            if event and self.listening:
                self._heard(event)

    def _heard(self, event: bytes) -> None:
        """Keep the words of a text block as long as they may be needed."""
        try:
            words = words_in(event)
        except UNREADABLE:
            # The client may read it in its own way: what it has is not known word by word any more.
            words, self._text = "", None
        self._words = self._words or bool(words.strip())
        if self._text is not None and self._only_text:
            self._text.write(words)
            if self._text.tell() > LONGEST_PREFILL:
                self._text = None
        else:
            self.listening = not self._words

    def _block_ended(self) -> None:
        kind = self.open_type or ""
        self.open_type = None
        self.listening = False
        if kind == "tool_use":
            self.tool_started = True
            self._server_tool_waits = False
        elif kind.endswith("tool_use"):
            self._server_tool_waits = True
        elif kind.endswith("tool_result"):
            self._server_tool_waits = False

    @property
    def text(self) -> str | None:
        """All words given so far, when nothing but text was given and some of it can be seen."""
        if self._text is None or not self._only_text:
            return None
        text = self._text.getvalue()
        return text if text.strip() else None

    def closing(self, output_tokens: int) -> bytes | None:
        """What makes a valid, shorter turn of it; None when nothing honest does.

        An open text block may end where it is: its words are true so far, unless there are none yet
        (the vendor takes no empty text back). An open tool call is cut JSON, an open thinking block
        lacks its signature, and a server's tool without its result is half an exchange: the next
        request would be refused for any of them.
        """
        if not self.tool_started or self._server_tool_waits:
            return None
        end = closing_events("tool_use", output_tokens)
        if self.open_type is None:
            return end
        if self.open_type == "text" and self._words:
            return block_stop(self.blocks - 1) + end
        return None
