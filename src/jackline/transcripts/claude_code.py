"""Read the files of Claude Code: transcripts, logs of `claude -p`, journals of workflows.

Rules: (1) retries and limits are read from the client's own marks, never from texts; (2) long tool
output is recognised by the start of its line and not decoded, unless it is the last line; (3) a
file's place only adds to what its lines say; (4) in a printed log `is_error` decides whether a run
failed, because `subtype` says "success" of failed runs too; a retry is a line `api_retry` or a
progress line with `subagent_retry`; (5) a result in a workflow's journal is a result, whatever the
agent's transcript looks like; the run's state is used only where a transcript is missing.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec

from jackline.failures import Json
from jackline.foreign_files import read_beginning
from jackline.transcripts.conversation import (
    CLIENT,
    PROVIDER,
    STRUCTURED_OUTPUT_TOOL,
    ClaudeConversation,
)
from jackline.transcripts.findings import AgentResult, Findings, Notification, WorkflowRun
from jackline.transcripts.records import (
    INVALID,
    LINES,
    LONG,
    PRINTED_LINES,
    TEXT,
    TEXTS,
    CommonLine,
    LineReader,
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
    time_of_epoch,
)


class JournalLine(msgspec.Struct, rename="camel"):
    """One line of a run's journal."""

    type: str = ""
    agent_id: str | None = None
    label: str | None = None


class WorkflowAgent(msgspec.Struct, rename="camel"):
    """One agent, or one phase, in a run's state; times are in milliseconds."""

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

    def story(self, session_id: str, run_id: str, path: Path, written: datetime) -> AgentStory:
        """What the run's own record says about the agent."""
        builder = StoryBuilder(
            path, client=CLIENT, provider=PROVIDER, written=written, role=Role.WORKFLOW
        )
        times = [
            time_of_epoch(None if at is None else at / 1000)
            for at in (self.started_at, self.last_progress_at)
        ]
        started, last = (None if at is None else at.isoformat() for at in times)
        story = builder.story
        story.agent_id = self.agent_id or ""
        story.session_id = session_id
        story.run_id = run_id
        story.label = self.label
        story.model = self.model
        story.tool_calls = self.tool_calls or 0
        builder.saw_line(started)
        builder.saw_line(last)
        builder.add_cost(self.agent_id, last, self.tokens or 0)
        endings = {"done": TranscriptEnd.FINISHED, "error": TranscriptEnd.FAILED}
        builder.ending = endings.get(self.state or "", TranscriptEnd.CUT)
        if self.error is not None:
            builder.add_failure(self.error, stamp=last)
        return builder.finish()


class WorkflowState(msgspec.Struct, rename="camel"):
    """The final state of a run."""

    run_id: str = ""
    task_id: str | None = None
    logs: list[str] = []
    workflow_progress: list[WorkflowAgent] = []


class RetriedError(msgspec.Struct, rename="camel"):
    """The error in a retry line."""

    message: str | None = None
    formatted: str | None = None
    status: int | None = None
    request_id: str | None = None


class TypeOrKind(msgspec.Struct):
    """The type of an attachment, or the kind of a line's origin."""

    type: str = ""
    kind: str | None = None


class AgentMeta(msgspec.Struct, rename="camel"):
    """The file beside a sub-agent's transcript."""

    agent_type: str | None = None
    description: str | None = None
    tool_use_id: str | None = None


class SubagentRetry(msgspec.Struct):
    """A retry of a sub-agent's request, as its parent's progress shows it."""

    error_status: int | None = None
    error_category: str | None = None


_COMMON_LINES = msgspec.json.Decoder(CommonLine)
_JOURNAL_LINES = msgspec.json.Decoder(JournalLine)
_RUN_STATES = msgspec.json.Decoder(WorkflowState)
_WORKFLOW_AGENTS = msgspec.json.Decoder(list[WorkflowAgent])
_RETRIED_ERRORS = msgspec.json.Decoder(RetriedError)
_TYPES = msgspec.json.Decoder(TypeOrKind)
_METAS = msgspec.json.Decoder(AgentMeta)
_RETRIES = msgspec.json.Decoder(SubagentRetry)
_USED_TYPES = frozenset({"assistant", "user", "system", "attachment", "api-request"})
_LARGEST_META = 1 << 16
_BRACE = ord("{")


