"""Read the files of Claude Code: transcripts, logs of `claude -p`, journals of workflows.

Rules: (1) retries and limits are read from the client's own marks, never from words; (2) long tool
output is recognised by the start of its line and not decoded, unless it is the last line; (3) a
file's place only adds to what its lines say; (4) in a printed log `is_error` decides whether a run
failed, because `subtype` says "success" of failed runs too; a retry is a line `api_retry` or a
progress line with `subagent_retry`; (5) a result in a workflow's journal is a result, whatever the
agent's transcript looks like; the run's state is used only where a transcript is missing.
Not here: the fields (transcripts/records.py), what an answer means (transcripts/conversation.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import msgspec

from jackline.failures import Json
from jackline.foreign_files import read_beginning
from jackline.transcripts.conversation import CLIENT, PROVIDER, ClaudeConversation
from jackline.transcripts.findings import (
    Findings,
    Notification,
    UnreadableLines,
    WorkflowRun,
    is_notification,
    read_notification,
    result_of,
)
from jackline.transcripts.records import (
    LONG,
    NO_SENSE,
    EverydayLine,
    PrintedLine,
    TranscriptLine,
    decode,
    is_bookkeeping,
    is_tool_output,
    text_of,
)
from jackline.transcripts.story import (
    AgentStory,
    Role,
    StoryBuilder,
    TranscriptEnd,
    moment_of_epoch,
)


class JournalLine(msgspec.Struct, rename="camel"):
    """One line of a run's journal."""

    type: str = ""
    agent_id: str | None = None
    label: str | None = None


class WorkflowAgent(msgspec.Struct, rename="camel"):
    """One agent, or one phase, in a run's final state; times are in milliseconds."""

    type: str = ""
    agent_id: str | None = None
    label: str | None = None
    model: str | None = None
    state: str | None = None
    started_at: float | None = None
    last_progress_at: float | None = None
    tokens: int | None = None
    tool_calls: int | None = None
    error: str | None = None


class WorkflowState(msgspec.Struct, rename="camel"):
    """The final state of a run."""

    run_id: str = ""
    task_id: str | None = None
    logs: list[str] = []
    workflow_progress: list[WorkflowAgent] = []


_JOURNAL_LINES = msgspec.json.Decoder(JournalLine)
_RUN_STATES = msgspec.json.Decoder(WorkflowState)
_ENDINGS = {"done": TranscriptEnd.FINISHED, "error": TranscriptEnd.FAILED}


def read_journal(path: Path, lines: Iterable[memoryview], tally: UnreadableLines) -> Findings:
    """Who took part in the run, and whose results are kept."""
    run = WorkflowRun(path.parent.name, journalled=True)
    for number, line in enumerate(lines, 1):
        record = decode(_JOURNAL_LINES, line)
        if record is None:
            tally.unreadable()
        elif record.agent_id is not None:
            if record.type == "started":
                run.agents.append(record.agent_id)
            elif record.type == "result":
                run.results[record.agent_id] = f"{path}:{number}"
            if record.label is not None:
                run.labels[record.agent_id] = record.label
    return Findings(runs=[run])


def read_run_state(
    path: Path, lines: Iterable[memoryview], tally: UnreadableLines, *, written: datetime
) -> Findings:
    """Who took part in the run, and what was logged; it stands on one line."""
    findings = Findings()
    for line in lines:
        state = decode(_RUN_STATES, line)
        if state is None or not state.run_id:
            tally.unreadable()
            continue
        run = WorkflowRun(state.run_id, state.task_id, logged=state.logs)
        for seat in state.workflow_progress:
            if seat.agent_id is not None:
                run.agents.append(seat.agent_id)
                # The state lies in `<session>/workflows/`, and names the session nowhere else.
                session = path.parent.parent.name
                run.stories.append(story_of(seat, session, state.run_id, path, written))
                if seat.label is not None:
                    run.labels[seat.agent_id] = seat.label
        findings.runs.append(run)
    return findings


def story_of(
    seat: WorkflowAgent, session_id: str, run_id: str, path: Path, written: datetime
) -> AgentStory:
    """The little that a run's own record tells of one agent."""
    recount = StoryBuilder(
        path, client=CLIENT, provider=PROVIDER, written=written, role=Role.WORKFLOW
    )
    story = recount.story
    story.agent_id = seat.agent_id or ""
    story.session_id = session_id
    story.run_id = run_id
    story.label = seat.label
    story.model = seat.model
    story.tool_calls = seat.tool_calls or 0
    for stamp in (_stamp(seat.started_at), _stamp(seat.last_progress_at)):
        recount.seen(stamp)
    recount.cost(seat.agent_id, _stamp(seat.last_progress_at), seat.tokens or 0)
    recount.ending = _ENDINGS.get(seat.state or "", TranscriptEnd.CUT)
    if seat.error is not None:
        recount.failed(seat.error, stamp=_stamp(seat.last_progress_at))
    return recount.finish()


