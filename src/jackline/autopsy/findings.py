"""Hold what one file gave, before the files are seen together.

Laws: (1) plain values only; (2) a file that gave nothing is still a finding, with its troubles.
Not here: reading (claude_code.py and its neighbours), joining findings (binding.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from jackline.autopsy.lines import LONGEST_LINE, LineReader
from jackline.autopsy.reports import Launch, Report
from jackline.autopsy.story import AgentStory, Trouble


@dataclass(slots=True)
class Run:
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
    reports: list[Report] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    started_by: dict[str, str] = field(default_factory=dict)
    troubles: list[Trouble] = field(default_factory=list)


class Tally:
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

    def troubles(self, path: Path) -> list[Trouble]:
        """What has to be said about the file at the end."""
        told = (
            (self._broken, "lines that are not JSON, or not of a known shape"),
            (self._half_written, "half-written last line"),
            (self._lines.oversized, f"lines over {LONGEST_LINE >> 20} MB, passed over"),
        )
        return [Trouble(path, what, count) for count, what in told if count]
