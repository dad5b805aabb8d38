"""Read what a workflow keeps of its run: the journal of results, and the run's final state.

Laws: (1) a result in the journal is a result, whatever the agent's transcript looks like; (2) an
agent's state in the run is used only where its own transcript is missing.
Not here: the agents' transcripts (claude_code.py), whose failure a logged line tells (binding.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import msgspec

from jackline.autopsy.conversation import CLIENT, PROVIDER
from jackline.autopsy.findings import Findings, Run, Tally
from jackline.autopsy.records import decode
from jackline.autopsy.recount import Recount, moment_of_epoch
from jackline.autopsy.story import AgentStory, Ending, Role


class JournalLine(msgspec.Struct, rename="camel"):
    """One line of a run's journal."""

    type: str = ""
    agent_id: str | None = None
    label: str | None = None


class Seat(msgspec.Struct, rename="camel"):
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


class RunState(msgspec.Struct, rename="camel"):
    """The final state of a run."""

    run_id: str = ""
    task_id: str | None = None
    logs: list[str] = []
    workflow_progress: list[Seat] = []


_JOURNAL_LINES = msgspec.json.Decoder(JournalLine)
_RUN_STATES = msgspec.json.Decoder(RunState)
_ENDINGS = {"done": Ending.FINISHED, "error": Ending.FAILED}


def read_journal(path: Path, lines: Iterable[memoryview], tally: Tally) -> Findings:
    """Who took part in the run, and whose results are kept."""
    run = Run(path.parent.name, journalled=True)
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
    path: Path, lines: Iterable[memoryview], tally: Tally, *, written: datetime
) -> Findings:
    """Who took part in the run, and what was logged; it stands on one line."""
    findings = Findings()
    for line in lines:
        state = decode(_RUN_STATES, line)
        if state is None or not state.run_id:
            tally.unreadable()
            continue
        run = Run(state.run_id, state.task_id, logged=state.logs)
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


def story_of(seat: Seat, session_id: str, run_id: str, path: Path, written: datetime) -> AgentStory:
    """The little that a run's own record tells of one agent."""
    recount = Recount(path, client=CLIENT, provider=PROVIDER, written=written, role=Role.WORKFLOW)
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
    recount.ending = _ENDINGS.get(seat.state or "", Ending.CUT)
    if seat.error is not None:
        recount.failed(seat.error, stamp=_stamp(seat.last_progress_at))
    return recount.finish()


def _stamp(milliseconds: float | None) -> str | None:
    at = moment_of_epoch(None if milliseconds is None else milliseconds / 1000)
    return None if at is None else at.isoformat()
