"""Collect what one file contains: stories, workflow runs, and reports about other agents.

Rules: (1) plain values only; (2) a file without content is still a finding, with its problems; (3)
a report is recognised by its structure (ids, status fields, tags of a notification), never by its
words; (4) a report has the reporter's own claim, true or not.
Not here: reading (transcripts/claude_code.py, transcripts/codex.py), joining findings (reader.py),
whether a report was true (autopsy/agent_reports.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from jackline.transcripts.records import (
    LONGEST_LINE,
    LineReader,
    TranscriptBlock,
    blocks_of,
    decode,
    text_of,
)
from jackline.transcripts.story import AgentReport, AgentStory, ReadProblem, moment

# The tools that start an agent or a run of agents; older clients call the first one Task.
STARTING_TOOLS = frozenset({"Agent", "Task", "Workflow"})

# Long enough for the error's words, wherever they are; reader.py cuts it to what is shown.
KEPT_TEXT = 4_000

_TAG = re.compile(r"<(task-id|tool-use-id|status|summary|failures|error)>(.*?)</\1>", re.DOTALL)
_QUIET_STATES = frozenset({"completed", "success", "done"})
_LISTED = "failed"


@dataclass(frozen=True, slots=True)
class ReceivedReport:
    """What was told about one agent, or about one run of agents, by whichever ids it came with."""

    told: AgentReport
    session_id: str
    reporter_id: str
    agent_id: str | None = None
    tool_use_id: str | None = None
    task_id: str | None = None


@dataclass(frozen=True, slots=True)
class AgentLaunch:
    """An agent or run that a tool call started."""

    session_id: str
    reporter_id: str
    tool_use_id: str
    agent_id: str | None = None
    task_id: str | None = None
    run_id: str | None = None


class LineOrigin(msgspec.Struct):
    """Where a user line came from, when no user wrote it."""

    kind: str | None = None


class AgentResult(msgspec.Struct, rename="camel"):
    """What the client keeps beside a tool result that came from an agent or a run."""

    status: str | None = None
    agent_id: str | None = None
    task_id: str | None = None
    run_id: str | None = None
    total_tokens: int | None = None
    content: msgspec.Raw = msgspec.Raw(b"")


_ORIGINS = msgspec.json.Decoder(LineOrigin)
_RESULTS = msgspec.json.Decoder(AgentResult)


@dataclass(frozen=True, slots=True)
class Notification:
    """The tags of a notification that a background task ended."""

    task_id: str | None
    tool_use_id: str | None
    status: str
    summary: str
    failures: tuple[str, ...]

    @property
    def is_error(self) -> bool:
        """Whether the notification itself speaks of a failure."""
        return is_bad(self.status)


def is_bad(claim: str) -> bool:
    """Whether a status word of the client means that something went wrong."""
    return claim not in _QUIET_STATES


def is_notification(origin: msgspec.Raw) -> bool:
    """Whether a user line was written by the client to tell how a background task ended."""
    found = decode(_ORIGINS, origin) if origin else None
    return found is not None and found.kind == "task-notification"


def read_notification(text: str) -> Notification:
    """The tags in a notification's text; the rest of it is for the model."""
    tags: dict[str, str] = {}
    for name, value in _TAG.findall(text):
        tags.setdefault(name, value.strip())
    return Notification(
        task_id=tags.get("task-id"),
        tool_use_id=tags.get("tool-use-id"),
        status=tags.get("status", ""),
        summary=tags.get("summary") or tags.get("error", ""),
        failures=tuple(f for f in tags.get("failures", "").splitlines() if f.strip()),
    )


def result_of(kept: msgspec.Raw) -> AgentResult:
    """What is kept beside a tool result; where only words are kept, nothing is known."""
    return (decode(_RESULTS, kept) if kept else None) or AgentResult()


