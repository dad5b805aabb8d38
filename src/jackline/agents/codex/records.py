"""Parse what `codex exec --json` prints, and the rollout file that Codex saves of a thread.

Rules: (1) parsing is pure, and the same result however the bytes are cut; (2) an incomplete or
unknown line is skipped; (3) of the printed turns the last one counts; (4) rollout files are only
read; (5) a call without an output after it is lost: it may or may not have run; (6) the tokens of
every model call count, also of one whose turn was cut off.
Not here: the verdict on a run (runner.py), why a thread ended (autopsy/).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from jackline.agents.outcome import TokenUsage
from jackline.agents.process.program import AnswerPart, LineCutter, ProgramEvent, SessionOpened
from jackline.agents.process.resume import ProgramToolCall
from jackline.foreign_files import open_foreign
from jackline.transcripts.codex import CALL_OUTPUTS, CALLS, ROLLOUT_LINES, CodexPayload
from jackline.transcripts.records import LineReader, decode, text_of
from jackline.transcripts.sources import ClientFolders

# What Codex does between two words of its model; thoughts and plans call nothing.
_CALLS = frozenset(
    {"command_execution", "file_change", "mcp_tool_call", "web_search", "collab_tool_call"}
)


class CodexItem(msgspec.Struct):
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
    def usage(self) -> TokenUsage:
        """The same in our words: what was cached is not counted again as input."""
        return TokenUsage(
            max(0, self.input_tokens - self.cached_input_tokens),
            self.output_tokens,
            self.cached_input_tokens,
            self.cache_write_input_tokens,
        )


class ErrorWords(msgspec.Struct):
    """An error, as far as it is told."""

    message: str | None = None


class CodexEvent(msgspec.Struct):
    """One printed line."""

    type: str = ""
    thread_id: str | None = None
    item: CodexItem | None = None
    usage: TurnUsage | None = None
    error: ErrorWords | None = None
    message: str | None = None


_EVENTS = msgspec.json.Decoder(CodexEvent)


@dataclass(slots=True)
class CodexOutput:
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
    usage: TokenUsage | None = None
    _lines: LineCutter = field(default_factory=LineCutter)

    def feed(self, data: bytes) -> list[ProgramEvent]:
        """What the next bytes tell."""
        news: list[ProgramEvent] = []
        for line in self._lines.feed(data):
            event = decode(_EVENTS, line)
            if event is not None:
                news += self._take(event)
        return news

    def _take(self, event: CodexEvent) -> Sequence[ProgramEvent]:
        if event.type == "thread.started" and event.thread_id is not None:
            self.thread_id = event.thread_id
            return (SessionOpened(event.thread_id, self.model or None),)
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

    def _take_item(self, kind: str, item: CodexItem) -> Sequence[ProgramEvent]:
        if kind == "item.completed" and item.type == "agent_message":
            self.last_words = item.text or ""
            return (AnswerPart(item.id, self.model, TokenUsage(), self.last_words),)
        if kind == "item.started" and item.type in _CALLS:
            return (
                AnswerPart(
                    item.id, self.model, TokenUsage(), calls=(ProgramToolCall("", item.type, ""),)
                ),
            )
        return ()


_USAGES = msgspec.json.Decoder(TurnUsage)


@dataclass(slots=True)
class Rollout:
    """What stands in one rollout."""

    prompts: list[str] = field(default_factory=list)
    calls: dict[str, ProgramToolCall] = field(default_factory=dict)
    """Those without an output, in their order."""
    model: str | None = None
    cwd: str | None = None
    usage: TokenUsage = field(default_factory=TokenUsage)
    answers: int = 0


def codex_home(environment: Mapping[str, str]) -> Path:
    """Where Codex keeps its records for a process with this environment."""
    return ClientFolders.of_process(environment).codex


def rollout_of(thread_id: str, environment: Mapping[str, str]) -> Path | None:
    """The rollout of this thread; None when there is none."""
    return ClientFolders.of_process(environment).codex_rollout(thread_id)


def folder_of_thread(thread_id: str, environment: Mapping[str, str]) -> str | None:
    """Where this thread was begun, by its rollout; None when that does not tell."""
    path = rollout_of(thread_id, environment)
    return None if path is None else read_rollout(path).cwd


def read_rollout(path: Path) -> Rollout:
    """What a thread's own rollout holds."""
    rollout = Rollout()
    # It may be gone by now, or not ours to read: then nothing is known of it.
    with suppress(OSError), open_foreign(path) as file:
        for line in LineReader(file):
            record = decode(ROLLOUT_LINES, line)
            if record is not None and record.payload is not None:
                _keep(rollout, record.type, record.payload)
    return rollout


def _keep(rollout: Rollout, kind: str, payload: CodexPayload) -> None:
    rollout.cwd = rollout.cwd or payload.cwd
    if kind == "turn_context":
        rollout.model = payload.model or rollout.model
    elif kind == "token_usage_record" and payload.usage:
        used = decode(_USAGES, payload.usage)
        if used is not None:
            rollout.usage = rollout.usage + used.usage
            rollout.answers += 1
    elif kind == "response_item" and payload.call_id is not None:
        if payload.type in CALLS:
            given = payload.arguments or payload.input or ""
            rollout.calls[payload.call_id] = ProgramToolCall(
                payload.call_id, str(payload.name or ""), given if isinstance(given, str) else ""
            )
        elif payload.type in CALL_OUTPUTS:
            rollout.calls.pop(payload.call_id, None)
    elif kind == "response_item" and payload.role == "user":
        rollout.prompts.append(text_of(payload.content))
