"""Write the turns of a conversation as input items of OpenAI's Responses.

Laws: (1) items stand in the order in which things were said; (2) thoughts are told only to servers
that take reasoning which they did not make, encrypted ones only to the server that made them.
Not here: the fields around the items (request.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jackline.dialects.neutral.account import CannotSayError, Notes
from jackline.dialects.neutral.conversation import (
    Paper,
    Part,
    Picture,
    Shown,
    Thought,
    ToolCall,
    ToolResult,
    Turn,
    Words,
)
from jackline.dialects.neutral.ids import call_id, digest
from jackline.dialects.neutral.options import Target
from jackline.dialects.neutral.tools import FAILED, ToolNames

_LONGEST_ID = 64

_Json = dict[str, object]


class InputItems:
    """Takes turns and gives items."""

    def __init__(self, target: Target, notes: Notes, names: ToolNames) -> None:
        self._target = target
        self._notes = notes
        self._names = names
        self.said: list[_Json | msgspec.Raw] = []

    def say(self, turn: Turn) -> None:
        """The next turn."""
        role: str = turn.role
        if turn.role == "system":
            role = self._target.system_role
            if self._target.mid_system == "user":
                role = "user"
                self._notes.add(
                    f"{turn.at}.role", "told as the user's words, as the settings want it"
                )
        together: list[Shown] = []
        thoughts = self._thoughts_before(turn.parts)
        for place, part in enumerate(turn.parts):
            self.said += thoughts.get(place, ())
            if isinstance(part, Words | Picture | Paper) and turn.role != "assistant":
                together.append(part)
                continue
            self._say_shown(role, together)
            together = []
            self._say_item(part)
        self._say_shown(role, together)

    def _thoughts_before(self, parts: Sequence[Part]) -> dict[int, list[msgspec.Raw]]:
        """What this server thought before each of the parts, where that is still known."""
        found: dict[int, list[msgspec.Raw]] = {}
        recall = self._target.recall
        for place, part in enumerate(parts):
            if recall is None or not isinstance(part, ToolCall):
                continue
            for kept in recall(part.id):
                at = place
                while kept.before_words and at > 0 and isinstance(parts[at - 1], Words):
                    at -= 1
                found.setdefault(at, []).append(kept.item)
        return found

    def _say_shown(self, role: str, shown: Sequence[Shown]) -> None:
        if shown:
            content = [self._content(part) for part in shown]
            self.said.append({"type": "message", "role": role, "content": content})

    def _say_item(self, part: Part) -> None:
        match part:
            case Words():
                self.said.append({"type": "message", "role": "assistant", "content": part.text})
            case ToolCall():
                self.said.append(
                    {
                        "type": "function_call",
                        "call_id": self._id(part.id, f"{part.at}.id"),
                        "name": self._names.of(part.name, f"{part.at}.name"),
                        "arguments": part.arguments,
                    }
                )
            case ToolResult():
                self._say_result(part)
            case Thought():
                self._say_thought(part)
            case _:
                raise CannotSayError(part.at, "the assistant can only say words and call tools")

    def _say_result(self, result: ToolResult) -> None:
        parts = result.parts
        if result.failed:
            self._notes.add(f"{result.at}.is_error", "told in words in front of the result")
            parts = (Words(result.at, FAILED), *parts)
        words = [part.text for part in parts if isinstance(part, Words)]
        output: object = "\n\n".join(words)
        if len(words) < len(parts):
            # Not all servers read a list here, so it is written only where it says more.
            output = [self._content(part) for part in parts]
        sent = self._id(result.id, f"{result.at}.tool_use_id")
        self.said.append({"type": "function_call_output", "call_id": sent, "output": output})

    def _say_thought(self, thought: Thought) -> None:
        if not self._target.reasoning_items:
            self._notes.add(thought.at, "thoughts of another model are not told")
            return
        content = [{"type": "reasoning_text", "text": thought.text}]
        name = f"rs_{digest(thought.at, thought.text)}"
        self.said.append({"type": "reasoning", "id": name, "summary": [], "content": content})

    def _content(self, part: Shown) -> _Json:
        match part:
            case Words():
                return {"type": "input_text", "text": part.text}
            case Picture():
                if not self._target.images:
                    raise CannotSayError(part.at, "this model takes no images")
                return {"type": "input_image", "image_url": part.url, "detail": "auto"}
            case Paper():
                if not self._target.files:
                    raise CannotSayError(part.at, "a document that cannot be told here")
                if part.inline:
                    return {"type": "input_file", "filename": part.name, "file_data": part.url}
                if part.title:
                    self._notes.add(f"{part.at}.title", "a file by its address has no name here")
                return {"type": "input_file", "file_url": part.url}

    def _id(self, known: str, at: str) -> str:
        sent = call_id(known, _LONGEST_ID)
        if sent != known:
            self._notes.add(at, "longer than OpenAI allows; told as a digest")
        return sent
