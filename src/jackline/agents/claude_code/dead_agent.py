"""Read what is left of a sub-agent of Claude Code that died, so that another can go on from it.

Laws: (1) pure but for reading the one file; a half-written last line is passed over; (2) a turn is
finished when each of its calls has its result; (3) an API error is nobody's turn.
Not here: why it died (its `story`, which autopsy tells), going on from it (mcp/).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from jackline.agents.claude_code.blocks import KeptBlock, blocks_of, call_of
from jackline.agents.claude_code.transcript import KEPT_LINES, KeptLine
from jackline.agents.process.going_on import ToolCall
from jackline.autopsy.claude_code import read_transcript
from jackline.autopsy.conversation import SYNTHETIC
from jackline.autopsy.findings import Tally
from jackline.autopsy.lines import LineReader
from jackline.autopsy.records import Message, decode, text_of
from jackline.autopsy.recount import moment_of_epoch
from jackline.autopsy.story import AgentStory
from jackline.errors import UnreadableError
from jackline.foreign_files import open_foreign


@dataclass(slots=True)
class Turn:
    """One turn: what the agent said, what it called, and by call id the text of what came of it."""

    text: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)

    @property
    def lost(self) -> list[ToolCall]:
        """The calls without a result; none in a finished turn."""
        return [call for call in self.calls if call.id not in self.results]


@dataclass(frozen=True, slots=True)
class DeadAgent:
    """A sub-agent as its transcript leaves it."""

    agent_id: str
    session_id: str
    prompt: str
    turns: tuple[Turn, ...]
    """The finished ones."""
    lost: tuple[ToolCall, ...]
    """Calls that may or may not have run."""
    last_words: str
    story: AgentStory
    """How it ended, by autopsy's reading: its failures, its model, its folder."""


def read_dead_agent(path: Path) -> DeadAgent:
    """A sub-agent from its own transcript, `agent-<id>.jsonl`."""
    try:
        written = moment_of_epoch(path.stat().st_mtime) or datetime.now(UTC)
        with open_foreign(path) as file:
            lines = LineReader(file)
            found = read_transcript(path, lines, Tally(lines), written=written)
        conversation = _Conversation()
        for record in _lines(path):
            conversation.take(record)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UnreadableError(
            f"the transcript {path} cannot be read: {reason}", next="check the path"
        ) from error
    if not found.stories:
        raise UnreadableError(
            f"there is no conversation in {path}", next="start the agent anew with its prompt"
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
        self.turns: dict[str, Turn] = {}

    def take(self, record: KeptLine) -> None:
        message = record.message
        if message is None:
            return
        if record.type == "user":
            for block in blocks_of(message):
                self._heard(block, is_prompt=not record.is_meta)
        elif message.model != SYNTHETIC and not record.is_api_error_message:
            self._said(message)

    def _heard(self, block: KeptBlock, *, is_prompt: bool) -> None:
        if block.type == "tool_result" and block.tool_use_id is not None:
            for turn in self.turns.values():
                if any(call.id == block.tool_use_id for call in turn.calls):
                    turn.results[block.tool_use_id] = text_of(block.content)
        elif is_prompt and block.text and not self.prompt:
            self.prompt = block.text

    def _said(self, message: Message) -> None:
        # The client writes a line for each block of an answer.
        turn = self.turns.setdefault(message.id or f"without id, {len(self.turns)}", Turn())
        for block in blocks_of(message):
            if block.type == "tool_use":
                turn.calls.append(call_of(block))
            elif block.text:
                turn.text = f"{turn.text}\n{block.text}".lstrip("\n")


def _lines(path: Path) -> Iterator[KeptLine]:
    with open_foreign(path) as file:
        for line in LineReader(file):
            record = decode(KEPT_LINES, line)
            if record is not None and record.type in ("assistant", "user"):
                yield record
