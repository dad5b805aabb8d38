"""Read transcripts of any known kind, and join them: parents to children, reports to agents.

Rules: (1) a file is what its first lines say it is; (2) no content of a file can raise: it becomes
a problem of the report; (3) memory is bounded by the longest line allowed; (4) many files are
shared with one helper process at most, only where forking is safe; results come in the order of the
files, and the work of a dead helper is repeated; (5) ids decide who belongs together, and order
only between agents of one run that nothing else separates; (6) an agent appears once, by its
transcript if there is one; (7) a report that fits no agent stays with the agent that received it.
Not here: which files (transcripts/sources.py), what their lines mean (transcripts/claude_code.py,
transcripts/codex.py).
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from itertools import accumulate, chain
from pathlib import Path
from typing import TypeVar

import msgspec

from jackline.events import Announce, TranscriptsRead, to_nobody
from jackline.failures import Kind, Observation, classify
from jackline.foreign_files import open_foreign
from jackline.transcripts.claude_code import read_journal, read_log, read_run_state, read_transcript
from jackline.transcripts.codex import read_rollout
from jackline.transcripts.findings import (
    AgentLaunch,
    Findings,
    ReceivedReport,
    UnreadableLines,
    WorkflowRun,
)
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
    moment_of_epoch,
)

# Below this much work, a helper costs more than it saves.
WORTH_A_HELPER = 64 << 20
BATCH = 4 << 20

_TICKET = 4
# As many tickets as surely fit into a pipe; work beyond them is left to the first process.
_TICKETS = 8_000

Work = TypeVar("Work")
Answer = TypeVar("Answer")


def share(
    do: Callable[[Work], Answer],
    work: Sequence[Work],
    sizes: Sequence[int],
    *,
    reached: Callable[[int], None],
) -> Iterator[Answer]:
    """What `do` makes of each piece of work, in order; the answers must be picklable.

    `reached` hears from time to time how many pieces have been dealt with.
    """
    if sum(sizes) < WORTH_A_HELPER or not _can_share():
        for count, piece in enumerate(work, 1):
            yield do(piece)
            reached(count)
        return
    batches = list(_batches(work, sizes))
    answers = _with_helper(do, batches, reached)
    for number, batch in enumerate(batches):
        yield from answers.pop(number, None) or map(do, batch)
    reached(len(work))


def _can_share() -> bool:
    if sys.platform != "linux" or threading.active_count() > 1:
        return False
    return len(os.sched_getaffinity(0)) > 1


def _batches(work: Sequence[Work], sizes: Sequence[int]) -> Iterator[list[Work]]:
    batch: list[Work] = []
    held = 0
    for piece, size in zip(work, sizes, strict=True):
        batch.append(piece)
        held += size
        if held >= BATCH:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _with_helper(
    do: Callable[[Work], Answer],
    batches: Sequence[list[Work]],
    reached: Callable[[int], None],
) -> dict[int, list[Answer]]:
    """The answers to all batches; both processes draw tickets for the next one from one pipe."""
    draw, fill = os.pipe()
    take, give = os.pipe()
    os.write(fill, b"".join(n.to_bytes(_TICKET) for n in range(min(len(batches), _TICKETS))))
    os.close(fill)
    helper = os.fork()
    if helper == 0:
        _help(do, batches, draw, give)
    os.close(give)
    status = 1
    try:
        answers = _work(do, batches, draw, reached)
        with os.fdopen(take, "rb") as results:
            given = results.read()
        status = os.waitpid(helper, 0)[1]
    finally:
        os.close(draw)
        if status:
            _dismiss(helper)
    if status == 0:
        answers |= pickle.loads(given)  # noqa: S301 -- written by our own child, a moment ago
    return answers


def _work(
    do: Callable[[Work], Answer],
    batches: Sequence[list[Work]],
    draw: int,
    reached: Callable[[int], None],
) -> dict[int, list[Answer]]:
    answers: dict[int, list[Answer]] = {}
    while ticket := os.read(draw, _TICKET):
        number = int.from_bytes(ticket)
        answers[number] = [do(piece) for piece in batches[number]]
        reached(sum(len(batch) for batch in batches[:number]))
    return answers


def _help(
    do: Callable[[Work], Answer], batches: Sequence[list[Work]], draw: int, give: int
) -> None:
    """Work as the helper, and leave without running anything that belongs to the first process."""
    status = 1
    try:
        # Ctrl-C reaches both; only the first process shall answer it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        answers = _work(do, batches, draw, lambda _count: None)
        with os.fdopen(give, "wb") as results:
            pickle.dump(answers, results, pickle.HIGHEST_PROTOCOL)
        status = 0
    finally:
        os._exit(status)


def _dismiss(helper: int) -> None:
    """End a helper that is not needed any more, or that has ended by itself."""
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(helper, signal.SIGKILL)
        os.waitpid(helper, 0)


_Key = tuple[str, str]
_ONE_MOMENT = timedelta(seconds=2)


@dataclass(slots=True)
class _Whole:
    """All findings, by the ids that join them."""

    stories: dict[_Key, AgentStory] = field(default_factory=dict)
    others: list[AgentStory] = field(default_factory=list)
    agent_of_call: dict[_Key, str] = field(default_factory=dict)
    caller_of: dict[_Key, str] = field(default_factory=dict)
    runs: dict[str, WorkflowRun] = field(default_factory=dict)
    run_of_task: dict[str, str] = field(default_factory=dict)


def bind(findings: Sequence[Findings]) -> list[AgentStory]:
    """All stories, each with its parent, its result and what was told about it."""
    whole = _Whole()
    for found in findings:
        for run in found.runs:
            _add_run(whole, run)
    for found in findings:
        for story in found.stories:
            _add_story(whole, story)
    _add_runs_without_transcripts(whole)
    for found in findings:
        _add_calls(whole, found)
    _set_parents(whole)
    _set_results(whole)
    _hand_out_reports(whole, [report for found in findings for report in found.reports])
    _hand_out_logs(whole)
    everyone = [*whole.stories.values(), *whole.others]
    for story in everyone:
        story.reports.sort(
            key=lambda told: (told.at is None, told.at.timestamp() if told.at else 0)
        )
    return everyone


def _add_story(whole: _Whole, story: AgentStory) -> None:
    key = (story.session_id, story.agent_id)
    known = whole.stories.get(key)
    if known is None:
        whole.stories[key] = story
    elif known.path == story.path:
        whole.others.append(story)
    else:
        whole.stories[key] = _merged(known, story)


def _merged(one: AgentStory, other: AgentStory) -> AgentStory:
    """The fuller of two tellings of one agent, with what only the other one knew."""
    fuller, thinner = (one, other) if one.turns >= other.turns else (other, one)
    fuller.reports += thinner.reports
    if all(sighting.fatal for sighting in fuller.failures):
        fuller.failures += [s for s in thinner.failures if not s.fatal]
        fuller.failures.sort(key=lambda s: (s.at is None, s.at.timestamp() if s.at else 0))
    if thinner.ending is TranscriptEnd.FAILED and not any(s.fatal for s in fuller.failures):
        fuller.failures += [s for s in thinner.failures if s.fatal]
        fuller.ending = TranscriptEnd.FAILED
    return fuller


def _add_run(whole: _Whole, run: WorkflowRun) -> None:
    known = whole.runs.setdefault(run.run_id, run)
    if known is not run:
        known.task_id = known.task_id or run.task_id
        known.journalled = known.journalled or run.journalled
        known.agents += [agent for agent in run.agents if agent not in set(known.agents)]
        known.results |= run.results
        known.labels |= run.labels
        known.logged += run.logged
        known.stories += run.stories
    if run.task_id is not None:
        whole.run_of_task[run.task_id] = run.run_id


def _add_runs_without_transcripts(whole: _Whole) -> None:
    known = {agent for _, agent in whole.stories}
    for run in whole.runs.values():
        for story in run.stories:
            if story.agent_id not in known:
                _add_story(whole, story)


def _add_calls(whole: _Whole, found: Findings) -> None:
    sessions = {story.agent_id: story.session_id for story in found.stories}
    for agent, call in found.started_by.items():
        session = sessions.get(agent)
        if session is not None:
            whole.agent_of_call[session, call] = agent
    for launch in found.launches:
        _add_launch(whole, launch)


def _add_launch(whole: _Whole, launch: AgentLaunch) -> None:
    key = (launch.session_id, launch.tool_use_id)
    whole.caller_of[key] = launch.reporter_id
    if launch.agent_id is not None:
        whole.agent_of_call[key] = launch.agent_id
    if launch.task_id is not None and launch.run_id is not None:
        whole.run_of_task[launch.task_id] = launch.run_id


def _set_parents(whole: _Whole) -> None:
    for (session, call), agent in whole.agent_of_call.items():
        story = whole.stories.get((session, agent))
        caller = whole.caller_of.get((session, call))
        if story is not None and caller is not None and caller != agent:
            story.parent_id = caller
    for story in whole.stories.values():
        if story.role is not Role.MAIN and story.parent_id is None:
            story.parent_id = story.session_id


def _set_results(whole: _Whole) -> None:
    for run in whole.runs.values():
        for story in _of_run(whole, run):
            story.run_id = story.run_id or run.run_id
            story.role = Role.WORKFLOW
            story.label = run.labels.get(story.agent_id, story.label)
            kept = run.results.get(story.agent_id)
            if kept is not None:
                story.ending = TranscriptEnd.FINISHED
            if run.journalled:
                story.result_at = kept


def _of_run(whole: _Whole, run: WorkflowRun) -> list[AgentStory]:
    members = dict.fromkeys(run.agents)
    found = {s.agent_id: s for s in whole.stories.values() if s.agent_id in members}
    return [found[agent] for agent in members if agent in found]


def _hand_out_reports(whole: _Whole, reports: Iterable[ReceivedReport]) -> None:
    about_runs: dict[str, list[ReceivedReport]] = {}
    for report in reports:
        run_id = whole.run_of_task.get(report.task_id or "")
        if run_id is not None and run_id in whole.runs:
            about_runs.setdefault(run_id, []).append(report)
            continue
        story = _subject(whole, report)
        if story is not None:
            _tell(story, report.told)
    for run_id, told in about_runs.items():
        run = whole.runs[run_id]
        reporter = whole.stories.get((told[0].session_id, told[0].reporter_id))
        _hand_out_to_run(whole, run, [report.told for report in told], reporter)
        run.logged.clear()


def _subject(whole: _Whole, report: ReceivedReport) -> AgentStory | None:
    """The agent that a report speaks of; a task that is no run is the agent itself."""
    session = report.session_id
    by_call = whole.agent_of_call.get((session, report.tool_use_id or ""))
    for agent in (report.agent_id, report.task_id, by_call):
        story = whole.stories.get((session, agent)) if agent is not None else None
        if story is not None:
            return story
    return whole.stories.get((session, report.reporter_id)) if report.told.is_error else None


def _hand_out_to_run(
    whole: _Whole, run: WorkflowRun, tellings: Sequence[AgentReport], reporter: AgentStory | None
) -> None:
    """Give each failure of a run to the agent it names, the others to those without a result."""
    waiting = [s for s in _of_run(whole, run) if s.agent_id not in run.results]
    without_result = bool(waiting)
    unnamed: list[AgentReport] = []
    for told in tellings:
        if not told.is_error:
            # The run was called a success although some of its agents gave nothing.
            if without_result and reporter is not None:
                _tell(reporter, told)
            continue
        named = [s for s in waiting if s.label and told.text.startswith(f"[{s.label}]")]
        if named:
            _tell(named[0], told)
            waiting.remove(named[0])
        else:
            unnamed.append(told)
    for told in unnamed:
        subject = waiting.pop(0) if waiting else reporter
        if subject is not None:
            _tell(subject, told)


def _hand_out_logs(whole: _Whole) -> None:
    """Use a run's own log where nobody's transcript shows what was told of the run."""
    for run in whole.runs.values():
        stories = _of_run(whole, run)
        ended = [story.ended_at for story in stories if story.ended_at is not None]
        if not run.logged or not ended:
            continue
        at = max(ended)
        tellings = [
            AgentReport(at, "workflow log", "failed", line, is_error=True)
            for line in run.logged
            if classify(Observation.of_text(line), now=at).kind is not Kind.NOT_A_FAILURE
        ]
        _hand_out_to_run(whole, run, tellings, None)


def _tell(story: AgentStory, told: AgentReport) -> None:
    """Add a report, cut down to the lines that quote the agent's own failure, if any do."""
    quotes = [s.text for s in story.failures if s.text]
    quoting = [line for line in told.text.splitlines() if any(q in line for q in quotes)]
    text = ("\n".join(quoting) or told.text)[:SHOWN_TEXT]
    if not any(_same_telling(told, text, known) for known in story.reports):
        story.reports.append(replace(told, text=text))