def read_journal(path: Path, lines: LineReader) -> Findings:
    """The agents of a run, and the places of their results."""
    run = WorkflowRun(path.parent.name, journalled=True)
    for number, line in enumerate(lines, 1):
        record = decode(_JOURNAL_LINES, line)
        if record is None:
            lines.count_invalid()
        elif record.agent_id is not None:
            if record.type == "started":
                run.agents.append(record.agent_id)
            elif record.type == "result":
                run.results[record.agent_id] = f"{path}:{number}"
            if record.label is not None:
                run.labels[record.agent_id] = record.label
    return Findings(runs=[run])


def read_run_state(path: Path, lines: LineReader, *, written: datetime) -> Findings:
    """The agents of a run, and what was logged; the state is one line."""
    findings = Findings()
    # The file is in `<session>/workflows/`; nothing else names the session.
    session = path.parent.parent.name
    for line in lines:
        state = decode(_RUN_STATES, line)
        if state is None or not state.run_id:
            lines.count_invalid()
            continue
        run = WorkflowRun(state.run_id, state.task_id, logged=state.logs)
        for agent in state.workflow_progress:
            if agent.agent_id is not None:
                run.agents.append(agent.agent_id)
                run.stories.append(agent.story(session, state.run_id, path, written))
                if agent.label is not None:
                    run.labels[agent.agent_id] = agent.label
        findings.runs.append(run)
    return findings


class ClaudeTranscript:
    """Reads one saved transcript; `written` is when the file was last changed."""

    def __init__(self, path: Path, lines: LineReader, written: datetime) -> None:
        self._path = path
        self._lines = lines
        self._builder = StoryBuilder(path, client=CLIENT, provider=PROVIDER, written=written)
        self._conversation = ClaudeConversation(self._builder)
        self._request: TranscriptLine | None = None
        self._skipped: memoryview | None = None

    def read(self) -> Findings:
        """The story of the agent with this transcript, and what it received about others."""
        story = self._builder.story
        started = self._conversation.received.started
        add_common = self._conversation.add_common
        decode_common = _COMMON_LINES.decode
        for number, line in enumerate(self._lines, 1):
            if line[0] != _BRACE and not bytes(line[:64]).lstrip().startswith(b"{"):
                self._lines.count_invalid()
                continue
            if story.session_id:
                if len(line) > LONG:
                    if is_tool_output(line, but_not_of=started):
                        self._skipped = line
                        continue
                    if is_bookkeeping(line):
                        continue
                try:
                    common = decode_common(line)
                    if add_common(common, number):
                        self._skipped = self._request = None
                        continue
                    if common.type not in _USED_TYPES:
                        continue
                except INVALID:
                    # It is no common line: decoding it as a whole shows what it is.
                    pass
            self._add_whole(line, number)
        self._add_skipped()
        return self._findings()

    def _add_whole(self, line: memoryview, number: int) -> None:
        """Decode a line as a whole, and add it to the story."""
        record = decode(LINES, line)
        if record is None:
            self._lines.count_invalid()
            return
        message = record.message
        if record.type in ("assistant", "user") and message is not None:
            self._identify(record)
            if record.type == "assistant":
                self._request = None
                self._conversation.add_answer(record, message, number)
            elif not record.is_compact_summary:
                self._add_question(record)
            self._skipped = None
        elif record.type == "system" and record.subtype == "api_error":
            self._identify(record)
            self._add_retry(record)
        elif record.type == "api-request" and record.agent_id is not None:
            # A sub-agent's retry is written nowhere else: the same request once more.
            before, self._request = self._request, record
            if before is not None and before.request_digest == record.request_digest is not None:
                self._conversation.paused().add_retry(before.timestamp, None, None)
        elif record.type == "attachment" and record.attachment:
            attachment = decode(_TYPES, record.attachment)
            if attachment is not None and attachment.type == "max_turns_reached":
                self._add_skipped()
                self._conversation.paused().add_failure(
                    attachment.type,
                    stamp=record.timestamp,
                    body={"type": attachment.type, "subtype": "error_max_turns"},
                )

    def _add_skipped(self) -> None:
        """Add the skipped tool output, when no answer came after it."""
        line, self._skipped = self._skipped, None
        if line is not None:
            self._conversation.paused().ending = TranscriptEnd.CUT
            self._add_whole(line, 0)

    def _identify(self, record: TranscriptLine) -> None:
        story = self._builder.story
        if not story.session_id and record.session_id:
            story.session_id = record.session_id
            story.agent_id = record.agent_id or record.session_id
            if record.agent_id and record.is_sidechain is not False:
                story.role = Role.SUBAGENT
        story.cwd = story.cwd or record.cwd
        story.client_version = record.version or story.client_version

    def _add_question(self, record: TranscriptLine) -> None:
        if record.message is None:
            return
        origin = decode(_TYPES, record.origin) if record.origin else None
        if origin is not None and origin.kind == "task-notification":
            for note in Notification.parse_all(text_of(record.message.content)):
                self._conversation.received.add_notification(note, record.timestamp)
        self._conversation.add_question(record, record.message)
        if record.tool_ends_turn:
            self._builder.ending = TranscriptEnd.FINISHED

    def _add_retry(self, record: TranscriptLine) -> None:
        self._add_skipped()
        self._conversation.paused().saw_line(record.timestamp)
        error = decode(_RETRIED_ERRORS, record.error) if record.error else None
        error = error or RetriedError()
        self._builder.add_failure(
            error.formatted or error.message or "",
            stamp=record.timestamp,
            status=error.status,
            request_id=error.request_id,
            fatal=False,
        )

    def _findings(self) -> Findings:
        """Everything in the transcript; no story when it has no conversation."""
        received = self._conversation.received
        findings = Findings(reports=received.reports, launches=received.launches)
        story = self._builder.story
        if not self._builder.has_lines or not story.session_id:
            return findings
        self._conversation.finish()
        findings.stories.append(story)
        if story.role is Role.MAIN:
            return findings
        if self._path.parent.parent.name == "workflows":
            story.role = Role.WORKFLOW
            story.run_id = self._path.parent.name
        try:
            meta = decode(
                _METAS, read_beginning(self._path.with_suffix(".meta.json"), _LARGEST_META)
            )
        except OSError:
            return findings
        if meta is not None:
            story.agent_type = meta.agent_type
            story.label = meta.description
            if meta.tool_use_id is not None:
                findings.started_by[story.agent_id] = meta.tool_use_id
        return findings


