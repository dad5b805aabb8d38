"""Parse what `claude -p --output-format stream-json` prints into the state of one run.

Rules: (1) pure, and the same result however the bytes are cut; (2) an incomplete or unknown line
and a block of unknown shape are skipped; (3) a tool call is identified by its id; (4) the last
result counts, because a run with background work prints several; (5) an agent that Claude Code
started and stopped without a request is lost, whatever the result says.
Not here: the verdict on that state (runner.py), files (transcript.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import msgspec

from jackline.agents.outcome import TokenUsage
from jackline.agents.process.program import (
    AnswerPart,
    LineCutter,
    ProgramEvent,
    SessionOpened,
    ToolResulted,
)
from jackline.agents.process.resume import ProgramToolCall
from jackline.agents.runner import JsonObject
from jackline.transcripts.conversation import STRUCTURED_OUTPUT_TOOL, SYNTHETIC
from jackline.transcripts.records import (
    PRINTED_LINES,
    QUOTAS,
    TEXT,
    TEXTS,
    PrintedLine,
    QuotaLimits,
    TranscriptBlock,
    TranscriptMessage,
    blocks_of,
    decode,
    text_of,
)

_OBJECTS = msgspec.json.Decoder(dict[str, object])


def call_of(block: TranscriptBlock) -> ProgramToolCall:
    """The call that a block makes."""
    given = decode(_OBJECTS, block.input) if block.input else None
    return ProgramToolCall(block.id or "", block.name or "", cast("JsonObject", given or {}))


_STARTED_AGENTS = frozenset({"local_agent", "local_workflow", "remote_agent"})
_CUT_STATES = frozenset({"stopped", "killed"})
_STOPPING_TOOLS = frozenset({"TaskStop", "KillShell", "AgentStop"})


class ModelUsage(msgspec.Struct, rename="camel"):
    """What one model cost, over all agents of the run."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0

    @property
    def usage(self) -> TokenUsage:
        """The same in our words."""
        return TokenUsage(
            self.input_tokens,
            self.output_tokens,
            self.cache_read_input_tokens,
            self.cache_creation_input_tokens,
        )


_MODEL_USAGES = msgspec.json.Decoder(dict[str, ModelUsage])
_ANY = msgspec.json.Decoder()


@dataclass(frozen=True, slots=True)
class ApiError:
    """The error that came in place of an answer."""

    text: str
    tag: str | None
    request_id: str | None


@dataclass(frozen=True, slots=True)
class Result:
    """The last word of a run."""

    subtype: str
    is_error: bool
    text: str
    status: int | None
    stop_reason: str | msgspec.UnsetType | None
    given: object
    """What was given by the schema; None when nothing was."""
    cost: float | None
    usage: tuple[tuple[str, TokenUsage], ...]


@dataclass(slots=True)
class ClaudeOutput:
    """The state of one run, from what it has printed so far."""

    session_id: str | None = None
    model: str | None = None
    last_request_id: str | None = None
    retries: int = 0
    """Attempts of the client itself since the last answer."""
    error: ApiError | None = None
    """Of the agent itself, when nothing came after it."""
    quota: QuotaLimits | None = None
    offered: str = ""
    """The structured answer that the agent tried to give last, as it came."""
    result: Result | None = None
    agents: dict[str, str] = field(default_factory=dict)
    """What it started and has not heard the end of: how each was called, by task id."""
    lost: dict[str, str] = field(default_factory=dict)
    _stopped_by_hand: set[str] = field(default_factory=set)
    _lines: LineCutter = field(default_factory=LineCutter)

    def feed(self, data: bytes) -> list[ProgramEvent]:
        """What the next bytes tell."""
        return [news for line in self._lines.feed(data) for news in self._take(line)]

    def _take(self, line: bytes) -> Sequence[ProgramEvent]:
        record = decode(PRINTED_LINES, line)
        if record is None:
            return ()
        self.session_id = record.session_id or self.session_id
        if record.type == "system":
            return self._take_notice(record)
        if record.type == "assistant" and record.message is not None:
            return self._take_answer(record, record.message)
        if record.type == "user" and record.message is not None:
            return self._take_results(record, record.message)
        if record.type == "result":
            self._take_result(record)
        elif record.type == "rate_limit_event" and record.rate_limit_info:
            self.quota = decode(QUOTAS, record.rate_limit_info) or self.quota
        return ()

    def _take_notice(self, record: PrintedLine) -> Sequence[ProgramEvent]:
        if record.subtype == "init" and record.session_id is not None:
            self.model = record.model or self.model
            return (SessionOpened(record.session_id, record.model),)
        if record.subtype == "api_retry":
            self.retries += 1
        elif record.task_id is not None:
            self._take_task(record, record.task_id)
        return ()

    def _take_task(self, record: PrintedLine, task: str) -> None:
        if record.subtype == "task_started" and record.task_type in _STARTED_AGENTS:
            self.agents[task] = record.description or task
        elif record.subtype == "task_notification" and task in self.agents:
            called = self.agents.pop(task)
            if record.status in _CUT_STATES and task not in self._stopped_by_hand:
                self.lost[task] = called

    def _take_answer(
        self, record: PrintedLine, message: TranscriptMessage
    ) -> Sequence[ProgramEvent]:
        is_main = record.parent_tool_use_id is None
        if message.model == SYNTHETIC:
            if is_main and record.error:
                tag = decode(TEXT, record.error)
                self.error = ApiError(text_of(message.content), tag, record.request_id)
            return ()
        if is_main:
            self.error, self.retries = None, 0
        self.last_request_id = record.request_id or self.last_request_id
        blocks = blocks_of(message.content)
        offered = [
            block.input for block in blocks if is_main and block.name == STRUCTURED_OUTPUT_TOOL
        ]
        if offered:
            self.offered = bytes(offered[-1]).decode("utf-8", "replace")
        calls = tuple(call_of(block) for block in blocks if _goes_on(block))
        for call in calls:
            if call.name in _STOPPING_TOOLS and isinstance(call.input, dict):
                named = call.input.values()
                self._stopped_by_hand |= {each for each in named if isinstance(each, str)}
        return (
            AnswerPart(
                message.id,
                message.model or self.model or "",
                TokenUsage.of(message.usage.tokens) if message.usage else TokenUsage(),
                "\n".join(block.text for block in blocks if block.type == "text" and block.text),
                calls,
                record.request_id,
                record.parent_tool_use_id,
            ),
        )

    def _take_results(
        self, record: PrintedLine, message: TranscriptMessage
    ) -> Sequence[ProgramEvent]:
        if record.parent_tool_use_id is not None:
            return ()
        return [
            ToolResulted(block.tool_use_id, text_of(block.content))
            for block in blocks_of(message.content)
            if block.type == "tool_result" and block.tool_use_id is not None
        ]

    def _take_result(self, record: PrintedLine) -> None:
        said = decode(TEXT, record.result) if record.result else None
        errors = decode(TEXTS, record.errors) if record.errors else None
        by_model = decode(_MODEL_USAGES, record.model_usage) if record.model_usage else None
        self.result = Result(
            record.subtype or "",
            record.is_error is not False,
            said or "\n".join(errors or ()),
            record.api_error_status,
            record.stop_reason,
            decode(_ANY, record.structured_output) if record.structured_output else None,
            record.total_cost_usd,
            tuple((model, told.usage) for model, told in (by_model or {}).items()),
        )


def _goes_on(block: TranscriptBlock) -> bool:
    """Whether the model is asked again after this block: its answer itself is the end."""
    return block.type == "tool_use" and block.name != STRUCTURED_OUTPUT_TOOL
