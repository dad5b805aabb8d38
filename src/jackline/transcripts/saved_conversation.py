"""Read the conversation that Claude Code or Codex saved of an agent, to resume from it.

Rules: (1) files are only read, and a half-written last line is skipped; (2) a tool call without a
result is lost: it may or may not have run; (3) the client writes late, so that its last output may
be missing; (4) a turn is finished when each of its calls has a result, and an API error is no turn;
(5) the tokens of every model call of Codex count, also of one whose turn was cut off.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from jackline.dialects.token_usage import TokenUsage
from jackline.errors import UnreadableError
from jackline.foreign_files import open_foreign
from jackline.transcripts.claude_code import ClaudeTranscript
from jackline.transcripts.codex import CALL_OUTPUTS, CALLS, ROLLOUT_LINES, CodexPayload, CodexUsage
from jackline.transcripts.conversation import SYNTHETIC
from jackline.transcripts.records import (
    LINES,
    LineReader,
    ModelUsage,
    TranscriptBlock,
    TranscriptLine,
    blocks_of,
    decode,
    text_of,
)
from jackline.transcripts.sources import ClientFolders
from jackline.transcripts.story import AgentStory, time_of_epoch

_SHOWN_INPUT = 600
_OBJECTS = msgspec.json.Decoder(dict[str, object])
_COSTS = msgspec.json.Decoder(float)
_MODEL_USAGES = msgspec.json.Decoder(dict[str, ModelUsage])
_CODEX_USAGES = msgspec.json.Decoder(CodexUsage)


@dataclass(frozen=True, slots=True)
class TranscriptToolCall:
    """A call of a tool, as the model made it."""

    id: str
    name: str
    input: dict[str, object] | str

    @classmethod
    def of(cls, block: TranscriptBlock) -> TranscriptToolCall:
        """The call that a block of Claude Code makes."""
        found = decode(_OBJECTS, block.input) if block.input else None
        return cls(block.id or "", block.name or "", found or {})

    @property
    def shown_input(self) -> str:
        """Its input, shortened."""
        whole = self.input
        if not isinstance(whole, str):
            whole = json.dumps(whole, ensure_ascii=False)
        return whole if len(whole) <= _SHOWN_INPUT else f"{whole[:_SHOWN_INPUT]}…"

    def __str__(self) -> str:
        # By its id it is recognised, should the agent be cut off once more.
        return f"{self.name} {self.shown_input} ({self.id})"


@dataclass(slots=True)
class SavedTurn:
    """What the agent said in one answer, and what it called."""

    text: str = ""
    calls: list[TranscriptToolCall] = field(default_factory=list)


@dataclass(slots=True)
class SavedConversation:
    """What one transcript holds of a conversation."""

    prompts: list[str] = field(default_factory=list)
    turns: dict[str, SavedTurn] = field(default_factory=dict)
    """By the answer's id; Codex saves none."""
    calls: dict[str, TranscriptToolCall] = field(default_factory=dict)
    """All calls by id, in their order."""
    results: dict[str, str] = field(default_factory=dict)
    """The text of each call's result; empty where only its presence was read."""
    model: str | None = None
    cwd: str | None = None
    cost: float = 0.0
    """What the session had cost, as Claude Code saved it."""
    tokens: dict[str, TokenUsage] = field(default_factory=dict)
    """By model, as the client saved them; Codex's are all under an empty name."""
    answers: int = 0

    @property
    def lost(self) -> tuple[TranscriptToolCall, ...]:
        """The calls without a result."""
        return tuple(call for name, call in self.calls.items() if name not in self.results)

    def add_line(self, line: TranscriptLine, *, with_results: bool) -> None:
        """Add a line of Claude Code."""
        if line.type == "cost-state":
            usage = decode(_MODEL_USAGES, line.model_usage) if line.model_usage else None
            self.tokens = {model: each.tokens for model, each in (usage or {}).items()}
            self.cost = (decode(_COSTS, line.total_cost) if line.total_cost else None) or 0.0
        message = line.message
        if message is None:
            return
        if line.type == "user":
            for block in blocks_of(message.content):
                if block.type == "tool_result" and block.tool_use_id is not None:
                    text = text_of(block.content) if with_results else ""
                    self.results[block.tool_use_id] = text
                elif block.text and not line.is_meta:
                    self.prompts.append(block.text)
        elif line.type == "assistant" and message.model != SYNTHETIC:
            self.answers += 1
            if line.is_api_error_message:
                return
            # The client writes a line for each block of an answer.
            turn = self.turns.setdefault(message.id or f"no id, {len(self.turns)}", SavedTurn())
            for block in blocks_of(message.content):
                if block.type == "tool_use" and block.id is not None:
                    call = self.calls[block.id] = TranscriptToolCall.of(block)
                    turn.calls.append(call)
                elif block.text:
                    turn.text = f"{turn.text}\n{block.text}".lstrip("\n")

    def add_payload(self, kind: str, payload: CodexPayload) -> None:
        """Add a line of Codex."""
        self.cwd = self.cwd or payload.cwd
        if kind == "turn_context":
            self.model = payload.model or self.model
        elif kind == "token_usage_record" and payload.usage:
            used = decode(_CODEX_USAGES, payload.usage)
            if used is not None:
                self.tokens[""] = self.tokens.get("", TokenUsage()) + used.tokens
                self.answers += 1
        elif kind == "response_item" and payload.call_id is not None:
            if payload.type in CALLS:
                sent = payload.arguments or payload.input or ""
                self.calls[payload.call_id] = TranscriptToolCall(
                    payload.call_id,
                    str(payload.name or ""),
                    sent if isinstance(sent, str) else "",
                )
            elif payload.type in CALL_OUTPUTS:
                self.results[payload.call_id] = ""
        elif kind == "response_item" and payload.role == "user":
            self.prompts.append(text_of(payload.content))


