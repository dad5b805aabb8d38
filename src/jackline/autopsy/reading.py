"""Read transcripts of any known kind into stories.

Laws: (1) a file is what its first lines say it is; (2) nothing that stands in a file can raise, it
becomes a trouble; (3) memory is bounded by the longest line allowed, not by the file.
Not here: which files (sources.py), what their lines mean (claude_code.py and its neighbours).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from enum import Enum, auto
from itertools import accumulate, chain
from pathlib import Path

import msgspec

from jackline.autopsy.binding import bind
from jackline.autopsy.claude_code import read_transcript
from jackline.autopsy.codex import read_rollout
from jackline.autopsy.crew import share
from jackline.autopsy.findings import Findings, Tally
from jackline.autopsy.lines import LineReader
from jackline.autopsy.records import decode
from jackline.autopsy.recount import moment_of_epoch
from jackline.autopsy.sources import Source
from jackline.autopsy.story import Evidence, Trouble
from jackline.autopsy.stream_json import read_log
from jackline.autopsy.workflow import read_journal, read_run_state
from jackline.events import Announce, TranscriptsRead, to_nobody
from jackline.foreign_files import open_foreign

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


def read(sources: Sequence[Source], *, announce: Announce = to_nobody) -> Evidence:
    """All that the files tell; the order of the sources does not matter."""
    evidence = Evidence()
    findings: list[Findings] = []
    sizes = [source.size for source in sources]
    sums = [0, *accumulate(sizes)]

    def reached(count: int) -> None:
        announce(TranscriptsRead(count, len(sources), sums[count], sums[-1]))

    for found, size in share(_read_source, sources, sizes, reached=reached):
        evidence.troubles += found.troubles
        evidence.files_read += size is not None
        evidence.bytes_read += size or 0
        findings.append(found)
    evidence.stories = bind(findings)
    return evidence


def _read_source(source: Source) -> tuple[Findings, int | None]:
    """What one file gave, and how many bytes were read; None when it was not read at all."""
    path = source.path
    if source.problem is not None:
        return Findings(troubles=[Trouble(path, source.problem)]), None
    try:
        with open_foreign(path) as file:
            lines = LineReader(file)
            found = _read_lines(path, lines, named=source.named)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        return Findings(troubles=[Trouble(path, f"cannot be read: {reason}")]), None
    return (Findings(), None) if found is None else (found, lines.bytes_read)


def _read_lines(path: Path, lines: LineReader, *, named: bool) -> Findings | None:
    """What the lines gave, or None for a file that is no transcript and need not be one."""
    every = iter(lines)
    kind, first = _recognise(every)
    tally = Tally(lines)
    if kind is None:
        if not named:
            return None
        what = "not a transcript of a known kind" if lines.bytes_read else "an empty file"
        return Findings(troubles=[Trouble(path, what), *tally.troubles(path)])
    found = _read_as(kind, path, chain(first, every), tally)
    found.troubles += tally.troubles(path)
    return found


def _read_as(kind: Format, path: Path, lines: Iterator[memoryview], tally: Tally) -> Findings:
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
