"""Collect what one file contains: stories, workflow runs, and reports about other agents.

Rules: (1) plain values only; (2) a file without content is still a finding, with its problems; (3)
a report is recognised by its structure (ids, status fields, tags of a notification), never by its
text; (4) a report has the reporter's own claim, true or not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from jackline.transcripts.records import TranscriptBlock, blocks_of, decode, text_of
from jackline.transcripts.story import (
    LONGEST_REPORT,
    AgentReport,
    AgentStory,
    ReadProblem,
    parse_time,
)

# The tools that start an agent or a run of agents; older clients call the first one Task.
STARTING_TOOLS = frozenset({"Agent", "Task", "Workflow"})
_GOOD_STATES = frozenset({"completed", "success", "done"})


@dataclass(frozen=True, slots=True)
class ReceivedReport:
    """A report about an agent or a run, with its ids and the agent that received it."""

    report: AgentReport
    session_id: str
    receiver_id: str
    agent_id: str | None = None
    tool_use_id: str | None = None
    task_id: str | None = None


@dataclass(frozen=True, slots=True)
class AgentLaunch:
    """An agent or run that a tool call of `starter_id` started."""

    session_id: str
    starter_id: str
    tool_use_id: str
    agent_id: str | None = None
    task_id: str | None = None
    run_id: str | None = None


class AgentResult(msgspec.Struct, rename="camel"):
    """What the client saves beside a tool result that came from an agent or a run."""

    status: str | None = None
    agent_id: str | None = None
    task_id: str | None = None
    run_id: str | None = None
    total_tokens: int | None = None
    content: msgspec.Raw = msgspec.Raw(b"")

    @classmethod
    def of(cls, data: msgspec.Raw) -> AgentResult:
        """The decoded fields; all empty where the client saved only text."""
        return (decode(_RESULTS, data) if data else None) or cls()


_RESULTS = msgspec.json.Decoder(AgentResult)


@dataclass(frozen=True, slots=True)
class Notification:
    """The client's notification that a background task ended."""

    task_id: str | None
    tool_use_id: str | None
    status: str
    summary: str
    failures: tuple[str, ...] = ()
    result: str = ""

    @property
    def is_error(self) -> bool:
        """Whether the client itself reports a failure."""
        return self.status not in _GOOD_STATES

    @classmethod
    def parse_all(cls, text: str) -> list[Notification]:
        """All notifications in a text, or the text as one where it has no such tags."""
        begin, end = "<task-notification>", "</task-notification>"
        found = []
        start = text.find(begin)
        while start >= 0 and (stop := text.find(end, start)) >= 0:
            found.append(cls._parse(text[start + len(begin) : stop]))
            start = text.find(begin, stop)
        return found or [cls._parse(text)]

    @classmethod
    def _parse(cls, text: str) -> Notification:
        def content_of(tag: str, *, up_to_last: bool = False) -> str:
            # Not by a pattern: thousands of opening tags would take it hours.
            begin = text.find(f"<{tag}>")
            start = begin + len(tag) + 2
            search = text.rfind if up_to_last else text.find
            end = search(f"</{tag}>", start) if begin >= 0 else -1
            return "" if end < 0 else text[start:end].strip()

        return cls(
            task_id=content_of("task-id") or None,
            tool_use_id=content_of("tool-use-id") or None,
            status=content_of("status"),
            summary=content_of("summary") or content_of("error"),
            failures=tuple(f for f in content_of("failures").splitlines() if f.strip()),
            # The agent's own text may contain the tag.
            result=content_of("result", up_to_last=True),
        )


class ReportCollector:
    """What one agent received about the agents that it started.

    `story` is the receiving agent's: its ids are known before it can start another.
    """

    def __init__(self, story: AgentStory) -> None:
        self._story = story
        self.reports: list[ReceivedReport] = []
        self.launches: list[AgentLaunch] = []
        self.started: set[str] = set()

    def add_call(self, block: TranscriptBlock) -> None:
        """Add a tool call, if it is one that starts agents."""
        if block.name in STARTING_TOOLS and block.id is not None:
            self.started.add(block.id)
            launch = AgentLaunch(self._story.session_id, self._story.agent_id, block.id)
            self.launches.append(launch)

    def add_results(self, content: msgspec.Raw, saved: msgspec.Raw, stamp: str | None) -> None:
        """Add the results of started agents; other tools' results are ignored."""
        session, agent = self._story.session_id, self._story.agent_id
        for block in blocks_of(content):
            call = block.tool_use_id
            if block.type != "tool_result" or call is None or call not in self.started:
                continue
            about = AgentResult.of(saved)
            ids = (about.agent_id, about.task_id, about.run_id)
            self.launches.append(AgentLaunch(session, agent, call, *ids))
            claim = about.status or ("error" if block.is_error else "completed")
            if claim.endswith("_launched"):
                continue  # the agent has only been started
            text = (text_of(about.content) or text_of(block.content))[:LONGEST_REPORT]
            is_error = bool(block.is_error) or claim not in _GOOD_STATES
            report = AgentReport(parse_time(stamp), "tool result", claim, text, is_error)
            self.reports.append(
                ReceivedReport(report, session, agent, about.agent_id, call, about.task_id)
            )

    def add_notification(self, note: Notification, stamp: str | None) -> None:
        """Add each failure that a notification lists, and its status of the whole."""
        claims = [("failed", failure, True) for failure in note.failures]
        # A list of failures explains a bad end of the whole; a good end is a claim of its own.
        if not claims or not note.is_error:
            claims.append((note.status, note.summary, note.is_error))
        for claim, text, is_error in claims:
            report = AgentReport(
                parse_time(stamp), "task notification", claim, text[:LONGEST_REPORT], is_error
            )
            ids = (self._story.session_id, self._story.agent_id)
            self.reports.append(ReceivedReport(report, *ids, None, note.tool_use_id, note.task_id))


@dataclass(slots=True)
class WorkflowRun:
    """One run of a workflow: its agents, their results, and what was logged as failed.

    `results` maps agents to the place of their result; `labels` to the names in the script. Only
    in a `journalled` run does an agent that is not in `results` have no result.
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
    """Everything that was found in one file."""

    stories: list[AgentStory] = field(default_factory=list)
    reports: list[ReceivedReport] = field(default_factory=list)
    launches: list[AgentLaunch] = field(default_factory=list)
    runs: list[WorkflowRun] = field(default_factory=list)
    started_by: dict[str, str] = field(default_factory=dict)
    problems: list[ReadProblem] = field(default_factory=list)
