"""Turn a stream of chat completion chunks into Anthropic's events.

Laws: (1) calls are told apart by their index, and by their id where a server gives all the same
index; (2) the blocks end with the finish reason, the message with `[DONE]`, because what it cost
may come between; (3) what has no counterpart is noted by name; (4) no event costs more because of
what came before it.
Not here: the order of blocks (neutral/message_writer.py), whole answers (answer.py).
"""

from __future__ import annotations

import msgspec

from jackline.dialects.neutral.account import Fields
from jackline.dialects.neutral.answer import MOST_CALLS, NOT_TOLD
from jackline.dialects.neutral.following import StreamTranslator
from jackline.dialects.neutral.ids import message_id
from jackline.dialects.neutral.message_writer import UnfollowableError
from jackline.dialects.neutral.options import AnswerAs
from jackline.dialects.neutral.stopping import stop_reason
from jackline.dialects.neutral.usage import foreign_usage
from jackline.dialects.openai_chat.answer import REASONING, content_text, matched_stop, written

DONE = b"[DONE]"


class _Call:
    """What is known of a call whose name has not come yet, or has."""

    __slots__ = ("early", "id", "name")

    def __init__(self, foreign_id: str) -> None:
        self.id = foreign_id
        self.name = ""
        self.early: list[str] = []


# What frames a chunk and says nothing.
_FRAME = ("object", "created", "model", "system_fingerprint", "service_tier", "obfuscation")


class ChatStreamTranslator(StreamTranslator):
    """Bytes of a chat stream in, bytes of Anthropic's stream out."""

    def __init__(self, face: AnswerAs) -> None:
        super().__init__(face)
        self._finish_reason: str | None = None
        self._matched: str | None = None
        self._calls: list[_Call] = []
        self._nameless = 0
        # Which call an index means now; servers that number all calls 0 change it by the id.
        self._at_index: dict[int, int] = {}
        self._largest_index = 0

    def _take(self, name: bytes, data: bytes) -> None:
        if data.strip() == DONE:
            self._done()
            return
        chunk = Fields(data, "", self.notes)
        if name == b"error" or "error" in chunk.names() or chunk.text("object") == "error":
            self._fail(data)
            return
        for framing in _FRAME:
            chunk.raw(framing)
        self.usage = foreign_usage(self.usage, chunk.raw("usage"))
        foreign_id = chunk.text("id") or ""
        for raw in chunk.items("choices"):
            self._take_choice(raw, foreign_id, data)
        chunk.note_rest(NOT_TOLD)

    def _take_choice(self, raw: msgspec.Raw, foreign_id: str, data: bytes) -> None:
        choice = Fields(raw, "choices[*]", self.notes)
        if choice.count("index"):
            self.notes.add("choices[*].index", "one answer was asked for; the others are not told")
            return
        if not self.writer.started:
            self.writer.begin(message_id(foreign_id, data))
        delta = choice.inner("delta")
        if delta is not None:
            self._take_delta(delta)
        self._matched = matched_stop(choice.raw("stop_reason"), self.face) or self._matched
        reason = choice.text("finish_reason")
        choice.note_rest(NOT_TOLD)
        if reason:
            self._finish_reason = reason
            self._demand_names()
            self.writer.close_blocks()

    def _take_delta(self, delta: Fields) -> None:
        delta.raw("role")
        for name in REASONING:
            at = delta.path(name)
            told = delta.raw(name)
            if told is not None:
                self._reason(content_text(told, at, self.notes), at)
        content = delta.raw("content")
        if content is not None:
            self.writer.text(content_text(content, delta.path("content"), self.notes))
        refusal = delta.text("refusal")
        if refusal:
            self.refused = True
            self.writer.text(refusal)
        for item in delta.items("tool_calls"):
            self._take_call(Fields(item, "choices[*].delta.tool_calls[*]", self.notes))
        old = delta.inner("function_call")
        if old is not None:
            self._take_function(old, self._place(0, ""))
        delta.note_rest(NOT_TOLD)

    def _take_call(self, call: Fields) -> None:
        call.raw("type")
        place = self._place(call.count("index"), call.text("id") or "")
        function = call.inner("function")
        if function is not None:
            self._take_function(function, place)
        call.note_rest(NOT_TOLD)

    def _place(self, index: int | None, foreign_id: str) -> int:
        """Which call is meant; a new one when its index, or else its id, is new."""
        if index is None:
            index = self._largest_index
        place = self._at_index.get(index)
        known = None if place is None else self._calls[place]
        if place is None or known is None or (foreign_id and known.id not in ("", foreign_id)):
            place = len(self._calls)
            if place >= MOST_CALLS:
                raise UnfollowableError("too many calls")
            self.writer.keep(foreign_id)
            self._calls.append(_Call(foreign_id))
            self._nameless += 1
            self._largest_index = max(index, self._largest_index) if self._at_index else index
            self._at_index[index] = place
        elif foreign_id and not known.id and not self.writer.knows(place):
            self.writer.keep(foreign_id)
            known.id = foreign_id
        return place

    def _take_function(self, function: Fields, place: int) -> None:
        call = self._calls[place]
        name = function.text("name") or ""
        at = function.path("arguments")
        given = function.raw("arguments")
        piece = "" if given is None else written(given, at)
        function.note_rest(NOT_TOLD)
        if call.name and name not in ("", call.name):
            raise UnfollowableError("a call with two names")
        if name and not call.name:
            call.name = name
            self._nameless -= 1
        if not call.name:
            if piece:
                self.writer.keep(piece)
                call.early.append(piece)
            return
        if not self.writer.knows(place):
            self.writer.call(place, call.id, call.name)
            piece = "".join(call.early) + piece
            call.early.clear()
        self.writer.arguments(place, piece)

    def _demand_names(self) -> None:
        if self._nameless:
            raise UnfollowableError("a call without a name")

    def _done(self) -> None:
        if self._finish_reason is None:
            raise UnfollowableError("an end without a reason")
        reason = stop_reason(
            self._finish_reason, calls=self.writer.calls, refused=self.refused, notes=self.notes
        )
        if self._matched is not None and reason == "end_turn":
            self._finish("stop_sequence", self._matched)
        else:
            self._finish(reason)

    def _ended(self) -> None:
        # Some servers leave `[DONE]` out; with a finish reason nothing but the bill can be missing.
        if self._finish_reason is not None:
            self._done()