def _same_telling(told: AgentReport, text: str, known: AgentReport) -> bool:
    """Whether a transcript and a log tell of the same report."""
    if (told.reporter, told.claim, text) != (known.reporter, known.claim, known.text):
        return False
    return told.at is None or known.at is None or abs(told.at - known.at) < _ONE_MOMENT


# A log may begin with what a shell or a wrapper printed before the client spoke.
_LINES_TO_RECOGNISE = 100
_BYTES_TO_RECOGNISE = 4 << 20


class Format(Enum):
    """The kinds of files that can be read."""

    TRANSCRIPT = auto()
    PRINTED_LOG = auto()
    ROLLOUT = auto()
    JOURNAL = auto()
    RUN_STATE = auto()


class Marks(msgspec.Struct):
    """The fields whose presence tells the kinds apart."""

    type: str | None = None
    session_id: str | None = None
    sessionId: str | None = None  # noqa: N815 -- the clients differ in exactly this
    payload: msgspec.Raw = msgspec.Raw(b"")
    timestamp: str | None = None
    key: str | None = None
    agentId: str | None = None  # noqa: N815
    runId: str | None = None  # noqa: N815
    workflowProgress: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815


_MARKS = msgspec.json.Decoder(Marks)
_JOURNAL_TYPES = frozenset({"started", "result", "failed"})