def _stamp(milliseconds: float | None) -> str | None:
    at = moment_of_epoch(None if milliseconds is None else milliseconds / 1000)
    return None if at is None else at.isoformat()


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
_LINES = msgspec.json.Decoder(TranscriptLine)
_RETRIED_ERRORS = msgspec.json.Decoder(RetriedError)
_ATTACHMENTS = msgspec.json.Decoder(Attachment)
_METAS = msgspec.json.Decoder(Meta)


def read_transcript(
    path: Path, lines: Iterable[memoryview], tally: UnreadableLines, *, written: datetime
) -> Findings:
    """The story of the agent whose transcript this is, and what it was told of others."""
    transcript = _Transcript(path, tally, written)
    transcript.read(lines)
    return transcript.findings()


class _Transcript:
    def __init__(self, path: Path, tally: UnreadableLines, written: datetime) -> None:
        self._path = path
        self._tally = tally
        self._recount = StoryBuilder(path, client=CLIENT, provider=PROVIDER, written=written)
        self._conversation = ClaudeConversation(self._recount)
        self._started = self._conversation.hearing.started
        self._request: TranscriptLine | None = None
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
                    if is_bookkeeping(line):
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
        self._conversation.pause().ending = TranscriptEnd.CUT
        self.take_whole(line, 0)

    def _take(self, record: TranscriptLine, number: int) -> bool:
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

    def _identify(self, record: TranscriptLine) -> None:
        story = self._recount.story
        if not story.session_id and record.session_id:
            story.session_id = record.session_id
            story.agent_id = record.agent_id or record.session_id
            if record.agent_id and record.is_sidechain is not False:
                story.role = Role.SUBAGENT
        story.cwd = story.cwd or record.cwd
        story.client_version = record.version or story.client_version

    def _take_question(self, record: TranscriptLine) -> None:
        message = record.message
        if message is None or record.is_compact_summary:
            return
        if is_notification(record.origin):
            note = read_notification(text_of(message.content))
            self._conversation.hearing.notified(note, record.timestamp)
        self._conversation.question(record, message)
        if record.tool_ends_turn:
            self._recount.ending = TranscriptEnd.FINISHED

    def _take_retry(self, record: TranscriptLine) -> None:
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

    def _take_request(self, record: TranscriptLine) -> None:
        """See a sub-agent's retry, which is written nowhere else: the same request once more."""
        before, self._request = self._request, record
        if before is not None and before.request_digest == record.request_digest is not None:
            self._conversation.pause().retried(before.timestamp, None, None)

    def _take_attachment(self, record: TranscriptLine) -> None:
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


STRUCTURED_OUTPUT = "StructuredOutput"


class SubagentRetry(msgspec.Struct):
    """A retry of a sub-agent's request, as its parent's progress shows it."""

    error_status: int | None = None
    error_category: str | None = None


_PRINTED_LINES = msgspec.json.Decoder(PrintedLine)
_RETRIES = msgspec.json.Decoder(SubagentRetry)
_SEATS = msgspec.json.Decoder(list[WorkflowAgent])
_WORDS = msgspec.json.Decoder(str)
_WORD_LISTS = msgspec.json.Decoder(list[str])


def read_log(
    path: Path, lines: Iterable[memoryview], tally: UnreadableLines, *, written: datetime
) -> Findings:
    """The stories of all agents whose lines were printed into this log."""
    log = _Log(path, written)
    for number, line in enumerate(lines, 1):
        record = decode(_PRINTED_LINES, line)
        if record is None:
            tally.unreadable()
        else:
            log.take(record, number)
    return log.findings()


