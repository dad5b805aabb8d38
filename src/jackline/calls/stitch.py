"""Make one answer for the client out of as many upstream attempts as needed.

Rules: (1) whole events go out, each once, in the order in which they came; (2) a stream gets its
last event (message_stop) only if the turn is whole, or was closed honestly; (3) an undisturbed
answer goes out byte for byte; (4) how the bytes were chunked changes nothing; (5) nothing raises:
an attempt that cannot be parsed is broken; (6) in OpenAI's dialects a broken attempt is repaired by
another attempt until something real was delivered; after that the connection is cut, which these
clients answer with a retry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from jackline.calls.continuation import ClientView, Renumbering, StreamItem
from jackline.dialects.anthropic_stream import (
    BLOCK_DELTA,
    BLOCK_STOP,
    MESSAGE_STOP,
    AnthropicStreamReader,
    read_whole_stream,
)
from jackline.dialects.json_bounds import UNREADABLE
from jackline.dialects.openai_chat import ChatStreamReader
from jackline.dialects.openai_responses import ResponsesStreamReader
from jackline.dialects.sse import EventSplitter, event_of
from jackline.dialects.token_usage import TokenUsage

KEPT_BACK = 4 * 1024 * 1024
# What an event that is kept apart takes besides its bytes.
_ITEM_BYTES = 128
_NOTHING_USED = TokenUsage()
# Stand-ins for what has not been needed yet; only ever read.
_NOTHING_SEEN = ClientView(keeps_text=False)
_NOTHING_SPLIT = EventSplitter()
_NOTHING_READ = AnthropicStreamReader()
_STOP = event_of(MESSAGE_STOP, b'{"type":"message_stop"}')
_STOP_BEGINS = b"event: message_stop"
_WHOLE_ENDS = (b'"message_stop"}\n\n', b'"message_stop" }\n\n')

Mode: TypeAlias = Literal["live", "block"]


@dataclass(frozen=True, slots=True)
class AskAgain:
    """Nothing was delivered: a new attempt starts over, unseen."""


@dataclass(frozen=True, slots=True)
class Close:
    """These bytes end the turn; `shortened` when the model had more to say."""

    data: bytes
    shortened: bool = True


@dataclass(frozen=True, slots=True)
class Continue:
    """Only this text was delivered: the rest may be asked for with it as prefill."""

    text: str


@dataclass(frozen=True, slots=True)
class BreakOff:
    """Cut the connection, so that the client asks again."""


class _Held(NamedTuple):
    """An event, or a run of deltas, that waits."""

    name: bytes
    data: bytes | bytearray
    block_type: str


Repair: TypeAlias = AskAgain | Close | Continue | BreakOff


class _Stitch:
    """What the attempts of an answer have cost, whatever its dialect."""

    __slots__ = ("_reader", "_wasted_before", "complete", "events", "size")
    _reader: AnthropicStreamReader | ChatStreamReader | ResponsesStreamReader

    def __init__(self) -> None:
        self.complete = False
        # How many events of the current attempt were read, and how many bytes they are.
        self.events = self.size = 0
        self._wasted_before = _NOTHING_USED

    @property
    def broken(self) -> bool:
        """The attempt cannot become whole any more: hang up and ask `broke` what to do."""
        return self._reader.broken

    @property
    def usage(self) -> TokenUsage:
        """What the current attempt has cost so far."""
        return self._reader.usage

    @property
    def wasted_usage(self) -> TokenUsage:
        """What the attempts have cost that broke, the current one if it did."""
        wasted = self._wasted_before
        return wasted + self.usage if self.broken and not self.complete else wasted

    @property
    def error_event(self) -> bytes | None:
        """The data of the error with which the current attempt ended; it is never passed on."""
        return self._reader.error_event

    def waste(self, cost: TokenUsage) -> None:
        """An attempt that was given up for this one has cost so much."""
        self._wasted_before += cost

    @property
    def cost(self) -> TokenUsage:
        """What all attempts so far have cost."""
        return self._wasted_before + self.usage


class AnthropicStitch(_Stitch):
    """One answer to a client.

    Live, words pass as they come, once the first content block has begun, and tool calls whole. In
    block mode whole blocks pass, and only together with a complete tool call or the end of the
    message: until then a break can be repaired by asking again. The end of a message waits for its
    message_stop in both. `keeps_text` is for models that can continue: without it there is never a
    `Continue`.
    """

    __slots__ = (
        "_held",
        "_held_bytes",
        "_keeps_text",
        "_letting_go",
        "_live",
        "_prefill",
        "_renumbering",
        "_splitter",
        "_through",
        "_view",
        "_whole_usage",
    )

    def __init__(self, mode: Mode, *, keeps_text: bool = True) -> None:
        super().__init__()
        self._live = mode == "live"
        self._keeps_text = keeps_text
        self._prefill: str | None = None
        # An answer that comes whole and at once is never taken apart: for it, these stay unused.
        self._view = _NOTHING_SEEN
        self._splitter = _NOTHING_SPLIT
        self._reader: AnthropicStreamReader = _NOTHING_READ
        self._whole_usage: TokenUsage | None = None
        self._begin_following()

    def _open(self) -> None:
        """Make ready for an answer that comes in pieces."""
        if self._view is _NOTHING_SEEN:
            self._view = ClientView(keeps_text=self._keeps_text)
            self._splitter = EventSplitter()
            self._reader = AnthropicStreamReader()

    def _begin_following(self) -> None:
        self._renumbering: Renumbering | None = None
        self._held: list[_Held] = []
        self._held_bytes = 0
        # An open block has outgrown what may be kept back: the rest of it passes.
        self._letting_go = False
        # What the deltas begin with that pass without being looked at.
        self._through: bytes | None = None

    @property
    def delivered(self) -> bool:
        """Something real has gone out."""
        return self.complete or self._view.started

    @property
    def held(self) -> int:
        """How many bytes it keeps for now."""
        return self._held_bytes + len(self._splitter.pending) + self._view.held

    @property
    def begun(self) -> bool:
        """The model has begun to speak in this attempt; before that it may think for long."""
        return self.complete or bool(self._reader.blocks)

    @property
    def usage(self) -> TokenUsage:
        """What the current attempt has cost so far."""
        return self._whole_usage or self._reader.usage

    def attempt_began(self) -> None:
        """A new attempt will be fed from now on."""
        self.events = self.size = 0
        view = self._view
        if view is _NOTHING_SEEN:
            return
        if self._untouched() and not view.started:
            return
        self._wasted_before += self._reader.usage
        self._splitter = EventSplitter()
        self._reader = AnthropicStreamReader()
        self._begin_following()
        if view.started:
            text = view.text or ""
            if self._prefill is None or not text.startswith(self._prefill):
                # Two answers would run into each other.
                self._reader.give_up()
                return
            text_open = view.open_type == "text"
            tail = text[len(self._prefill) :] if text_open else ""
            self._renumbering = Renumbering(view.blocks, text_open=text_open, tail=tail)

    def _untouched(self) -> bool:
        reader = self._reader
        return not (reader.started or reader.broken or self._held or self._splitter.pending)

    def continue_with(self, prefill: str) -> None:
        """Say with which words the next attempt was asked to go on; then it may begin."""
        self._prefill = prefill

    def feed(self, data: bytes) -> bytes:
        """What goes to the client now."""
        through = self._through
        if through is not None and not self._splitter.pending and _is_delta(data, through):
            self.events += 1
            self.size += len(data)
            return data
        if self.complete or self._reader.broken:
            return b""
        if data.endswith(_WHOLE_ENDS) and not self._view.started and self._untouched():
            whole = read_whole_stream(data)
            if whole is not None:
                self._whole_usage = whole
                self.complete = True
                self.events, self.size = data.count(b"\n\n"), len(data)
                return data
        self._open()
        reader = self._reader
        out: list[bytes] = []
        try:
            for event in self._splitter.feed(data):
                self.events += 1
                self.size += len(event)
                through = self._through
                if through is not None and _is_delta(event, through):
                    out.append(event)
                elif not self._take(event, out):
                    self._through = None
                    break
        except UNREADABLE:
            self.size += len(data)
            reader.give_up()
            self._through = None
        return b"".join(out)

    def _take(self, event: bytes, out: list[bytes]) -> bool:
        """Hold an event back, let go of all that may go after it, and say whether more may come."""
        reader = self._reader
        head = reader.delta_head
        name = BLOCK_DELTA if head and _is_delta(event, head) else reader.feed(event)
        if reader.broken:
            return False
        may_go = self._may_go(name)
        block_type = reader.blocks[-1].type if reader.blocks else ""
        if self._renumbering is not None:
            for changed in self._renumbering.translate(StreamItem(name, event, block_type)):
                self._hold(changed)
        elif may_go and not self._held:
            self._view.saw(name, event, block_type)
            out.append(event)
        else:
            self._hold(StreamItem(name, event, block_type))
        if may_go:
            self._release(out)
            self.complete = reader.whole
        elif self._held_bytes > KEPT_BACK:
            # Memory is worth more than repair; but what is no content may not be so large.
            if reader.blocks and reader.stop_reason is None:
                self._release(out)
                self._letting_go = reader.open_block is not None
            elif self._held_bytes > 2 * KEPT_BACK or not reader.blocks:
                reader.give_up()
        if name == BLOCK_STOP:
            self._letting_go = False
        looked_at = self._view.listening or self._renumbering is not None
        passing = (self._letting_go or (self._live and may_go)) and not looked_at
        self._through = reader.delta_head if passing else None
        return not (reader.whole or reader.broken)

    def _may_go(self, name: bytes) -> bool:
        reader = self._reader
        if reader.whole:
            return True
        if reader.stop_reason is not None:
            return False
        if self._letting_go:
            return True
        if not self._live:
            return name == BLOCK_STOP and reader.blocks[-1].type == "tool_use"
        # Words go as they come; a tool call whole, and with it the end of the text before it. A
        # client that has an open block when the line breaks asks again, one that has complete text
        # and no complete tool call gives up (F12b, F12f): so text stays open until it is known what
        # follows.
        if not reader.blocks:
            return self._view.started
        if reader.open_block is not None:
            return reader.open_block.type != "tool_use"
        return reader.blocks[-1].type != "text"

    def _hold(self, item: StreamItem) -> None:
        name, event, block_type = item
        self._held_bytes += len(event)
        if name == BLOCK_DELTA and self._held and self._held[-1].name == BLOCK_DELTA:
            # Many small deltas are kept in one piece: apart they would take twice the memory.
            before = self._held[-1].data
            if isinstance(before, bytearray):
                before += event
            else:
                self._held[-1] = _Held(name, bytearray(before + event), block_type)
        else:
            self._held_bytes += _ITEM_BYTES
            self._held.append(_Held(name, event, block_type))

    def _release(self, out: list[bytes]) -> None:
        for name, data, block_type in self._held:
            event = data if isinstance(data, bytes) else bytes(data)
            self._view.saw(name, event, block_type)
            out.append(event)
        self._held.clear()
        self._held_bytes = 0

    def broke(self) -> Repair:
        """What to do now that the current attempt has ended in any way without message_stop."""
        if self.complete:
            return Close(b"", shortened=False)
        self._open()
        reader = self._reader
        rest = self._splitter.rest.lstrip(b"\r\n")[: len(_STOP_BEGINS)]
        if reader.stop_reason is not None and not reader.broken and _STOP_BEGINS.startswith(rest):
            # The vendor has given a stop reason, and nothing that begins after it is anything else.
            out: list[bytes] = []
            self._release(out)
            self.complete = True
            return Close(b"".join(out) + _STOP, shortened=False)
        # It may be long until the next attempt begins.
        self._begin_following()
        self._splitter = EventSplitter()
        reader.error_event = None
        reader.give_up()
        if not self._view.started:
            return AskAgain()
        closing = self._view.closing(reader.usage.output_tokens)
        if closing is not None:
            self.complete = True
            return Close(closing)
        text = self._view.text
        return BreakOff() if text is None else Continue(text)


def _is_delta(data: bytes, head: bytes) -> bool:
    """It is one event of two lines: nothing behind the head can change what it is."""
    return (
        data.startswith(head)
        and data.endswith(b"\n\n")
        and data.count(b"\n") == 3
        and b"\r" not in data
    )


OPENAI_KEPT_BACK = 4 * 1024 * 1024
# Said before the model has begun: nothing of it needs to be taken back.
_PREAMBLE = frozenset((b"response.created", b"response.in_progress", b"response.queued"))


class OpenAiStitch(_Stitch):
    """One answer to a client that speaks Chat Completions or Responses."""

    __slots__ = (
        "_held",
        "_live",
        "_responses",
        "_splitter",
        "begun",
        "delivered",
    )

    def __init__(self, mode: Mode, *, responses: bool) -> None:
        super().__init__()
        self.delivered = False
        self._live = mode == "live"
        self._responses = responses
        self._begin()

    def _begin(self) -> None:
        self._reader: ChatStreamReader | ResponsesStreamReader
        self._reader = ResponsesStreamReader() if self._responses else ChatStreamReader()
        self._splitter = EventSplitter()
        self.events = self.size = 0
        # In one piece: apart, small events would take many times their bytes.
        self._held = bytearray()
        # The model has begun to speak; before that it may think for long.
        self.begun = False

    @property
    def held(self) -> int:
        """How many bytes it keeps for now."""
        return len(self._held) + len(self._splitter.pending)

    def attempt_began(self) -> None:
        """A new attempt will be fed from now on."""
        self._wasted_before += self.usage
        self._begin()
        if self.delivered:
            # Two answers would run into each other.
            self._reader.give_up()

    def continue_with(self, prefill: str) -> None:
        """These dialects take no beginning of an answer."""

    def feed(self, data: bytes) -> bytes:
        """What goes to the client now."""
        reader = self._reader
        if self.complete or reader.broken:
            return b""
        out: list[bytes] = []
        held = self._held
        try:
            for event in self._splitter.feed(data):
                self.events += 1
                self.size += len(event)
                name = reader.feed(event)
                if self.broken or reader.error_event is not None:
                    reader.give_up()
                    break
                self.begun = self.begun or (reader.started and name not in _PREAMBLE)
                may_go = reader.whole or len(held) + len(event) > OPENAI_KEPT_BACK
                may_go = may_go or (self._live and reader.started and name not in _PREAMBLE)
                if not may_go:
                    held += event
                elif held:
                    out += (bytes(held), event)
                    held.clear()
                else:
                    out.append(event)
                if reader.whole:
                    self.complete = True
                    break
        except ValueError:
            self.size += len(data)
            reader.give_up()
        if out:
            self.delivered = self.begun = True
        return b"".join(out)

    def broke(self) -> Repair:
        """What to do now that the current attempt has ended without its last event."""
        if self.complete:
            return Close(b"", shortened=False)
        self._held.clear()
        self._splitter = EventSplitter()
        self._reader.error_event = None
        self._reader.give_up()
        return BreakOff() if self.delivered else AskAgain()