def read(sources: Sequence[Source], *, announce: Announce = to_nobody) -> TranscriptSet:
    """All that the files tell; the order of the sources does not matter."""
    evidence = TranscriptSet()
    findings: list[Findings] = []
    sizes = [source.size for source in sources]
    sums = [0, *accumulate(sizes)]

    def reached(count: int) -> None:
        announce(TranscriptsRead(count, len(sources), sums[count], sums[-1]))

    for found, size in share(_read_source, sources, sizes, reached=reached):
        evidence.problems += found.problems
        evidence.files_read += size is not None
        evidence.bytes_read += size or 0
        findings.append(found)
    evidence.stories = bind(findings)
    return evidence


def _read_source(source: Source) -> tuple[Findings, int | None]:
    """What one file gave, and how many bytes were read; None when it was not read at all."""
    path = source.path
    if source.problem is not None:
        return Findings(problems=[ReadProblem(path, source.problem)]), None
    try:
        with open_foreign(path) as file:
            lines = LineReader(file)
            found = _read_lines(path, lines, named=source.named)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        return Findings(problems=[ReadProblem(path, f"cannot be read: {reason}")]), None
    return (Findings(), None) if found is None else (found, lines.bytes_read)


def _read_lines(path: Path, lines: LineReader, *, named: bool) -> Findings | None:
    """What the lines gave, or None for a file that is no transcript and need not be one."""
    every = iter(lines)
    kind, first = _recognise(every)
    tally = UnreadableLines(lines)
    if kind is None:
        if not named:
            return None
        what = "not a transcript of a known kind" if lines.bytes_read else "an empty file"
        return Findings(problems=[ReadProblem(path, what), *tally.problems(path)])
    found = _read_as(kind, path, chain(first, every), tally)
    found.problems += tally.problems(path)
    return found


