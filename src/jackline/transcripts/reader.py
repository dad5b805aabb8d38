"""Read transcripts of any known kind, and join them: parents to children, reports to agents.

Rules: (1) a file is what its first lines say it is; (2) no content of a file can raise: it becomes
a problem of the report; (3) memory is bounded by the longest line allowed; (4) many files are read
by two worker processes, only where forking is safe; results come in the order of the files, the
work of a dead worker is repeated, and no worker outlives this process; (5) ids decide who belongs
together, and order only between agents of one run that nothing else separates; (6) an agent appears
once, by its transcript if there is one; (7) a report that fits no agent stays with its receiver.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TypeVar

import msgspec

from jackline.events import Announce, TranscriptsRead, to_nobody
from jackline.failures import Kind, Observation, classify
from jackline.foreign_files import open_foreign
from jackline.transcripts.claude_code import (
    ClaudeLog,
    ClaudeTranscript,
    read_journal,
    read_run_state,
)
from jackline.transcripts.codex import CodexRollout
from jackline.transcripts.findings import Findings, ReceivedReport, WorkflowRun
from jackline.transcripts.records import LineReader, decode
from jackline.transcripts.sources import Source
from jackline.transcripts.story import (
    SHOWN_TEXT,
    AgentReport,
    AgentStory,
    ReadProblem,
    Role,
    TranscriptEnd,
    TranscriptSet,
    time_of_epoch,
)

# Below this many bytes, worker processes cost more than they save.
_WORTH_WORKERS = 64 << 20
_BATCH = 4 << 20
_WORKERS = 2
# A log may begin with what a shell or a wrapper printed.
_LINES_TO_RECOGNISE = 100
_BYTES_TO_RECOGNISE = 4 << 20
# A transcript and a log may give the same report times this far apart.
_SAME_MOMENT = timedelta(seconds=2)
_MOST_QUOTES = 20
"""Texts of failures that are looked for in each report about their agent."""
_LONGEST_LABEL = 300

Work = TypeVar("Work")
Result = TypeVar("Result")


class FormatMarks(msgspec.Struct):
    """The fields whose presence separates the formats."""

    type: str | None = None
    session_id: str | None = None
    sessionId: str | None = None  # noqa: N815 -- the clients differ in exactly this
    payload: msgspec.Raw = msgspec.Raw(b"")
    timestamp: str | None = None
    key: str | None = None
    agentId: str | None = None  # noqa: N815
    runId: str | None = None  # noqa: N815
    workflowProgress: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815


_MARKS = msgspec.json.Decoder(FormatMarks)


def read(sources: Sequence[Source], *, announce: Announce = to_nobody) -> TranscriptSet:
    """Everything in the files; the order of the sources does not matter."""
    evidence = TranscriptSet()
    findings: list[Findings] = []
    sizes = [source.size for source in sources]
    sums = [0, *accumulate(sizes)]

    def on_progress(count: int) -> None:
        announce(TranscriptsRead(count, len(sources), sums[count], sums[-1]))

    for found, size in map_in_workers(_read_source, sources, sizes, on_progress=on_progress):
        evidence.problems += found.problems
        evidence.files_read += size is not None
        evidence.bytes_read += size or 0
        findings.append(found)
    evidence.stories = _Joiner().join(findings)
    return evidence


def map_in_workers(
    do: Callable[[Work], Result],
    work: Sequence[Work],
    sizes: Sequence[int],
    *,
    on_progress: Callable[[int], None],
) -> Iterator[Result]:
    """`do` of each piece of work, in order; in worker processes where there is much work.

    `on_progress` is called from time to time with the number of finished pieces.
    """
    if sum(sizes) < _WORTH_WORKERS or not _can_fork():
        for count, piece in enumerate(work, 1):
            yield do(piece)
            on_progress(count)
        return
    ends, held = [0], 0
    for position, size in enumerate(sizes, 1):
        held += size
        if held >= _BATCH or position == len(sizes):
            ends.append(position)
            held = 0
    batches = [work[start:end] for start, end in pairwise(ends)]
    strangers = set(multiprocessing.active_children())
    fork = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(_WORKERS, mp_context=fork, initializer=_start_worker)
    try:
        futures = [pool.submit(_do_batch, do, batch) for batch in batches]
        for end, batch, future in zip(ends[1:], batches, futures, strict=True):
            try:
                results = future.result()
            except BrokenProcessPool:
                results = _do_batch(do, batch)
            yield from results
            on_progress(end)
    except BaseException:
        # Ctrl-C, or the results are not needed any more: a batch in work must not delay the end.
        for worker in set(multiprocessing.active_children()) - strangers:
            worker.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _can_fork() -> bool:
    if sys.platform != "linux" or threading.active_count() > 1:
        return False
    return len(os.sched_getaffinity(0)) > 1


def _do_batch(do: Callable[[Work], Result], batch: Sequence[Work]) -> list[Result]:
    return [do(piece) for piece in batch]


def _start_worker() -> None:
    # Ctrl-C reaches all processes; only the first one shall answer it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        # The pool leaves its workers waiting when this process is killed.
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _read_source(source: Source) -> tuple[Findings, int | None]:
    """What is in one file, and how many bytes were read; None when it was not read at all."""
    path = source.path
    if source.problem is not None:
        return Findings(problems=[ReadProblem(path, source.problem)]), None
    try:
        with open_foreign(path) as file:
            lines = LineReader(file)
            found = _read_lines(path, lines)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        return Findings(problems=[ReadProblem(path, f"cannot be read: {reason}")]), None
    if found is None and not source.named:
        return Findings(), None
    if found is None:
        what = "not a transcript of a known kind" if lines.bytes_read else "an empty file"
        found = Findings(problems=[ReadProblem(path, what)])
    found.problems += lines.problems(path)
    return found, lines.bytes_read


def _read_lines(path: Path, lines: LineReader) -> Findings | None:
    """What the lines contain, or None for a file that is no transcript."""
    size = 0
    for count, line in enumerate(lines.peek(), 1):
        size += len(line)
        marks = decode(_MARKS, line)
        if marks is not None:
            written = time_of_epoch(path.stat().st_mtime) or datetime.now(UTC)
            if marks.workflowProgress and marks.runId is not None:
                return read_run_state(path, lines, written=written)
            if marks.payload and marks.timestamp is not None and marks.type is not None:
                return CodexRollout(path, written).read(lines)
            if marks.sessionId is not None and marks.type is not None:
                return ClaudeTranscript(path, lines, written).read()
            if marks.session_id is not None and marks.type is not None:
                return ClaudeLog(path, written).read(lines)
            is_entry = marks.type in ("started", "result", "failed")
            if is_entry and marks.agentId is not None and marks.key is not None:
                return read_journal(path, lines)
        if count >= _LINES_TO_RECOGNISE or size >= _BYTES_TO_RECOGNISE:
            break
    return None


class _KnownReports:
    """The reports of one story, so that each is found again without looking at all of them."""

    def __init__(self, story: AgentStory) -> None:
        texts = dict.fromkeys(seen.text for seen in story.failures if seen.text)
        self.quotes = list(texts)[-_MOST_QUOTES:]
        self._texts: set[tuple[str, str, str]] = set()
        self._times: dict[tuple[tuple[str, str, str], int | None], datetime | None] = {}
        for report in story.reports:
            self.add(report)

    def add(self, report: AgentReport) -> None:
        text = (report.reporter, report.claim, report.text)
        self._texts.add(text)
        self._times[text, _moment(report.at)] = report.at

    def has(self, report: AgentReport) -> bool:
        """Whether it is known: a transcript and a log can both contain the same report."""
        text = (report.reporter, report.claim, report.text)
        at, moment = report.at, _moment(report.at)
        if at is None or moment is None:
            return text in self._texts
        if (text, None) in self._times:
            return True
        near = (self._times.get((text, each)) for each in (moment - 1, moment, moment + 1))
        return any(known is not None and abs(at - known) < _SAME_MOMENT for known in near)


def _moment(at: datetime | None) -> int | None:
    """Which of the pieces of time it falls in, of which each is as long as the same moment."""
    return None if at is None else int(at.timestamp() // _SAME_MOMENT.total_seconds())


class _Joiner:
    """Joins the findings of all files by (session, agent) and (session, call)."""

    def __init__(self) -> None:
        self._stories: dict[tuple[str, str], AgentStory] = {}
        self._others: list[AgentStory] = []
        self._agent_of_call: dict[tuple[str, str], str] = {}
        self._caller_of: dict[tuple[str, str], str] = {}
        self._runs: dict[str, WorkflowRun] = {}
        self._run_of_task: dict[str, str] = {}
        self._known: dict[int, _KnownReports] = {}

    def join(self, findings: Sequence[Findings]) -> list[AgentStory]:
        """All stories, each with its parent, its result and the reports about it."""
        for found in findings:
            for run in found.runs:
                self._add_run(run)
        for found in findings:
            for story in found.stories:
                self._add_story(story)
        known = {agent for _, agent in self._stories}
        for run in self._runs.values():
            for story in run.stories:
                if story.agent_id not in known:
                    self._add_story(story)
        for found in findings:
            self._add_calls(found)
        self._set_parents()
        self._set_results()
        self._assign_reports([report for found in findings for report in found.reports])
        self._assign_logs()
        everyone = [*self._stories.values(), *self._others]
        for story in everyone:
            story.reports.sort(key=lambda r: (r.at is None, r.at.timestamp() if r.at else 0))
        return everyone

    def _add_story(self, story: AgentStory) -> None:
        key = (story.session_id, story.agent_id)
        known = self._stories.get(key)
        if known is None:
            self._stories[key] = story
            return
        if known.path == story.path:
            self._others.append(story)
            return
        # Two records of one agent: the fuller one, with what only the other one contains.
        fuller, other = (known, story) if known.turns >= story.turns else (story, known)
        fuller.reports += other.reports
        if all(seen.fatal for seen in fuller.failures):
            fuller.failures += [seen for seen in other.failures if not seen.fatal]
            fuller.failures.sort(key=lambda s: (s.at is None, s.at.timestamp() if s.at else 0))
        if other.ending is TranscriptEnd.FAILED and not any(s.fatal for s in fuller.failures):
            fuller.failures += [seen for seen in other.failures if seen.fatal]
            fuller.ending = TranscriptEnd.FAILED
        self._stories[key] = fuller

    def _add_run(self, run: WorkflowRun) -> None:
        known = self._runs.setdefault(run.run_id, run)
        if known is not run:
            known.task_id = known.task_id or run.task_id
            known.journalled = known.journalled or run.journalled
            known.agents += [agent for agent in run.agents if agent not in set(known.agents)]
            known.results |= run.results
            known.labels |= run.labels
            known.logged += run.logged
            known.stories += run.stories
        if run.task_id is not None:
            self._run_of_task[run.task_id] = run.run_id

    def _add_calls(self, found: Findings) -> None:
        sessions = {story.agent_id: story.session_id for story in found.stories}
        for agent, call in found.started_by.items():
            if agent in sessions:
                self._agent_of_call[sessions[agent], call] = agent
        for launch in found.launches:
            key = (launch.session_id, launch.tool_use_id)
            self._caller_of[key] = launch.starter_id
            if launch.agent_id is not None:
                self._agent_of_call[key] = launch.agent_id
            if launch.task_id is not None and launch.run_id is not None:
                self._run_of_task[launch.task_id] = launch.run_id

    def _set_parents(self) -> None:
        for (session, call), agent in self._agent_of_call.items():
            story = self._stories.get((session, agent))
            caller = self._caller_of.get((session, call))
            if story is not None and caller is not None and caller != agent:
                story.parent_id = caller
        for story in self._stories.values():
            if story.role is not Role.MAIN and story.parent_id is None:
                story.parent_id = story.session_id

    def _set_results(self) -> None:
        for run in self._runs.values():
            for story in self._of_run(run):
                story.run_id = story.run_id or run.run_id
                story.role = Role.WORKFLOW
                story.label = run.labels.get(story.agent_id, story.label)
                place = run.results.get(story.agent_id)
                if place is not None:
                    story.ending = TranscriptEnd.FINISHED
                if run.journalled:
                    story.result_at = place

    def _of_run(self, run: WorkflowRun) -> list[AgentStory]:
        members = dict.fromkeys(run.agents)
        found = {s.agent_id: s for s in self._stories.values() if s.agent_id in members}
        return [found[agent] for agent in members if agent in found]

    def _assign_reports(self, received: Iterable[ReceivedReport]) -> None:
        about_runs: dict[str, list[ReceivedReport]] = {}
        for each in received:
            run_id = self._run_of_task.get(each.task_id or "")
            if run_id is not None and run_id in self._runs:
                about_runs.setdefault(run_id, []).append(each)
                continue
            story = self._subject(each)
            if story is not None:
                self._add_report(story, each.report)
        for run_id, reports in about_runs.items():
            run = self._runs[run_id]
            receiver = self._stories.get((reports[0].session_id, reports[0].receiver_id))
            self._assign_to_run(run, [each.report for each in reports], receiver)
            run.logged.clear()

    def _subject(self, received: ReceivedReport) -> AgentStory | None:
        """The agent that a report is about; a task that is no run is the agent itself."""
        session = received.session_id
        by_call = self._agent_of_call.get((session, received.tool_use_id or ""))
        for agent in (received.agent_id, received.task_id, by_call):
            story = self._stories.get((session, agent)) if agent is not None else None
            if story is not None:
                return story
        receiver = self._stories.get((session, received.receiver_id))
        return receiver if received.report.is_error else None

    def _assign_to_run(
        self, run: WorkflowRun, reports: Sequence[AgentReport], receiver: AgentStory | None
    ) -> None:
        """Give each failure to the agent it names, the others to agents without a result."""
        waiting = [s for s in self._of_run(run) if s.agent_id not in run.results]
        without_result = bool(waiting)
        unnamed: list[AgentReport] = []
        labelled: dict[str, list[AgentStory]] = {}
        for story in reversed(waiting):
            if story.label:
                labelled.setdefault(f"[{story.label}]", []).append(story)
        named: set[int] = set()
        for report in reports:
            if not report.is_error:
                # The run was called a success although some of its agents returned nothing.
                if without_result and receiver is not None:
                    self._add_report(receiver, report)
                continue
            # Each beginning that may be the label of the agent in brackets.
            start = report.text[:_LONGEST_LABEL] if report.text.startswith("[") else ""
            ends = (at + 1 for at, sign in enumerate(start) if sign == "]")
            found = (labelled.get(start[:end]) for end in ends)
            if of_label := next(filter(None, found), None):
                story = of_label.pop()
                self._add_report(story, report)
                named.add(id(story))
            else:
                unnamed.append(report)
        left = (story for story in waiting if id(story) not in named)
        for report in unnamed:
            subject = next(left, receiver)
            if subject is not None:
                self._add_report(subject, report)

    def _assign_logs(self) -> None:
        """Use a run's own log where no transcript contains reports about the run."""
        for run in self._runs.values():
            ended = [s.ended_at for s in self._of_run(run) if s.ended_at is not None]
            if not run.logged or not ended:
                continue
            at = max(ended)
            reports = [
                AgentReport(at, "workflow log", "failed", line, is_error=True)
                for line in run.logged
                if classify(Observation.of_text(line), now=at).kind is not Kind.NOT_A_FAILURE
            ]
            self._assign_to_run(run, reports, None)

    def _add_report(self, story: AgentStory, report: AgentReport) -> None:
        """Add a report once, cut down to the lines that quote the agent's own failure, if any."""
        known = self._known.get(id(story))
        if known is None:
            known = self._known[id(story)] = _KnownReports(story)
        lines = report.text.splitlines()
        quoting = [line for line in lines if any(quote in line for quote in known.quotes)]
        cut = replace(report, text=("\n".join(quoting) or report.text)[:SHOWN_TEXT])
        if not known.has(cut):
            known.add(cut)
            story.reports.append(cut)