class ReportCollector:
    """What one agent was told of the agents that it started.

    `of` is the listening agent's story: its ids are known before it can start anyone.
    """

    def __init__(self, of: AgentStory) -> None:
        self._of = of
        self.reports: list[ReceivedReport] = []
        self.launches: list[AgentLaunch] = []
        self.started: set[str] = set()

    def calls(self, block: TranscriptBlock) -> None:
        """Note a tool call, if it is one that starts agents."""
        if block.name in STARTING_TOOLS and block.id is not None:
            self.started.add(block.id)
            self.launches.append(AgentLaunch(self._of.session_id, self._of.agent_id, block.id))

    def results(self, content: msgspec.Raw, kept: msgspec.Raw, stamp: str | None) -> None:
        """Keep what the results of started agents say; other tools' results say nothing here."""
        for block in blocks_of(content):
            call = block.tool_use_id
            if block.type != "tool_result" or call is None or call not in self.started:
                continue
            about = result_of(kept)
            session, reporter = self._of.session_id, self._of.agent_id
            self.launches.append(
                AgentLaunch(session, reporter, call, about.agent_id, about.task_id, about.run_id)
            )
            told = _told_by_result(block, about, stamp)
            if told is not None:
                self.reports.append(
                    ReceivedReport(told, session, reporter, about.agent_id, call, about.task_id)
                )

    def notified(self, note: Notification, stamp: str | None) -> None:
        """Keep what a notification says: each failure it lists, and what it calls the whole."""
        at = moment(stamp)
        tellings = [(_LISTED, failure, True) for failure in note.failures]
        # A list of failures explains a bad end of the whole; a good end stands beside it.
        if not tellings or not note.is_error:
            tellings.append((note.status, note.summary, note.is_error))
        for claim, text, is_error in tellings:
            told = AgentReport(at, "task notification", claim, text[:KEPT_TEXT], is_error)
            self.reports.append(
                ReceivedReport(
                    told,
                    self._of.session_id,
                    self._of.agent_id,
                    None,
                    note.tool_use_id,
                    note.task_id,
                )
            )


def _told_by_result(
    block: TranscriptBlock, about: AgentResult, stamp: str | None
) -> AgentReport | None:
    """What the parent learnt from a tool result; None when the agent has only been started."""
    claim = about.status or ("error" if block.is_error else "completed")
    if claim.endswith("_launched"):
        return None
    text = text_of(about.content) or text_of(block.content)
    is_error = bool(block.is_error) or is_bad(claim)
    return AgentReport(moment(stamp), "tool result", claim, text[:KEPT_TEXT], is_error)


@dataclass(slots=True)
class WorkflowRun:
    """One run of a workflow: who took part, who returned a result, and what was logged as failed.

    `results` maps agents to where their result stands; `labels` to the names the script gave them.
    Only where the run is `journalled` does an agent that is not in `results` have no result.
    """

    run_id: str
    task_id: str | None = None
    journalled: bool = False
    agents: list[str] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    logged: list[str] = field(default_factory=list)
    stories: list[AgentStory] = field(default_factory=list)


@dataclass(slots=True)
class Findings:
    """Everything that one file gave."""

    stories: list[AgentStory] = field(default_factory=list)
    reports: list[ReceivedReport] = field(default_factory=list)
    launches: list[AgentLaunch] = field(default_factory=list)
    runs: list[WorkflowRun] = field(default_factory=list)
    started_by: dict[str, str] = field(default_factory=dict)
    problems: list[ReadProblem] = field(default_factory=list)


class UnreadableLines:
    """Count the lines of one file that made no sense."""

    def __init__(self, lines: LineReader) -> None:
        self._lines = lines
        self._broken = 0
        self._half_written = 0

    def unreadable(self) -> None:
        """Count the line that is being handed out as one without sense."""
        if self._lines.unfinished:
            self._half_written += 1
        else:
            self._broken += 1

    def problems(self, path: Path) -> list[ReadProblem]:
        """What has to be said about the file at the end."""
        told = (
            (self._broken, "lines that are not JSON, or not of a known shape"),
            (self._half_written, "half-written last line"),
            (self._lines.oversized, f"lines over {LONGEST_LINE >> 20} MB, passed over"),
        )
        return [ReadProblem(path, what, count) for count, what in told if count]
