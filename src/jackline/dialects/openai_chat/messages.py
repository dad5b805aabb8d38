"""Write the turns of a conversation as chat messages.

Laws: (1) the results of calls stand directly behind the message that made them; what was said
before they were there follows them; (2) a result that is an image is told as a result in words and
as an image of the user right after; (3) what moved or became words is noted.
Not here: the fields around the messages (request.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jackline.dialects.neutral.account import CannotSayError, Notes
from jackline.dialects.neutral.conversation import (
    Paper,
    Picture,
    Shown,
    Thought,
    ToolCall,
    ToolResult,
    Turn,
    Words,
)
from jackline.dialects.neutral.ids import call_id
from jackline.dialects.neutral.options import Target
from jackline.dialects.neutral.tools import FAILED, ToolNames

_LONGEST_ID = 40
_BETWEEN = "\n\n"
_IMAGE_FOLLOWS = "The result holds what only a user can show here; it follows as a message."
_IMAGE_FROM = "From the result of the tool call {id}:"

_Json = dict[str, object]


class ChatMessages:
    """Takes turns and gives messages."""

    def __init__(self, target: Target, notes: Notes, names: ToolNames) -> None:
        self._target = target
        self._notes = notes
        self._names = names
        self._said: list[_Json] = []
        # Calls without a result so far, and what has to wait for those results.
        self._owed: set[str] = set()
        self._waiting: list[_Json] = []

    def done(self) -> list[_Json]:
        """All messages in order."""
        return [*self._said, *self._waiting]

    def say_system(self, system: Sequence[Words]) -> None:
        """What stands above the conversation."""
        if system:
            self._add({"role": self._target.system_role, "content": _joined(system)}, "system")

    def say(self, turn: Turn) -> None:
        """The next turn."""
        match turn.role:
            case "assistant":
                self._say_assistant(turn)
            case "system":
                self._say_mid_system(turn)
            case "user":
                self._say_user(turn)

    def _say_mid_system(self, turn: Turn) -> None:
        role: str = self._target.system_role
        if self._target.mid_system == "user":
            role = "user"
            self._notes.add(f"{turn.at}.role", "told as the user's words, as the settings want it")
        self._add({"role": role, "content": _joined(_only_words(turn.parts))}, turn.at)

    def _say_assistant(self, turn: Turn) -> None:
        self._flush()
        words = [part for part in turn.parts if isinstance(part, Words)]
        calls = [part for part in turn.parts if isinstance(part, ToolCall)]
        message: _Json = {"role": "assistant", "content": _joined(words) or None}
        self._keep_thoughts(turn, message)
        if calls:
            first = turn.parts.index(calls[0])
            for late in turn.parts[first:]:
                if isinstance(late, Words):
                    self._notes.add(late.at, "told in front of the tool calls, not behind them")
            message["tool_calls"] = [self._call(call) for call in calls]
            self._owed = {self._id(call.id, f"{call.at}.id") for call in calls}
        elif not words:
            message["content"] = ""
        self._said.append(message)

    def _keep_thoughts(self, turn: Turn, message: _Json) -> None:
        thoughts = [part for part in turn.parts if isinstance(part, Thought)]
        field = self._target.reasoning_field
        if thoughts and field is not None:
            message[field] = _BETWEEN.join(thought.text for thought in thoughts)
            return
        for thought in thoughts:
            self._notes.add(thought.at, "thoughts of another model are not told")

    def _call(self, call: ToolCall) -> _Json:
        return {
            "id": self._id(call.id, f"{call.at}.id"),
            "type": "function",
            "function": {
                "name": self._names.of(call.name, f"{call.at}.name"),
                "arguments": call.arguments,
            },
        }

    def _say_user(self, turn: Turn) -> None:
        shown: list[Shown] = []
        moved: list[Shown] = []
        noted = 0
        for part in turn.parts:
            if isinstance(part, ToolResult):
                for early in shown[noted:]:
                    self._notes.add(early.at, "told behind the results of tools")
                noted = len(shown)
                moved += self._say_result(part)
            elif isinstance(part, Words | Picture | Paper):
                shown.append(part)
        if not self._owed:
            self._flush()
        self._say_shown([*moved, *shown], turn.at)

    def _say_result(self, result: ToolResult) -> list[Shown]:
        """Write the words of a result; what is no words is given back."""
        words = [part for part in result.parts if isinstance(part, Words)]
        others: list[Shown] = [part for part in result.parts if not isinstance(part, Words)]
        lines = [FAILED] if result.failed else []
        if result.failed:
            self._notes.add(f"{result.at}.is_error", "told in words in front of the result")
        lines += [part.text for part in words]
        sent = self._id(result.id, f"{result.at}.tool_use_id")
        if others:
            lines.append(_IMAGE_FOLLOWS)
            for part in others:
                self._notes.add(part.at, "a tool cannot return it here; the user shows it instead")
            others = [Words(result.at, _IMAGE_FROM.format(id=sent)), *others]
        self._said.append({"role": "tool", "tool_call_id": sent, "content": _BETWEEN.join(lines)})
        self._owed.discard(sent)
        return others

    def _say_shown(self, shown: Sequence[Shown], at: str) -> None:
        if not shown:
            return
        if all(isinstance(part, Words) for part in shown):
            self._add({"role": "user", "content": _joined(_only_words(shown))}, at)
        else:
            self._add({"role": "user", "content": [self._content(part) for part in shown]}, at)

    def _content(self, part: Shown) -> _Json:
        match part:
            case Words():
                return {"type": "text", "text": part.text}
            case Picture():
                if not self._target.images:
                    raise CannotSayError(part.at, "this model takes no images")
                return {"type": "image_url", "image_url": {"url": part.url}}
            case Paper():
                if not self._target.files or not part.inline:
                    raise CannotSayError(part.at, "a document that cannot be told here")
                return {"type": "file", "file": {"filename": part.name, "file_data": part.url}}

    def _id(self, known: str, at: str) -> str:
        sent = call_id(known, _LONGEST_ID)
        if sent != known:
            self._notes.add(at, "longer than OpenAI allows; told as a digest")
        return sent

    def _add(self, message: _Json, at: str) -> None:
        if self._owed:
            self._notes.add(at, "told behind the results of tools")
            self._waiting.append(message)
        else:
            self._said.append(message)

    def _flush(self) -> None:
        self._said += self._waiting
        self._waiting = []
        self._owed = set()


def _only_words(parts: Iterable[object]) -> list[Words]:
    return [part for part in parts if isinstance(part, Words)]


def _joined(words: Iterable[Words]) -> str:
    return _BETWEEN.join(word.text for word in words)