class _Log:
    def __init__(self, path: Path, written: datetime) -> None:
        self._path = path
        self._written = written
        self._now: str | None = None
        self._agents: dict[str, ClaudeConversation] = {}
        self._agent_of_call: dict[str, str] = {}
        self._schema_asked = False
        self._seats: dict[str, dict[str, WorkflowAgent]] = {}
        self._session = ""
        self._result: tuple[str, str, bool, str | None] | None = None

    def take(self, record: PrintedLine, number: int) -> None:
        """Add one printed line to the story it belongs to."""
        self._now = record.timestamp or self._now
        if record.session_id is None:
            return
        self._session = record.session_id
        if record.type == "system":
            self._take_notice(record)
        elif record.type in ("assistant", "user") and record.message is not None:
            speaker = self._conversation(record)
            if record.type == "assistant":
                speaker.answer(record, record.message, number)
            else:
                speaker.question(record, record.message)
                self._take_agent_result(record)
        elif record.type == "result":
            self._take_result(record)
        elif record.type == "tool_progress" and record.subagent_retry:
            retry = decode(_RETRIES, record.subagent_retry) or SubagentRetry()
            child = self._conversation(record).recount
            child.retried(self._now, retry.error_status, retry.error_category)

    def _conversation(self, record: PrintedLine) -> ClaudeConversation:
        """The conversation that a line belongs to: the main one, or that of a started agent."""
        call = record.parent_tool_use_id
        session = record.session_id or ""
        if call is None:
            return self._of_agent(session, session, Role.MAIN)
        agent = record.agent_id or self._agent_of_call.get(call) or call
        self._agent_of_call.setdefault(call, agent)
        found = self._of_agent(session, agent, Role.SUBAGENT)
        story = found.recount.story
        story.parent_id = story.parent_id or session
        story.agent_type = record.subagent_type or story.agent_type
        return found

    def _of_agent(self, session: str, agent: str, role: Role) -> ClaudeConversation:
        found = self._agents.get(agent)
        if found is None:
            recount = StoryBuilder(
                self._path, client=CLIENT, provider=PROVIDER, written=self._written, role=role
            )
            recount.story.session_id, recount.story.agent_id = session, agent
            found = self._agents[agent] = ClaudeConversation(recount)
        return found

    def _take_notice(self, record: PrintedLine) -> None:
        session = record.session_id or ""
        if record.subtype == "init":
            story = self._of_agent(session, session, Role.MAIN).recount.story
            story.cwd, story.model = record.cwd, record.model
            story.client_version = record.claude_code_version
            tools = decode(_WORD_LISTS, record.tools) if record.tools else None
            self._schema_asked = STRUCTURED_OUTPUT in (tools or ())
        elif record.subtype == "api_retry":
            tag = decode(_WORDS, record.error) if record.error else None
            main = self._of_agent(session, session, Role.MAIN).recount
            main.retried(self._now, record.error_status, tag)
        elif record.subtype == "task_started" and record.task_id and record.tool_use_id:
            self._agent_of_call[record.tool_use_id] = record.task_id
            if record.task_type != "local_workflow":
                child = self._of_agent(session, record.task_id, Role.SUBAGENT).recount.story
                child.label = record.description
                child.agent_type = record.subagent_type
                child.parent_id = session
        elif record.subtype == "task_progress" and record.task_id and record.workflow_progress:
            seats = decode(_SEATS, record.workflow_progress) or []
            known = self._seats.setdefault(record.task_id, {})
            known.update({seat.agent_id: seat for seat in seats if seat.agent_id is not None})
        elif record.subtype == "task_notification":
            self._take_notification(record)

    def _take_notification(self, record: PrintedLine) -> None:
        session = record.session_id or ""
        note = Notification(
            record.task_id, record.tool_use_id, record.status or "", record.summary or "", ()
        )
        self._of_agent(session, session, Role.MAIN).hearing.notified(note, self._now)
        child = self._agents.get(record.task_id or "")
        if child is not None and child.recount.ending is not TranscriptEnd.FAILED:
            # A sub-agent's last answer is not printed: its notification stands for it.
            child.recount.ending = TranscriptEnd.FINISHED
            if note.is_error:
                child.recount.failed(note.summary, stamp=self._now)

    def _take_agent_result(self, record: PrintedLine) -> None:
        """See through a "completed" agent that cost nothing: its last answer was an error."""
        result = result_of(record.tool_use_result)
        child = self._agents.get(result.agent_id or "")
        if (
            child is None
            or child.recount.ending is TranscriptEnd.FAILED
            or result.total_tokens != 0
        ):
            return
        child.recount.failed(text_of(result.content), stamp=self._now)

    def _take_result(self, record: PrintedLine) -> None:
        """Take how the whole run ended, as the user or the calling program was told it."""
        session = record.session_id or ""
        main = self._of_agent(session, session, Role.MAIN).recount
        main.seen(self._now)
        said = decode(_WORDS, record.result) if record.result else None
        errors = decode(_WORD_LISTS, record.errors) if record.errors else None
        text = said or "\n".join(errors or ())
        is_error = bool(record.is_error)
        if text or is_error:
            self._result = (record.subtype or "", text, is_error, self._now)
        if not is_error:
            main.ending = TranscriptEnd.FINISHED
            if self._schema_asked and not record.structured_output:
                body: Json = {
                    "type": "result",
                    "subtype": record.subtype,
                    "is_error": False,
                    "structured_output": None,
                }
                main.failed("", stamp=self._now, body=body, sure=False)
        elif main.ending is not TranscriptEnd.FAILED:
            main.failed(
                text,
                stamp=self._now,
                status=record.api_error_status,
                body={"type": "result", "subtype": record.subtype, "is_error": True},
            )

    def findings(self) -> Findings:
        """Everything that the log gave."""
        findings = Findings()
        if self._result is not None:
            # A run with background work prints a result for each turn; people act on the last.
            claim, text, is_error, stamp = self._result
            main = self._of_agent(self._session, self._session, Role.MAIN).recount
            main.told("result", claim, text, is_error=is_error, stamp=stamp)
        for conversation in self._agents.values():
            findings.reports += conversation.hearing.reports
            findings.launches += conversation.hearing.launches
            if conversation.recount.has_lines or conversation.recount.story.label is not None:
                findings.stories.append(conversation.finish())
        runs = {launch.task_id: launch.run_id for launch in findings.launches if launch.run_id}
        for task, seats in self._seats.items():
            run = WorkflowRun(runs.get(task) or task, task, agents=list(seats))
            run.labels = {agent: seat.label for agent, seat in seats.items() if seat.label}
            run.stories = [
                story_of(seat, self._session, run.run_id, self._path, self._written)
                for seat in seats.values()
            ]
            findings.runs.append(run)
        for call, agent in self._agent_of_call.items():
            findings.started_by.setdefault(agent, call)
        return findings
