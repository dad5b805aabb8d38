"""Read what `claude -p --output-format stream-json` printed: one log, the main agent and its own.

Laws: (1) `is_error` tells whether a run failed, for `subtype` says "success" of failed runs too;
(2) a retry is a line `api_retry`, or a progress line that bears a `subagent_retry`; (3) where a
transcript of the same agent was read too, that transcript counts (binding.py).
Not here: transcripts (claude_code.py), what an answer means (conversation.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import msgspec

from jackline.autopsy.conversation import CLIENT, PROVIDER, Conversation
from jackline.autopsy.findings import Findings, Run, Tally
from jackline.autopsy.records import PrintedLine, decode, text_of
from jackline.autopsy.recount import Recount
from jackline.autopsy.reports import Notification, result_of
from jackline.autopsy.story import Ending, Role
from jackline.autopsy.workflow import Seat, story_of
from jackline.failures import Json

STRUCTURED_OUTPUT = "StructuredOutput"


class SubagentRetry(msgspec.Struct):
    """A retry of a sub-agent's request, as its parent's progress shows it."""

    error_status: int | None = None
    error_category: str | None = None


_LINES = msgspec.json.Decoder(PrintedLine)
_RETRIES = msgspec.json.Decoder(SubagentRetry)
_SEATS = msgspec.json.Decoder(list[Seat])
_WORDS = msgspec.json.Decoder(str)
_WORD_LISTS = msgspec.json.Decoder(list[str])


def read_log(
    path: Path, lines: Iterable[memoryview], tally: Tally, *, written: datetime
) -> Findings:
    """The stories of all agents whose lines were printed into this log."""
    log = _Log(path, written)
    for number, line in enumerate(lines, 1):
        record = decode(_LINES, line)
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
        self._agents: dict[str, Conversation] = {}
        self._agent_of_call: dict[str, str] = {}
        self._schema_asked = False
        self._seats: dict[str, dict[str, Seat]] = {}
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

    def _conversation(self, record: PrintedLine) -> Conversation:
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

    def _of_agent(self, session: str, agent: str, role: Role) -> Conversation:
        found = self._agents.get(agent)
        if found is None:
            recount = Recount(
                self._path, client=CLIENT, provider=PROVIDER, written=self._written, role=role
            )
            recount.story.session_id, recount.story.agent_id = session, agent
            found = self._agents[agent] = Conversation(recount)
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
        if child is not None and child.recount.ending is not Ending.FAILED:
            # A sub-agent's last answer is not printed: its notification stands for it.
            child.recount.ending = Ending.FINISHED
            if note.is_error:
                child.recount.failed(note.summary, stamp=self._now)

    def _take_agent_result(self, record: PrintedLine) -> None:
        """See through a "completed" agent that cost nothing: its last answer was an error."""
        result = result_of(record.tool_use_result)
        child = self._agents.get(result.agent_id or "")
        if child is None or child.recount.ending is Ending.FAILED or result.total_tokens != 0:
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
            main.ending = Ending.FINISHED
            if self._schema_asked and not record.structured_output:
                body: Json = {
                    "type": "result",
                    "subtype": record.subtype,
                    "is_error": False,
                    "structured_output": None,
                }
                main.failed("", stamp=self._now, body=body, sure=False)
        elif main.ending is not Ending.FAILED:
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
            run = Run(runs.get(task) or task, task, agents=list(seats))
            run.labels = {agent: seat.label for agent, seat in seats.items() if seat.label}
            run.stories = [
                story_of(seat, self._session, run.run_id, self._path, self._written)
                for seat in seats.values()
            ]
            findings.runs.append(run)
        for call, agent in self._agent_of_call.items():
            findings.started_by.setdefault(agent, call)
        return findings