class ClaudeLog:
    """Reads what `claude -p` printed; `written` is when the file was last changed."""

    def __init__(self, path: Path, written: datetime) -> None:
        self._path = path
        self._written = written
        self._now: str | None = None
        self._agents: dict[str, ClaudeConversation] = {}
        self._agent_of_call: dict[str, str] = {}
        self._schema_required = False
        self._workflow_agents: dict[str, dict[str, WorkflowAgent]] = {}
        self._session = ""
        self._result: tuple[str, str, bool, str | None] | None = None

    def read(self, lines: LineReader) -> Findings:
        """The stories of all agents whose lines were printed into this log."""
        for number, line in enumerate(lines, 1):
            record = decode(PRINTED_LINES, line)
            if record is None:
                lines.count_invalid()
            else:
                self._add(record, number)
        return self._findings()

    def _add(self, record: PrintedLine, number: int) -> None:
        """Add one printed line to the story it belongs to."""
        self._now = record.timestamp or self._now
        if record.session_id is None:
            return
        self._session = record.session_id
        if record.type == "system":
            self._add_notice(record)
        elif record.type == "assistant" and record.message is not None:
            self._conversation(record).add_answer(record, record.message, number)
        elif record.type == "user" and record.message is not None:
            self._conversation(record).add_question(record, record.message)
            self._check_agent_result(record)
        elif record.type == "result":
            self._add_result(record)
        elif record.type == "tool_progress" and record.subagent_retry:
            retry = decode(_RETRIES, record.subagent_retry) or SubagentRetry()
            builder = self._conversation(record).builder
            builder.add_retry(self._now, retry.error_status, retry.error_category)

    def _main(self) -> ClaudeConversation:
        return self._of_agent(self._session, Role.MAIN)

    def _of_agent(self, agent: str, role: Role) -> ClaudeConversation:
        found = self._agents.get(agent)
        if found is None:
            builder = StoryBuilder(
                self._path, client=CLIENT, provider=PROVIDER, written=self._written, role=role
            )
            builder.story.session_id, builder.story.agent_id = self._session, agent
            found = self._agents[agent] = ClaudeConversation(builder)
        return found

    def _conversation(self, record: PrintedLine) -> ClaudeConversation:
        """The conversation that a line belongs to: the main one, or that of a started agent."""
        call = record.parent_tool_use_id
        if call is None:
            return self._main()
        agent = record.agent_id or self._agent_of_call.get(call) or call
        self._agent_of_call.setdefault(call, agent)
        found = self._of_agent(agent, Role.SUBAGENT)
        story = found.builder.story
        story.parent_id = story.parent_id or self._session
        story.agent_type = record.subagent_type or story.agent_type
        return found

    def _add_notice(self, record: PrintedLine) -> None:
        if record.subtype == "init":
            story = self._main().builder.story
            story.cwd, story.model = record.cwd, record.model
            story.client_version = record.claude_code_version
            tools = decode(TEXTS, record.tools) if record.tools else None
            self._schema_required = STRUCTURED_OUTPUT_TOOL in (tools or ())
        elif record.subtype == "api_retry":
            tag = decode(TEXT, record.error) if record.error else None
            self._main().builder.add_retry(self._now, record.error_status, tag)
        elif record.subtype == "task_started" and record.task_id and record.tool_use_id:
            self._agent_of_call[record.tool_use_id] = record.task_id
            if record.task_type != "local_workflow":
                child = self._of_agent(record.task_id, Role.SUBAGENT).builder.story
                child.label = record.description
                child.agent_type = record.subagent_type
                child.parent_id = self._session
        elif record.subtype == "task_progress" and record.task_id and record.workflow_progress:
            agents = decode(_WORKFLOW_AGENTS, record.workflow_progress) or []
            known = self._workflow_agents.setdefault(record.task_id, {})
            known.update({agent.agent_id: agent for agent in agents if agent.agent_id is not None})
        elif record.subtype == "task_notification":
            self._add_notification(record)

    def _add_notification(self, record: PrintedLine) -> None:
        note = Notification(
            record.task_id, record.tool_use_id, record.status or "", record.summary or ""
        )
        self._main().received.add_notification(note, self._now)
        child = self._agents.get(record.task_id or "")
        if child is not None and child.builder.ending is not TranscriptEnd.FAILED:
            # A sub-agent's last answer is not printed: its notification replaces it.
            child.builder.ending = TranscriptEnd.FINISHED
            if note.is_error:
                child.builder.add_failure(note.summary, stamp=self._now)

    def _check_agent_result(self, record: PrintedLine) -> None:
        """Recognise a "completed" agent that cost nothing: its last answer was an error."""
        result = AgentResult.of(record.tool_use_result)
        child = self._agents.get(result.agent_id or "")
        if child is None or result.total_tokens != 0:
            return
        if child.builder.ending is not TranscriptEnd.FAILED:
            child.builder.add_failure(text_of(result.content), stamp=self._now)

    def _add_result(self, record: PrintedLine) -> None:
        """Add how the whole run ended, as reported to the user or the calling program."""
        main = self._main().builder
        main.saw_line(self._now)
        result = decode(TEXT, record.result) if record.result else None
        errors = decode(TEXTS, record.errors) if record.errors else None
        text = result or "\n".join(errors or ())
        is_error = bool(record.is_error)
        if text or is_error:
            self._result = (record.subtype or "", text, is_error, self._now)
        body: dict[str, Json] = {
            "type": "result",
            "subtype": record.subtype,
            "is_error": is_error,
        }
        if not is_error:
            main.ending = TranscriptEnd.FINISHED
            if self._schema_required and not record.structured_output:
                body["structured_output"] = None
                main.add_failure("", stamp=self._now, body=body, sure=False)
        elif main.ending is not TranscriptEnd.FAILED:
            main.add_failure(text, stamp=self._now, status=record.api_error_status, body=body)

    def _findings(self) -> Findings:
        findings = Findings()
        if self._result is not None:
            # A run with background work prints a result for each turn; people act on the last.
            claim, text, is_error, stamp = self._result
            main = self._main().builder
            main.add_report("result", claim, text, is_error=is_error, stamp=stamp)
        for conversation in self._agents.values():
            findings.reports += conversation.received.reports
            findings.launches += conversation.received.launches
            if conversation.builder.has_lines or conversation.builder.story.label is not None:
                findings.stories.append(conversation.finish())
        runs = {launch.task_id: launch.run_id for launch in findings.launches if launch.run_id}
        for task, agents in self._workflow_agents.items():
            run = WorkflowRun(runs.get(task) or task, task, agents=list(agents))
            run.labels = {name: agent.label for name, agent in agents.items() if agent.label}
            run.stories = [
                agent.story(self._session, run.run_id, self._path, self._written)
                for agent in agents.values()
            ]
            findings.runs.append(run)
        for call, agent in self._agent_of_call.items():
            findings.started_by.setdefault(agent, call)
        return findings
