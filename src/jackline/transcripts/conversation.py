"""Follow the conversation of one Claude Code agent, from saved or from printed lines.

Rules: (1) an error is an answer marked `isApiErrorMessage`, or a synthetic one with an error tag:
marks, not texts; (2) a tool that fails inside an agent is no failure of that agent; (3) filler that
the client puts between two turns is no answer; (4) a missing structured output is recognised by the
tool's name, its result's mark and the classifier, and an accepted output settles everything before.
"""

from __future__ import annotations

from collections.abc import Sequence

from jackline.failures import Json, Kind, Observation, Where, classify
from jackline.transcripts.findings import STARTING_TOOLS, ReportCollector
from jackline.transcripts.records import (
    QUOTAS,
    TEXT,
    CommonBlock,
    CommonLine,
    PrintedLine,
    TranscriptBlock,
    TranscriptLine,
    TranscriptMessage,
    blocks_of,
    decode,
    text_of,
)
from jackline.transcripts.story import SHOWN_WORDS, AgentStory, StoryBuilder, TranscriptEnd

CLIENT = "claude-code"
PROVIDER = "anthropic"
SYNTHETIC = "<synthetic>"
STRUCTURED_OUTPUT_TOOL = "StructuredOutput"
_LONGEST_REMINDER = 2_000

# The client wraps what its own commands print in these tags; no model answers them.
_LOCAL_COMMAND_TAGS = (b'"<command-', b'"<local-command-', b'"<bash-')
# The results of these tools matter, so their lines are decoded as a whole.
_SPECIAL_TOOLS = STARTING_TOOLS | {STRUCTURED_OUTPUT_TOOL}