def _read_as(
    kind: Format, path: Path, lines: Iterator[memoryview], tally: UnreadableLines
) -> Findings:
    if kind is Format.JOURNAL:
        return read_journal(path, lines, tally)
    written = moment_of_epoch(path.stat().st_mtime) or datetime.now(UTC)
    if kind is Format.TRANSCRIPT:
        return read_transcript(path, lines, tally, written=written)
    if kind is Format.PRINTED_LOG:
        return read_log(path, lines, tally, written=written)
    if kind is Format.ROLLOUT:
        return read_rollout(path, lines, tally, written=written)
    return read_run_state(path, lines, tally, written=written)


def _recognise(lines: Iterator[memoryview]) -> tuple[Format | None, list[memoryview]]:
    """The kind of file, and the lines that were taken to find out."""
    taken: list[memoryview] = []
    size = 0
    for line in lines:
        taken.append(line)
        size += len(line)
        marks = decode(_MARKS, line)
        kind = None if marks is None else _kind_of(marks)
        if kind or len(taken) >= _LINES_TO_RECOGNISE or size >= _BYTES_TO_RECOGNISE:
            return kind, taken
    return None, taken


def _kind_of(marks: Marks) -> Format | None:
    if marks.workflowProgress and marks.runId is not None:
        return Format.RUN_STATE
    if marks.payload and marks.timestamp is not None and marks.type is not None:
        return Format.ROLLOUT
    if marks.sessionId is not None and marks.type is not None:
        return Format.TRANSCRIPT
    if marks.session_id is not None and marks.type is not None:
        return Format.PRINTED_LOG
    if marks.type in _JOURNAL_TYPES and marks.agentId is not None and marks.key is not None:
        return Format.JOURNAL
    return None
