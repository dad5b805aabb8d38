"""Follow the conversation of one Claude Code agent, from saved or from printed lines.

Rules: (1) an error is an answer marked `isApiErrorMessage`, or a synthetic one with an error tag:
marks, not words; (2) a tool that fails inside an agent is no failure of that agent; (3) filler that
the client puts between two turns is no answer; (4) a missing structured answer is recognised by the
tool's name, its result's mark and the classifier, and an accepted answer settles everything before.
Not here: finding the lines (transcripts/claude_code.py), adding up (transcripts/story.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from jackline.failures import Json, Kind, Observation, Where, classify
from jackline.transcripts.findings import STARTING_TOOLS, ReportCollector
from jackline.transcripts.records import (
    EverydayBlock,
    EverydayLine,
    PrintedLine,
    QuotaLimits,
    TranscriptBlock,
    TranscriptLine,
    TranscriptMessage,
    blocks_of,
    decode,
    text_of,
)
from jackline.transcripts.story import SHOWN_WORDS, AgentStory, StoryBuilder, TranscriptEnd

ANSWERING_TOOL = "StructuredOutput"
_LONGEST_NUDGE = 2_000


class OwedAnswer:
    """What is known about the structured answer of one agent."""

    def __init__(self) -> None:
        self._words: str | None = None
        self._stamp: str | None = None
        self._calls: set[str] = set()

    @property
    def expected(self) -> bool:
        """Whether a call of the answering tool waits for its result."""
        return bool(self._calls)

    def reminded(self, words: str, stamp: str | None, now: datetime) -> None:
        """The client put in a word of its own; it may be a reminder that the answer is owed."""
        if not words or len(words) > _LONGEST_NUDGE:
            return
        seen = Observation(Where.TRANSCRIPT, text=words)
        if classify(seen, now=now).kind is Kind.MISSING_STRUCTURED_OUTPUT:
            self._words, self._stamp = words, stamp

    def called(self, call: TranscriptBlock) -> None:
        """The agent called a tool."""
        if call.name == ANSWERING_TOOL:
            self._calls.add(call.id or "")

    def answered(self, result: TranscriptBlock, words: str, stamp: str | None) -> None:
        """A tool gave its result."""
        if (result.tool_use_id or "") not in self._calls:
            return
        self._calls.discard(result.tool_use_id or "")
        refused = result.is_error is True
        self._words, self._stamp = (words, stamp) if refused else (None, None)

    @property
    def missing(self) -> tuple[str, str | None] | None:
        """The words and the time that tell of the miss, if the answer never came."""
        return None if self._words is None else (self._words, self._stamp)


CLIENT = "claude-code"
PROVIDER = "anthropic"
SYNTHETIC = "<synthetic>"

# The client wraps what its own commands print in these tags; no model is asked to answer them.
_LOCAL_COMMAND_TAGS = (b'"<command-', b'"<local-command-', b'"<bash-')

# What these tools start or settle is told by their results, so their lines are read whole.
_TELLING_TOOLS = STARTING_TOOLS | {ANSWERING_TOOL}

_QUOTAS = msgspec.json.Decoder(QuotaLimits)
_WORDS = msgspec.json.Decoder(str)


class ClaudeConversation:
    """One agent's conversation with its model."""

    def __init__(self, recount: StoryBuilder) -> None:
        self.recount = recount
        self.hearing = ReportCollector(recount.story)
        self._answered_at = 0
        self._words: Sequence[TranscriptBlock | EverydayBlock] = ()
        self._latest: EverydayLine | None = None
        self._number = 0
        self._model: str | None = None
        self._owed = OwedAnswer()

    def everyday(self, line: EverydayLine, number: int) -> bool:
        """Take a line that is like most lines; False, and nothing taken, when it is not.

        Nearly all lines come by here, so what only the last of them decides is left to `_settle`.
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
                or self.recount.retrying
            ):
                return False
            for block in blocks:
                if block.name in _TELLING_TOOLS:
                    return False
            self.recount.cost(message.id, line.timestamp, message.usage.total)
            self._model = message.model
            for block in blocks:
                if block.type == "tool_use":
                    self.recount.story.tool_calls += 1
                elif block.text:
                    self._words = blocks
        elif line.type != "user" or not self._is_plain_result(line, blocks):
            return False
        self._latest, self._number = line, number
        return True

    def _is_plain_result(
        self, line: EverydayLine, blocks: list[EverydayBlock] | str | None
    ) -> bool:
        """Whether a line gives the model the result of a tool that starts and ends nothing."""
        if self.hearing.started or self._owed.expected or line.tool_ends_turn:
            return False
        if type(blocks) is not list:
            return False
        return bool(blocks) and blocks[0].type == "tool_result"

    def _settle(self) -> None:
        """Let the last everyday line decide when, with whom and how the conversation stands."""
        line, self._latest = self._latest, None
        if line is None or line.message is None:
            return
        self.recount.seen(line.timestamp)
        self.recount.story.model = self._model or self.recount.story.model
        if line.type == "user":
            self.recount.ending = TranscriptEnd.CUT
            return
        message = line.message
        blocks = message.content if isinstance(message.content, list) else []
        calls = any(block.type == "tool_use" for block in blocks)
        self._answered(message.stop_reason, calls=calls, number=self._number)

    def _answered(self, stop: str | None, *, calls: bool, number: int) -> None:
        if calls or stop == "tool_use":
            self.recount.ending = TranscriptEnd.CUT
        else:
            self.recount.ending = TranscriptEnd.FINISHED
            self._answered_at = number

    def answer(
        self, line: TranscriptLine | PrintedLine, message: TranscriptMessage, number: int
    ) -> None:
        """Take what the model said, or the error that came in its place."""
        self._settle()
        recount = self.recount
        recount.seen(line.timestamp)
        if line.is_api_error_message or (message.model == SYNTHETIC and line.error):
            self._error(line, message)
            return
        if message.model == SYNTHETIC:
            return
        if message.usage is not None:
            recount.cost(message.id, line.timestamp, message.usage.total)
        calls = 0
        blocks = blocks_of(message.content)
        for block in blocks:
            if block.type == "tool_use":
                calls += 1
                self.hearing.calls(block)
                self._owed.called(block)
            elif block.text:
                self._words = blocks
        recount.story.tool_calls += calls
        self._model = recount.story.model = message.model or recount.story.model
        self._answered(message.stop_reason, calls=calls > 0, number=number)
        if message.stop_reason == "refusal":
            self._refusal(line, message)

    def question(self, line: TranscriptLine | PrintedLine, message: TranscriptMessage) -> None:
        """Take what the model was given: a prompt, or the results of its tools."""
        self._settle()
        self.recount.seen(line.timestamp)
        if self.hearing.started:
            self.hearing.results(message.content, line.tool_use_result, line.timestamp)
        self._follow_owed_answer(line, message)
        start = memoryview(message.content)[:20].tobytes()
        if not start.startswith(_LOCAL_COMMAND_TAGS):
            self.recount.ending = TranscriptEnd.CUT

    def _follow_owed_answer(
        self, line: TranscriptLine | PrintedLine, message: TranscriptMessage
    ) -> None:
        if self._owed.expected:
            for block in blocks_of(message.content):
                self._owed.answered(block, text_of(block.content), line.timestamp)
        elif isinstance(line, TranscriptLine) and line.is_meta:
            self._owed.reminded(text_of(message.content), line.timestamp, self.recount.now())

    def _error(self, line: TranscriptLine | PrintedLine, message: TranscriptMessage) -> None:
        quota = None
        if isinstance(line, TranscriptLine) and line.quota_limits:
            quota = decode(_QUOTAS, line.quota_limits)
        text = text_of(message.content)
        tag: Json = decode(_WORDS, line.error) if line.error else None
        self.recount.failed(
            text,
            stamp=line.timestamp,
            status=line.api_error_status,
            headers=None if quota is None else quota.as_headers(),
            body=None if text else {"error": tag},
            request_id=line.request_id,
        )

    def _refusal(self, line: TranscriptLine | PrintedLine, message: TranscriptMessage) -> None:
        self.recount.failed(
            message.stop_reason or "",
            stamp=line.timestamp,
            status=200,
            body={"message": {"stop_reason": message.stop_reason}},
            request_id=line.request_id,
        )

    def pause(self) -> StoryBuilder:
        """The recount so far, for marks that stand beside the conversation."""
        self._settle()
        return self.recount

    def finish(self) -> AgentStory:
        """The agent's story, with its last words and where its result stands."""
        self._settle()
        if self._owed.missing is not None and self.recount.ending is not TranscriptEnd.FAILED:
            words, stamp = self._owed.missing
            self.recount.failed(words, stamp=stamp)
        story = self.recount.finish()
        words = "\n".join(block.text for block in self._words if block.text)
        story.last_words = words[:SHOWN_WORDS] or None
        if story.ending is TranscriptEnd.FINISHED and self._answered_at:
            story.result_at = f"{story.path}:{self._answered_at}"
        return story