class ClaudeConversation:
    """One agent's conversation with its model."""

    def __init__(self, builder: StoryBuilder) -> None:
        self.builder = builder
        self.received = ReportCollector(builder.story)
        self._answer_line = 0
        self._last_blocks: Sequence[TranscriptBlock | CommonBlock] = ()
        self._latest: CommonLine | None = None
        self._latest_number = 0
        self._model: str | None = None
        self._output_calls: set[str] = set()
        """Calls of the structured output tool that have no result yet."""
        self._missing_output: tuple[str, str | None] | None = None
        """The text and the time of the last sign that the structured output is missing."""

    def add_common(self, line: CommonLine, number: int) -> bool:
        """Add a line that is like most lines; False, and nothing added, when it is not.

        Nearly all lines come here, so `_settle` does later what only the last of them decides.
        """
        message = line.message
        if message is None:
            return False
        blocks = message.content
        if line.type == "assistant":
            if (
                line.is_api_error_message
                or message.usage is None
                or message.model == SYNTHETIC
                or message.stop_reason == "refusal"
                or type(blocks) is not list
                or self.builder.retrying
            ):
                return False
            for block in blocks:
                if block.name in _SPECIAL_TOOLS:
                    return False
            self.builder.add_cost(message.id, line.timestamp, message.usage.total)
            self._model = message.model
            for block in blocks:
                if block.type == "tool_use":
                    self.builder.story.tool_calls += 1
                elif block.text:
                    self._last_blocks = blocks
        elif (
            line.type != "user"
            or self.received.started
            or self._output_calls
            or line.tool_ends_turn
            or type(blocks) is not list
            or not blocks
            or blocks[0].type != "tool_result"
        ):
            return False
        self._latest, self._latest_number = line, number
        return True

    def _settle(self) -> None:
        """Let the last common line decide the time, the model and the ending so far."""
        line, self._latest = self._latest, None
        if line is None or line.message is None:
            return
        self.builder.saw_line(line.timestamp)
        self.builder.story.model = self._model or self.builder.story.model
        if line.type == "user":
            self.builder.ending = TranscriptEnd.CUT
            return
        message = line.message
        blocks = message.content if isinstance(message.content, list) else []
        calls = any(block.type == "tool_use" for block in blocks)
        self._set_ending(message.stop_reason, calls=calls, number=self._latest_number)

    def _set_ending(self, stop: str | None, *, calls: bool, number: int) -> None:
        if calls or stop == "tool_use":
            self.builder.ending = TranscriptEnd.CUT
        else:
            self.builder.ending = TranscriptEnd.FINISHED
            self._answer_line = number

    def add_answer(
        self, line: TranscriptLine | PrintedLine, message: TranscriptMessage, number: int
    ) -> None:
        """Add an answer of the model, or the error in its place."""
        builder = self.paused()
        builder.saw_line(line.timestamp)
        if line.is_api_error_message or (message.model == SYNTHETIC and line.error):
            self._add_error(line, message)
            return
        if message.model == SYNTHETIC:
            return
        if message.usage is not None:
            builder.add_cost(message.id, line.timestamp, message.usage.total)
        calls = 0
        blocks = blocks_of(message.content)
        for block in blocks:
            if block.type == "tool_use":
                calls += 1
                self.received.add_call(block)
                if block.name == STRUCTURED_OUTPUT_TOOL:
                    self._output_calls.add(block.id or "")
            elif block.text:
                self._last_blocks = blocks
        builder.story.tool_calls += calls
        self._model = builder.story.model = message.model or builder.story.model
        self._set_ending(message.stop_reason, calls=calls > 0, number=number)
        if message.stop_reason == "refusal":
            builder.add_failure(
                message.stop_reason,
                stamp=line.timestamp,
                status=200,
                body={"message": {"stop_reason": message.stop_reason}},
                request_id=line.request_id,
            )

    def _add_error(self, line: TranscriptLine | PrintedLine, message: TranscriptMessage) -> None:
        quota = None
        if isinstance(line, TranscriptLine) and line.quota_limits:
            quota = decode(QUOTAS, line.quota_limits)
        text = text_of(message.content)
        tag: Json = decode(TEXT, line.error) if line.error else None
        self.builder.add_failure(
            text,
            stamp=line.timestamp,
            status=line.api_error_status,
            headers=None if quota is None else quota.as_headers(),
            body=None if text else {"error": tag},
            request_id=line.request_id,
        )

    def add_question(self, line: TranscriptLine | PrintedLine, message: TranscriptMessage) -> None:
        """Add what the model was sent: a prompt, or the results of its tools."""
        builder = self.paused()
        builder.saw_line(line.timestamp)
        if self.received.started:
            self.received.add_results(message.content, line.tool_use_result, line.timestamp)
        if self._output_calls:
            for block in blocks_of(message.content):
                call = block.tool_use_id or ""
                if call in self._output_calls:
                    self._output_calls.discard(call)
                    refused = (text_of(block.content), line.timestamp)
                    self._missing_output = refused if block.is_error is True else None
        elif isinstance(line, TranscriptLine) and line.is_meta:
            self._check_reminder(text_of(message.content), line.timestamp)
        start = memoryview(message.content)[:20].tobytes()
        if not start.startswith(_LOCAL_COMMAND_TAGS):
            builder.ending = TranscriptEnd.CUT

    def _check_reminder(self, text: str, stamp: str | None) -> None:
        """See whether the client's own text reminds the model of its structured output."""
        if not text or len(text) > _LONGEST_REMINDER:
            return
        failure = classify(Observation(Where.TRANSCRIPT, text=text), now=self.builder.now())
        if failure.kind is Kind.MISSING_STRUCTURED_OUTPUT:
            self._missing_output = (text, stamp)

    def paused(self) -> StoryBuilder:
        """The builder with all lines so far, for marks beside the conversation."""
        self._settle()
        return self.builder

    def finish(self) -> AgentStory:
        """The agent's story, with its last text and the place of its result."""
        builder = self.paused()
        if self._missing_output is not None and builder.ending is not TranscriptEnd.FAILED:
            text, stamp = self._missing_output
            builder.add_failure(text, stamp=stamp)
        story = builder.finish()
        last = "\n".join(block.text for block in self._last_blocks if block.text)
        story.last_words = last[:SHOWN_WORDS] or None
        if story.ending is TranscriptEnd.FINISHED and self._answer_line:
            story.result_at = f"{story.path}:{self._answer_line}"
        return story
