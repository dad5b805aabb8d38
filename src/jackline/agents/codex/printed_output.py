"""Parse what `codex exec --json` prints, and judge the run.

Rules: (1) pure, and the same result however the bytes are cut; (2) an incomplete or unknown line is
skipped; (3) of the printed turns the last one counts; (4) a turn that did not complete is no
answer, and a completed turn without a last message is a truncation; (5) only `failures` interprets
texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from jackline.agents.process.program import (
    AnswerPart,
    Done,
    Failed,
    ProcessCost,
    ProcessExit,
    ProgramEvent,
    ProgramOutput,
    SessionOpened,
    Verdict,
)
from jackline.dialects.token_usage import TokenUsage
from jackline.failures import Kind, Observation, Where
from jackline.transcripts.records import decode
from jackline.transcripts.saved_conversation import SavedConversation, TranscriptToolCall

_PROVIDER = "openai"
# What Codex does between two messages of its model; thoughts and plans call nothing.
_CALLS = frozenset(
    {"command_execution", "file_change", "mcp_tool_call", "web_search", "collab_tool_call"}
)


class _Item(msgspec.Struct):
    id: str = ""
    type: str = ""
    text: str | None = None


class _TurnError(msgspec.Struct):
    message: str | None = None


class _Event(msgspec.Struct):
    type: str = ""
    thread_id: str | None = None
    item: _Item | None = None
    error: _TurnError | None = None
    message: str | None = None


_EVENTS = msgspec.json.Decoder(_Event)


class CodexOutput(ProgramOutput):
    """The state of one run, from what it has printed so far.

    `before` is what the thread held when the process was started; `read` reads a thread anew.
    """

    def __init__(
        self,
        model: str,
        *,
        schema: bool = False,
        before: SavedConversation | None = None,
        read: Callable[[str], SavedConversation | None] = lambda _thread: None,
    ) -> None:
        super().__init__()
        self._schema = schema
        self._read_thread = read
        tokens = {} if before is None else before.tokens
        self.counted = tokens.get("", TokenUsage())
        self._model = model or (before and before.model) or ""
        self._thread_id: str | None = None
        self._is_completed = False
        self._failure: str | None = None
        """The text with which the last turn failed."""
        self._last_error: str | None = None
        self._errors = 0
        self._message: str | None = None
        """The last message of the last turn."""

    def _read(self, line: bytes) -> Sequence[ProgramEvent]:
        event = decode(_EVENTS, line)
        if event is None:
            return ()
        if event.type == "thread.started" and event.thread_id is not None:
            self._thread_id = event.thread_id
            return (SessionOpened(event.thread_id, self._model or None),)
        if event.type == "turn.started":
            self._is_completed, self._failure, self._message = False, None, None
        elif event.type == "turn.completed":
            self._is_completed = True
        elif event.type == "turn.failed":
            self._is_completed = False
            self._failure = (event.error and event.error.message) or self._last_error or ""
        elif event.type == "error":
            self._errors += 1
            self._last_error = event.message or self._last_error
        elif event.item is not None:
            item = event.item
            if event.type == "item.completed" and item.type == "agent_message":
                self._message = item.text or ""
                return (AnswerPart(item.id, self._model, TokenUsage(), self._message),)
            if event.type == "item.started" and item.type in _CALLS:
                calls = (TranscriptToolCall("", item.type, ""),)
                return (AnswerPart(item.id, self._model, TokenUsage(), calls=calls),)
        return ()

    def judge(self, ended: ProcessExit, *, now: datetime) -> Verdict:
        """The run's verdict."""
        text = self._failure
        if text is None and not self._is_completed and ended.exit_code not in (0, None):
            text = self._last_error
        if text is not None:
            seen = Observation(Where.TRANSCRIPT, _PROVIDER, text=text)
        elif not self._is_completed:
            return ended.broken("Codex", "before its turn had ended")
        elif ended.exit_code != 0:
            return ended.broken("Codex", "after its turn had ended")
        elif self._message:
            return Done(self._message, self._document(self._message) if self._schema else None)
        else:
            seen = Observation.of_stream(b"", provider=_PROVIDER)
        verdict = Failed.of(seen, now, model=self._model, attempts=max(1, self._errors))
        if verdict.failure.kind is Kind.NOT_A_FAILURE:
            return ended.broken("Codex", "with an error that it did not explain")
        return verdict

    def cost(self) -> ProcessCost:
        """What this process cost, by its rollout: it is printed only of turns that completed."""
        now = None if self._thread_id is None else self._read_thread(self._thread_id)
        if now is None:
            return ProcessCost()
        total = now.tokens.get("", TokenUsage())
        usage = total - (self.counted or TokenUsage())
        return ProcessCost(((now.model or self._model, usage),), turns=now.answers)

    def _document(self, text: str) -> object:
        """The JSON document that a message is; None when it is none."""
        bare = text.strip()
        if bare.startswith("```"):
            bare = bare.partition("\n")[2].rpartition("```")[0]
        try:
            document: object = json.loads(bare)
        except ValueError:
            return None
        return document
