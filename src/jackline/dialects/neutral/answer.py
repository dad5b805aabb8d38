"""Write a whole foreign answer as Anthropic's message.

Laws: (1) text and calls stand in the order in which they were told; (2) arguments that are no JSON
object are given under the key that Anthropic's guide names for them, never repaired; (3) no
thinking block is written, because nobody here can sign one; (4) an answer has at most 1,000 calls.
Not here: reading the foreign answer (openai_chat/answer.py, openai_responses/answer.py).
"""

from __future__ import annotations

import msgspec

from jackline.dialects.neutral.account import UNREADABLE, CannotSayError, Notes, Translated
from jackline.dialects.neutral.ids import ToolIds
from jackline.dialects.neutral.options import AnswerAs
from jackline.dialects.neutral.reasoning import ReasoningBinder
from jackline.dialects.neutral.usage import told_usage
from jackline.dialects.tokens_used import TokensUsed

MOST_CALLS = 1_000
"""Of one answer. Models make a handful at once, seldom some dozens."""
INVALID = "INVALID_JSON"
NO_REASONING = "reasoning of another model is not told, because it has no signature of Claude's"
NOT_TOLD = "has no counterpart in Anthropic's answers"

# Checks a value without building it.
_value = msgspec.json.Decoder(msgspec.Raw)
_BLANK = " \t\r\n"


class MessageBuilder:
    """Collects one answer."""

    def __init__(self, message_id: str, face: AnswerAs, notes: Notes) -> None:
        self._id = message_id
        self._face = face
        self._notes = notes
        self._ids = ToolIds(message_id)
        self._content: list[dict[str, object]] = []
        self.thoughts = ReasoningBinder(face.remember)
        self._calls = 0
        self.refused = False

    @property
    def calls(self) -> bool:
        """Whether a tool was called."""
        return self._calls > 0

    def text(self, words: str) -> None:
        """Plain words."""
        if words:
            self.thoughts.words()
            self._content.append({"type": "text", "text": words})

    def refusal(self, words: str) -> None:
        """Words by which the model declines."""
        self.refused = True
        self.text(words)

    def reasoning(self, words: str, at: str) -> None:
        """What the model thought."""
        if self._face.show_reasoning:
            self.text(words)
        elif words:
            self._notes.add(at, NO_REASONING)

    def call(self, foreign_id: str, name: str, arguments: str, at: str) -> None:
        """A tool call."""
        self._calls += 1
        if self._calls > MOST_CALLS:
            raise CannotSayError(at, f"is one of more than {MOST_CALLS:,} calls")
        own = self._ids.of(foreign_id)
        self.thoughts.call(own)
        self._content.append(
            {
                "type": "tool_use",
                "id": own,
                "name": self._face.tool_names.get(name, name),
                "input": self._input(arguments, at),
            }
        )

    def _input(self, arguments: str, at: str) -> object:
        if not arguments.strip():
            return {}
        if is_object(arguments):
            return msgspec.Raw(arguments.encode())
        self._notes.add(at, f"the model wrote no JSON object; what it wrote is under {INVALID}")
        return {INVALID: arguments}

    def done(self, reason: str, sequence: str | None, usage: TokensUsed) -> Translated:
        """The message."""
        message = {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._face.model,
            "content": self._content,
            "stop_reason": reason,
            "stop_sequence": sequence,
            "usage": told_usage(usage),
        }
        return Translated(msgspec.json.encode(message), self._notes.told())


def is_object(arguments: str) -> bool:
    """Whether arguments are one whole JSON object; however many values it has, none is built."""
    try:
        _value.decode(arguments)
    except UNREADABLE:
        return False
    return arguments.lstrip(_BLANK).startswith("{")
