"""Fold what `codex exec --json` prints into the state of one run.

Laws: (1) pure, and the same however the bytes are cut; (2) a line that is not whole, or makes no
sense, tells nothing; (3) the last turn counts.
Not here: what the state amounts to (judging.py), rollouts (rollout.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from jackline.agents.outcome import Usage
from jackline.agents.process.going_on import ToolCall
from jackline.agents.process.lines import LineCutter
from jackline.agents.process.program import Answered, Began, News
from jackline.autopsy.records import decode

# What Codex does between two words of its model; thoughts and plans call nothing.
_CALLS = frozenset(
    {"command_execution", "file_change", "mcp_tool_call", "web_search", "collab_tool_call"}
)


class Item(msgspec.Struct):
    """One thing that was said or done."""

    id: str = ""
    type: str = ""
    text: str | None = None


class TurnUsage(msgspec.Struct):
    """What the thread has cost so far."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    output_tokens: int = 0

    @property
    def usage(self) -> Usage:
        """The same in our words: what was cached is not counted again as input."""
        return Usage(
            max(0, self.input_tokens - self.cached_input_tokens),
            self.output_tokens,
            self.cached_input_tokens,
            self.cache_write_input_tokens,
        )


class ErrorWords(msgspec.Struct):
    """An error, as far as it is told."""

    message: str | None = None


class Event(msgspec.Struct):
    """One printed line."""

    type: str = ""
    thread_id: str | None = None
    item: Item | None = None
    usage: TurnUsage | None = None
    error: ErrorWords | None = None
    message: str | None = None


_EVENTS = msgspec.json.Decoder(Event)


@dataclass(slots=True)
class Printed:
    """The state of one run, from what it has printed so far."""

    model: str
    thread_id: str | None = None
    completed: bool = False
    """Whether the last turn ran to its end."""
    failed: str | None = None
    """The words with which the last turn failed."""
    last_error: str | None = None
    errors: int = 0
    last_words: str | None = None
    """The last message of the last turn."""
    usage: Usage | None = None
    _lines: LineCutter = field(default_factory=LineCutter)

    def feed(self, data: bytes) -> list[News]:
        """What the next bytes tell."""
        news: list[News] = []
        for line in self._lines.feed(data):
            event = decode(_EVENTS, line)
            if event is not None:
                news += self._take(event)
        return news

    def _take(self, event: Event) -> Sequence[News]:
        if event.type == "thread.started" and event.thread_id is not None:
            self.thread_id = event.thread_id
            return (Began(event.thread_id, self.model or None),)
        if event.type == "turn.started":
            self.completed, self.failed, self.last_words = False, None, None
        elif event.type == "turn.completed":
            self.completed = True
            self.usage = None if event.usage is None else event.usage.usage
        elif event.type == "turn.failed":
            self.completed = False
            self.failed = (event.error and event.error.message) or self.last_error or ""
        elif event.type == "error":
            self.errors += 1
            self.last_error = event.message or self.last_error
        elif event.item is not None:
            return self._take_item(event.type, event.item)
        return ()

    def _take_item(self, kind: str, item: Item) -> Sequence[News]:
        if kind == "item.completed" and item.type == "agent_message":
            self.last_words = item.text or ""
            return (Answered(item.id, self.model, Usage(), self.last_words),)
        if kind == "item.started" and item.type in _CALLS:
            return (Answered(item.id, self.model, Usage(), calls=(ToolCall("", item.type, ""),)),)
        return ()
