"""Follow a foreign stream event by event and turn it into Anthropic's: what both dialects share.

Laws: (1) how the bytes were cut changes nothing; (2) nothing fed here raises: a stream that cannot
be followed ends with an error event; (3) a stream that was cut off never gets a message_stop;
(4) an event that gives nothing to tell, as reasoning does, is told as a ping: the other side lives;
(5) an event of more values than an answer has is not decoded, and a stream of more objects than its
length can mean is not followed.
Not here: what the events of one dialect mean (openai_chat/stream.py, openai_responses/stream.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from jackline.dialects.json_bounds import has_too_many_values
from jackline.dialects.neutral.account import UNREADABLE, Notes
from jackline.dialects.neutral.answer import NO_REASONING
from jackline.dialects.neutral.foreign_error import error_of
from jackline.dialects.neutral.message_writer import MessageWriter, UnfollowableError
from jackline.dialects.neutral.options import AnswerAs
from jackline.dialects.sse import EventSplitter, name_and_data
from jackline.dialects.tokens_used import TokensUsed

# So many objects may be small; beyond, a stream whose objects have a few bytes each is not
# followed. Those of real chunks have some dozens.
_SMALL_OBJECTS = 4096
_LEAST_OBJECT = 16
# In one event, which is read in one go; a whole answer in one chunk has some hundreds.
_MOST_IN_EVENT = 20_000
_UNREADABLE_STREAM = {
    "type": "api_error",
    # In the words by which a garbled stream is known, since it may come whole the next time.
    "message": "error decoding response body: the other side's stream could not be followed",
}


class StreamTranslator(ABC):
    """Bytes of a foreign stream in, bytes of Anthropic's stream out."""

    def __init__(self, face: AnswerAs) -> None:
        self.face = face
        self.notes = Notes(_SMALL_OBJECTS)
        self.usage = TokensUsed()
        # message_stop has been written.
        self.whole = False
        # An error event has been written; nothing follows.
        self.broken = False
        self.refused = False
        self.writer = MessageWriter(face)
        self._splitter = EventSplitter()

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes, and give the events that they complete."""
        if self.writer.over:
            return b""
        try:
            for event in self._splitter.feed(data):
                self._follow(event)
        except UNREADABLE:
            self._break(_UNREADABLE_STREAM)
        return self.writer.taken()

    def end(self) -> bytes:
        """The foreign stream has ended in order; give what can still be said."""
        if not self.writer.over:
            self._ended()
        return self.writer.taken()

    def _follow(self, event: bytes) -> None:
        if self.writer.over:
            return
        said = self.writer.length
        name, told = name_and_data(event)
        if told:
            if has_too_many_values(told):
                raise UnfollowableError("too many values in an event")
            self.notes.allow_objects(len(event) // _LEAST_OBJECT, _MOST_IN_EVENT)
            self._take(name, told)
        if self.writer.length == said:
            self.writer.show_life()

    @abstractmethod
    def _take(self, name: bytes, data: bytes) -> None:
        """One event of the dialect."""

    @abstractmethod
    def _ended(self) -> None:
        """The bytes have ended in order."""

    def _reason(self, words: str, at: str) -> None:
        if not words:
            return
        if self.face.show_reasoning:
            self.writer.text(words)
        else:
            self.notes.add(at, NO_REASONING)

    def _finish(self, reason: str, sequence: str | None = None) -> None:
        self.writer.end(reason, sequence, self.usage)
        self.whole = True
        for _ in range(self.writer.malformed):
            self.notes.add("arguments", "the model wrote no JSON object; told as it wrote it")

    def _fail(self, data: bytes) -> None:
        """The other side has told an error."""
        self._break(error_of(500, data))

    def _break(self, error: dict[str, str]) -> None:
        self.writer.fail(error)
        self.broken = True
