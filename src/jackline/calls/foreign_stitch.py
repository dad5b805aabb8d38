"""Make one answer of an OpenAI dialect out of as many upstream attempts as it takes.

Laws: (1) what goes out is whole events, each once, in the order in which they came; (2) until
something real has gone out a broken attempt is repaired by asking again; after that the line is
cut, which these clients answer with a retry; (3) the last event goes out only when the answer is
whole.
Not here: Anthropic's streams, of which more can be mended (stitching.py).
"""

from __future__ import annotations

from typing import Protocol

from jackline.calls.stitching import AskAgain, BreakOff, Close, Mode, Repair
from jackline.dialects.openai_chat.stream_reader import ChatStreamReader
from jackline.dialects.openai_responses.stream_reader import ResponsesStreamReader
from jackline.dialects.sse import EventSplitter
from jackline.dialects.tokens_used import TokensUsed

KEPT_BACK = 4 * 1024 * 1024
# Said before the model has begun: nothing of it needs to be taken back.
_PREAMBLE = frozenset((b"response.created", b"response.in_progress", b"response.queued"))


class StreamReader(Protocol):
    """What is known about one answer after the events so far."""

    started: bool
    whole: bool
    broken: bool
    usage: TokensUsed
    error_event: bytes | None

    def feed(self, event: bytes) -> bytes:
        """Take note of one raw event, and give its name."""
        ...

    def give_up(self) -> None:
        """Regard the stream as broken."""
        ...


class ForeignStitch:
    """One answer to a client that speaks Chat Completions or Responses."""

    __slots__ = (
        "_held",
        "_live",
        "_responses",
        "_splitter",
        "_wasted_before",
        "begun",
        "complete",
        "delivered",
        "reader",
    )

    def __init__(self, mode: Mode, *, responses: bool) -> None:
        self.complete = False
        self.delivered = False
        self._live = mode == "live"
        self._responses = responses
        self._wasted_before = TokensUsed()
        self._begin()

    def _begin(self) -> None:
        self.reader: StreamReader = (
            ResponsesStreamReader() if self._responses else ChatStreamReader()
        )
        self._splitter = EventSplitter()
        # In one piece: apart, small events would take many times their bytes.
        self._held = bytearray()
        # The model has begun to speak; before that it may think for long.
        self.begun = False

    @property
    def broken(self) -> bool:
        """The attempt cannot become whole any more."""
        return self.reader.broken

    @property
    def usage(self) -> TokensUsed:
        """What the current attempt has cost so far."""
        return self.reader.usage

    @property
    def wasted_usage(self) -> TokensUsed:
        """What the attempts have cost that broke, the current one if it did."""
        wasted = self._wasted_before
        return wasted + self.usage if self.broken and not self.complete else wasted

    @property
    def error_event(self) -> bytes | None:
        """The data of the error with which the current attempt ended; it is never passed on."""
        return self.reader.error_event

    def waste(self, cost: TokensUsed) -> None:
        """An attempt that was given up for this one has cost so much."""
        self._wasted_before += cost

    @property
    def cost(self) -> TokensUsed:
        """What all attempts so far have cost."""
        return self._wasted_before + self.usage

    def attempt_began(self) -> None:
        """A new attempt will be fed from now on."""
        self._wasted_before += self.usage
        self._begin()
        if self.delivered:
            # Two answers would run into each other.
            self.reader.give_up()

    def continue_with(self, prefill: str) -> None:
        """These dialects take no beginning of an answer."""

    def feed(self, data: bytes) -> bytes:
        """What goes to the client now."""
        reader = self.reader
        if self.complete or reader.broken:
            return b""
        out: list[bytes] = []
        held = self._held
        try:
            for event in self._splitter.feed(data):
                name = reader.feed(event)
                if self.broken or reader.error_event is not None:
                    reader.give_up()
                    break
                self.begun = self.begun or (reader.started and name not in _PREAMBLE)
                if not self._may_go(name, len(event)):
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
            reader.give_up()
        if out:
            self.delivered = self.begun = True
        return b"".join(out)

    def _may_go(self, name: bytes, size: int) -> bool:
        reader = self.reader
        if reader.whole or len(self._held) + size > KEPT_BACK:
            return True
        return self._live and reader.started and name not in _PREAMBLE

    def broke(self) -> Repair:
        """What to do now that the current attempt has ended without its last event."""
        if self.complete:
            return Close(b"", shortened=False)
        self._held.clear()
        self.reader.give_up()
        return BreakOff() if self.delivered else AskAgain()