def read_claude_session(path: Path) -> SavedConversation:
    """What a session's own transcript holds; nothing of its sub-agents."""
    conversation = SavedConversation()
    # It may be gone by now, or not ours to read: then nothing is known of it.
    with suppress(OSError), open_foreign(path) as file:
        for line in LineReader(file):
            record = decode(LINES, line)
            if record is not None and not record.is_sidechain:
                conversation.add_line(record, with_results=False)
    return conversation


def read_codex_thread(path: Path) -> SavedConversation:
    """What a thread's own rollout holds."""
    conversation = SavedConversation()
    with suppress(OSError), open_foreign(path) as file:
        for line in LineReader(file):
            record = decode(ROLLOUT_LINES, line)
            if record is not None and record.payload is not None:
                conversation.add_payload(record.type, record.payload)
    return conversation


def folder_of_thread(thread_id: str, environment: Mapping[str, str]) -> str | None:
    """Where this thread of Codex was begun, by its rollout; None when that does not say it."""
    path = ClientFolders.of_process(environment).codex_rollout(thread_id)
    return None if path is None else read_codex_thread(path).cwd


@dataclass(frozen=True, slots=True)
class DeadAgent:
    """A sub-agent of Claude Code as its transcript leaves it."""

    agent_id: str
    session_id: str
    prompt: str
    turns: tuple[SavedTurn, ...]
    """The finished ones."""
    results: dict[str, str]
    """The text of each call's result, by the call's id."""
    lost: tuple[TranscriptToolCall, ...]
    """Calls that may or may not have run."""
    last_words: str
    story: AgentStory
    """How it ended: its failures, its model, its folder."""


def read_dead_agent(path: Path) -> DeadAgent:
    """A sub-agent from its own transcript, `agent-<id>.jsonl`."""
    conversation = SavedConversation()
    try:
        written = time_of_epoch(path.stat().st_mtime) or datetime.now(UTC)
        with open_foreign(path) as file:
            found = ClaudeTranscript(path, LineReader(file), written).read()
        with open_foreign(path) as file:
            for line in LineReader(file):
                record = decode(LINES, line)
                if record is not None:
                    conversation.add_line(record, with_results=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UnreadableError(
            f"the transcript {path} cannot be read: {reason}", hint="check the path"
        ) from error
    if not found.stories:
        raise UnreadableError(
            f"there is no conversation in {path}", hint="start the agent anew with its prompt"
        )
    results, turns = conversation.results, conversation.turns.values()
    finished = tuple(turn for turn in turns if all(call.id in results for call in turn.calls))
    return DeadAgent(
        path.stem.removeprefix("agent-"),
        found.stories[0].session_id,
        next(iter(conversation.prompts), ""),
        finished,
        results,
        conversation.lost,
        next((turn.text for turn in reversed(finished) if turn.text), ""),
        found.stories[0],
    )
