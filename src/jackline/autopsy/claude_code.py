"""Read a Claude Code transcript: the main one, a sub-agent's or a workflow agent's.

Laws: (1) retries and limits are read from the client's own marks, never from words; (2) long tool
output is recognised by the line's beginning and never decoded, unless it is the file's last word;
(3) a file's place only adds to what its lines say.
Not here: the fields (records.py), what an answer means (conversation.py), journals and run states
(workflow.py), printed logs (stream_json.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import msgspec

from jackline.autopsy.conversation import CLIENT, PROVIDER, Conversation
from jackline.autopsy.findings import Findings, Tally
from jackline.autopsy.records import (
    LONG,
    NO_SENSE,
    EverydayLine,
    Line,
    decode,
    is_tool_output,
    tells_nothing,
    text_of,
)
from jackline.autopsy.recount import Recount
from jackline.autopsy.reports import is_notification, read_notification
from jackline.autopsy.story import Ending, Role
from jackline.foreign_files import read_beginning

_LARGEST_NOTE = 1 << 16
_BRACE = ord("{")
_LOOK = 64


class RetriedError(msgspec.Struct, rename="camel"):
    """The error that a retry line carries."""

    message: str | None = None
    formatted: str | None = None
    status: int | None = None
    request_id: str | None = None


class Attachment(msgspec.Struct):
    """What the client put beside the conversation."""

    type: str = ""


class Meta(msgspec.Struct, rename="camel"):
    """The note that lies beside a sub-agent's transcript."""

    agent_type: str | None = None
    description: str | None = None
    tool_use_id: str | None = None


_TELLING_TYPES = frozenset({"assistant", "user", "system", "attachment", "api-request"})
_EVERYDAY_LINES = msgspec.json.Decoder(EverydayLine)
_LINES = msgspec.json.Decoder(Line)
_RETRIED_ERRORS = msgspec.json.Decoder(RetriedError)
_ATTACHMENTS = msgspec.json.Decoder(Attachment)
_METAS = msgspec.json.Decoder(Meta)


def read_transcript(
    path: Path, lines: Iterable[memoryview], tally: Tally, *, written: datetime
) -> Findings:
    """The story of the agent whose transcript this is, and what it was told of others."""
    transcript = _Transcript(path, tally, written)
    transcript.read(lines)
    return transcript.findings()


class _Transcript:
    def __init__(self, path: Path, tally: Tally, written: datetime) -> None:
        self._path = path
        self._tally = tally
        self._recount = Recount(path, client=CLIENT, provider=PROVIDER, written=written)
        self._conversation = Conversation(self._recount)
        self._started = self._conversation.hearing.started
        self._request: Line | None = None
        self._passed_over: memoryview | None = None

    def read(self, lines: Iterable[memoryview]) -> None:
        """Take all lines, each with no more effort than it is worth."""
        story = self._recount.story
        everyday = self._conversation.everyday
        decode_everyday = _EVERYDAY_LINES.decode
        for number, line in enumerate(lines, 1):
            if line[0] != _BRACE and not bytes(line[:_LOOK]).lstrip().startswith(b"{"):
                self._tally.unreadable()
                continue
            if story.session_id:
                if len(line) > LONG:
                    if is_tool_output(line, but_not_of=self._started):
                        self._passed_over = line
                        continue
                    if tells_nothing(line):
                        continue
                try:
                    glance = decode_everyday(line)
                    if everyday(glance, number):
                        self._passed_over = self._request = None
                        continue
                    if glance.type not in _TELLING_TYPES:
                        continue
                except NO_SENSE:
                    # Whatever it is, it is no everyday line: the closer look will tell.
                    pass
            self.take_whole(line, number)
        self._catch_up()

    def take_whole(self, line: memoryview, number: int) -> None:
        """Decode a line as a whole, and add it to the story."""
        record = decode(_LINES, line)
        if record is None:
            self._tally.unreadable()
        elif self._take(record, number):
            self._passed_over = None

    def _catch_up(self) -> None:
        """Read the tool output that was passed over, when no answer came to make it history."""
        line, self._passed_over = self._passed_over, None
        if line is None:
            return
        self._conversation.pause().ending = Ending.CUT
        self.take_whole(line, 0)

    def _take(self, record: Line, number: int) -> bool:
        """Add one line to the story; True when the conversation moved on with it."""
        message = record.message
        if record.type == "assistant" and message is not None:
            self._identify(record)
            self._request = None
            self._conversation.answer(record, message, number)
            return True
        if record.type == "user" and message is not None:
            self._identify(record)
            self._take_question(record)
            return True
        if record.type == "system" and record.subtype == "api_error":
            self._identify(record)
            self._take_retry(record)
        elif record.type == "api-request" and record.agent_id is not None:
            self._take_request(record)
        elif record.type == "attachment" and record.attachment:
            self._take_attachment(record)
        return False

    def _identify(self, record: Line) -> None:
        story = self._recount.story
        if not story.session_id and record.session_id:
            story.session_id = record.session_id
            story.agent_id = record.agent_id or record.session_id
            if record.agent_id and record.is_sidechain is not False:
                story.role = Role.SUBAGENT
        story.cwd = story.cwd or record.cwd
        story.client_version = record.version or story.client_version

    def _take_question(self, record: Line) -> None:
        message = record.message
        if message is None or record.is_compact_summary:
            return
        if is_notification(record.origin):
            note = read_notification(text_of(message.content))
            self._conversation.hearing.notified(note, record.timestamp)
        self._conversation.question(record, message)
        if record.tool_ends_turn:
            self._recount.ending = Ending.FINISHED

    def _take_retry(self, record: Line) -> None:
        self._catch_up()
        self._conversation.pause().seen(record.timestamp)
        error = decode(_RETRIED_ERRORS, record.error) if record.error else None
        error = error or RetriedError()
        self._recount.failed(
            error.formatted or error.message or "",
            stamp=record.timestamp,
            status=error.status,
            request_id=error.request_id,
            fatal=False,
        )

    def _take_request(self, record: Line) -> None:
        """See a sub-agent's retry, which is written nowhere else: the same request once more."""
        before, self._request = self._request, record
        if before is not None and before.request_digest == record.request_digest is not None:
            self._conversation.pause().retried(before.timestamp, None, None)

    def _take_attachment(self, record: Line) -> None:
        attachment = decode(_ATTACHMENTS, record.attachment)
        if attachment is not None and attachment.type == "max_turns_reached":
            self._catch_up()
            self._conversation.pause().failed(
                attachment.type,
                stamp=record.timestamp,
                body={"type": attachment.type, "subtype": "error_max_turns"},
            )

    def findings(self) -> Findings:
        """Everything the transcript gave; no story when no conversation was in it."""
        hearing = self._conversation.hearing
        findings = Findings(reports=hearing.reports, launches=hearing.launches)
        story = self._recount.story
        if not self._recount.has_lines or not story.session_id:
            return findings
        self._conversation.finish()
        if story.role is not Role.MAIN:
            self._add_meta(findings)
            if self._path.parent.parent.name == "workflows":
                story.role = Role.WORKFLOW
                story.run_id = self._path.parent.name
        findings.stories.append(story)
        return findings

    def _add_meta(self, findings: Findings) -> None:
        try:
            note = read_beginning(self._path.with_suffix(".meta.json"), _LARGEST_NOTE)
        except OSError:
            return
        meta = decode(_METAS, note)
        if meta is None:
            return
        story = self._recount.story
        story.agent_type = meta.agent_type
        story.label = meta.description
        if meta.tool_use_id is not None:
            findings.started_by[story.agent_id] = meta.tool_use_id
