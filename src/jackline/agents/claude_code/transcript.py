"""Read the transcript that Claude Code saves of a session or sub-agent, to resume from it.

Rules: (1) files are only read, and a half-written last line is skipped; (2) a tool call without a
result is lost: it may or may not have run; (3) the client writes late, so that its last output may
be missing; (4) a turn is finished when each of its calls has a result, and an API error is no turn.
Not here: why an agent died (autopsy/), how another agent resumes from it (mcp_server/).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from jackline.agents.claude_code.printed_output import ModelUsage, call_of
from jackline.agents.outcome import TokenUsage
from jackline.agents.process.resume import ProgramToolCall
from jackline.errors import UnreadableError
from jackline.foreign_files import open_foreign
from jackline.transcripts.claude_code import read_transcript
from jackline.transcripts.conversation import SYNTHETIC
from jackline.transcripts.records import (
    LINES,
    LineReader,
    TranscriptBlock,
    TranscriptLine,
    TranscriptMessage,
    blocks_of,
    decode,
    text_of,
)
from jackline.transcripts.sources import ClientFolders
from jackline.transcripts.story import AgentStory, time_of_epoch

_COSTS = msgspec.json.Decoder(float)
_MODEL_USAGES = msgspec.json.Decoder(dict[str, ModelUsage])


@dataclass(frozen=True, slots=True)
class CostState:
    """What the client has written down that a session had cost so far."""

    cost: float = 0.0
    usage: Mapping[str, TokenUsage] = field(default_factory=dict)


@dataclass(slots=True)
class SessionContent:
    """What stands in one transcript."""

    prompts: list[str] = field(default_factory=list)
    calls: dict[str, ProgramToolCall] = field(default_factory=dict)
    """Those without a result, in their order."""
    settled: set[str] = field(default_factory=set)
    """The calls whose results it holds."""
    answers: int = 0
    cost: CostState = field(default_factory=CostState)


def config_folder(environment: Mapping[str, str]) -> Path:
    """Where Claude Code keeps its records for a process with this environment."""
    return ClientFolders.of_process(environment).claude


def transcript_of(session_id: str, environment: Mapping[str, str]) -> Path | None:
    """The transcript of this session; None when there is none."""
    return ClientFolders.of_process(environment).claude_transcript(session_id)


def read_session(path: Path) -> SessionContent:
    """What a session's own transcript holds; nothing of its sub-agents."""
    session = SessionContent()
    # It may be gone by now, or not ours to read: then nothing is known of it.
    with suppress(OSError), open_foreign(path) as file:
        for line in LineReader(file):
            record = decode(LINES, line)
            if record is not None:
                _keep(session, record)
    return session


def _keep(session: SessionContent, record: TranscriptLine) -> None:
    if record.type == "cost-state":
        told = decode(_MODEL_USAGES, record.model_usage) if record.model_usage else None
        usage = {model: each.usage for model, each in (told or {}).items()}
        cost = decode(_COSTS, record.total_cost) if record.total_cost else None
        session.cost = CostState(cost or 0.0, usage)
    message = record.message
    if message is None or record.is_sidechain:
        return
    blocks = blocks_of(message.content)
    if record.type == "assistant" and message.model != SYNTHETIC:
        session.answers += 1
        for block in blocks:
            if block.type == "tool_use" and block.id is not None:
                session.calls[block.id] = call_of(block)
    elif record.type == "user":
        for block in blocks:
            if block.type == "tool_result" and block.tool_use_id is not None:
                session.calls.pop(block.tool_use_id, None)
                session.settled.add(block.tool_use_id)
            elif block.text and not record.is_meta:
                session.prompts.append(block.text)


@dataclass(slots=True)
class AgentTurn:
    """One turn: what the agent said, what it called, and by call id the text of what came of it."""

    text: str = ""
    calls: list[ProgramToolCall] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)

    @property
    def lost(self) -> list[ProgramToolCall]:
        """The calls without a result; none in a finished turn."""
        return [call for call in self.calls if call.id not in self.results]


@dataclass(frozen=True, slots=True)
class DeadAgent:
    """A sub-agent as its transcript leaves it."""

    agent_id: str
    session_id: str
    prompt: str
    turns: tuple[AgentTurn, ...]
    """The finished ones."""
    lost: tuple[ProgramToolCall, ...]
    """Calls that may or may not have run."""
    last_words: str
    story: AgentStory
    """How it ended, by autopsy's reading: its failures, its model, its folder."""


def read_dead_agent(path: Path) -> DeadAgent:
    """A sub-agent from its own transcript, `agent-<id>.jsonl`."""
    try:
        written = time_of_epoch(path.stat().st_mtime) or datetime.now(UTC)
        with open_foreign(path) as file:
            found = read_transcript(path, LineReader(file), written=written)
        conversation = _Conversation()
        for record in _lines(path):
            conversation.take(record)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UnreadableError(
            f"the transcript {path} cannot be read: {reason}", hint="check the path"
        ) from error
    if not found.stories:
        raise UnreadableError(
            f"there is no conversation in {path}", hint="start the agent anew with its prompt"
        )
    story, turns = found.stories[0], conversation.turns.values()
    finished = tuple(turn for turn in turns if not turn.lost)
    return DeadAgent(
        path.stem.removeprefix("agent-"),
        story.session_id,
        conversation.prompt,
        finished,
        tuple(call for turn in turns for call in turn.lost),
        next((turn.text for turn in reversed(finished) if turn.text), ""),
        story,
    )


class _Conversation:
    """What was asked, and all turns by the id of their answer."""

    def __init__(self) -> None:
        self.prompt = ""
        self.turns: dict[str, AgentTurn] = {}

    def take(self, record: TranscriptLine) -> None:
        message = record.message
        if message is None:
            return
        if record.type == "user":
            for block in blocks_of(message.content):
                self._heard(block, is_prompt=not record.is_meta)
        elif message.model != SYNTHETIC and not record.is_api_error_message:
            self._said(message)

    def _heard(self, block: TranscriptBlock, *, is_prompt: bool) -> None:
        if block.type == "tool_result" and block.tool_use_id is not None:
            for turn in self.turns.values():
                if any(call.id == block.tool_use_id for call in turn.calls):
                    turn.results[block.tool_use_id] = text_of(block.content)
        elif is_prompt and block.text and not self.prompt:
            self.prompt = block.text

    def _said(self, message: TranscriptMessage) -> None:
        # The client writes a line for each block of an answer.
        turn = self.turns.setdefault(message.id or f"without id, {len(self.turns)}", AgentTurn())
        for block in blocks_of(message.content):
            if block.type == "tool_use":
                turn.calls.append(call_of(block))
            elif block.text:
                turn.text = f"{turn.text}\n{block.text}".lstrip("\n")


def _lines(path: Path) -> Iterator[TranscriptLine]:
    with open_foreign(path) as file:
        for line in LineReader(file):
            record = decode(LINES, line)
            if record is not None and record.type in ("assistant", "user"):
                yield record
