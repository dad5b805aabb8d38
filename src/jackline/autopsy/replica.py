"""Write a synthetic replica of the incident that this project began with, for demos and tests.

Rules: (1) deterministic: two replicas are equal byte for byte, ids come from names; (2) figures as
in the real incident: 98 transcripts, 37 meetings with HTTP 429 in 34.5 s, 15 lines that blame the
structured output, 2,077,133 tokens over 97 agents; (3) every name and every text of an agent is
invented; (4) lines have the form that Claude Code 2.1.197 writes: each block of an answer is its
own line and repeats the answer's id and usage.
Not here: reading such lines (transcripts/).
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


Line: TypeAlias = dict[str, object]

VERSION = "2.1.197"
CWD = "/home/user/project"
MODEL = "claude-sonnet-5"


def named_uuid(name: str) -> str:
    """A UUID that is always the same for the same name."""
    return str(UUID(bytes=_digest(name)[:16], version=4))


def named_agent_id(name: str) -> str:
    """An agent id as Claude Code makes them: `a` and sixteen hexadecimal digits."""
    return "a" + _digest(name).hex()[:16]


def _digest(name: str) -> bytes:
    return hashlib.sha256(f"jackline replica {name}".encode()).digest()


def stamp(moment: datetime) -> str:
    """`2026-06-18T17:41:02.310Z`."""
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


@dataclass(slots=True)
class Transcript:
    """The lines of one conversation, each hanging on the one before it."""

    name: str
    session_id: str
    agent_id: str | None = None
    lines: list[Line] = field(default_factory=list)

    def says(self, at: datetime, text: str, **extra: object) -> None:
        """A line of the user, or of the harness in the user's name."""
        self._add(at, {"type": "user", "message": {"role": "user", "content": text}, **extra})

    def answers(self, at: datetime, blocks: list[Line], tokens: tuple[int, int], stop: str) -> None:
        """One answer of the model: a line per block, with (input, output) tokens."""
        message: Line = {
            "id": f"msg_{self._mark()}",
            "type": "message",
            "role": "assistant",
            "model": MODEL,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": _usage(*tokens),
        }
        request_id = f"req_{self._mark()}"
        for block in blocks:
            line: Line = {"message": {**message, "content": [block]}, "requestId": request_id}
            self._add(at, {**line, "type": "assistant"})

    def returns(
        self, at: datetime, tool_use_id: str, text: str, result: Line | None = None
    ) -> None:
        """The result of a tool."""
        block = {
            "tool_use_id": tool_use_id,
            "type": "tool_result",
            "content": text,
            "is_error": False,
        }
        line: Line = {"type": "user", "message": {"role": "user", "content": [block]}}
        if result is not None:
            line["toolUseResult"] = result
        self._add(at, line)

    def dies(self, at: datetime, text: str, *, status: int, error: str) -> None:
        """The line that Claude Code writes when the API has refused for good."""
        message: Line = {
            "id": named_uuid(f"{self.name} death"),
            "container": None,
            "model": "<synthetic>",
            "role": "assistant",
            "stop_reason": "stop_sequence",
            "stop_sequence": "",
            "type": "message",
            "usage": _usage(0, 0),
            "content": [{"type": "text", "text": text}],
            "context_management": None,
        }
        line: Line = {"type": "assistant", "message": message, "requestId": f"req_{self._mark()}"}
        self._add(at, {**line, "error": error, "isApiErrorMessage": True, "apiErrorStatus": status})

    def _mark(self) -> str:
        return _digest(f"{self.name} {len(self.lines)}").hex()[:20]

    def _add(self, at: datetime, line: Line) -> None:
        head: Line = {
            "parentUuid": self.lines[-1]["uuid"] if self.lines else None,
            "isSidechain": self.agent_id is not None,
        }
        if self.agent_id is not None:
            head["agentId"] = self.agent_id
        tail: Line = {
            "uuid": named_uuid(f"{self.name} {len(self.lines)}"),
            "timestamp": stamp(at),
            "userType": "external",
            "entrypoint": "cli",
            "cwd": CWD,
            "sessionId": self.session_id,
            "version": VERSION,
            "gitBranch": "main",
        }
        self.lines.append({**head, **line, **tail})


def _usage(given: int, written: int) -> Line:
    return {
        "input_tokens": min(given, 3),
        "cache_creation_input_tokens": max(given - 3, 0),
        "cache_read_input_tokens": 0,
        "output_tokens": written,
        "service_tier": "standard",
    }


def text_block(text: str) -> Line:
    """A block of prose."""
    return {"type": "text", "text": text}


def tool_block(tool_use_id: str, name: str, arguments: Line) -> Line:
    """A block that calls a tool."""
    return {"type": "tool_use", "id": tool_use_id, "name": name, "input": arguments}


SESSION_ID = named_uuid("session")
RUN_ID = "wf_5e5510n1-429"
AGENTS = 97
STOPPED = 37
IN_FLIGHT = 16
BLAMED = 15
TOKENS = 2_077_133
WALL = "You've hit your session limit · resets 10:10pm (Europe/Kiev)"
BLAME = "agent({schema}): subagent completed without calling StructuredOutput"

BEGAN = datetime(2026, 6, 18, 17, 12, 4, 180_000, tzinfo=UTC)
FIRST_WALL = datetime(2026, 6, 18, 17, 41, 2, 310_000, tzinfo=UTC)
# Thirty-six pauses: six times these, 34.5 s together.
PAUSES = (0.96, 0.93, 0.98, 0.96, 0.95, 0.97)
TOLD_AT = FIRST_WALL + timedelta(seconds=36)
READ_AT = TOLD_AT + timedelta(minutes=5)

# What an answer of an agent cost: (input, output) tokens.
FIRST_ANSWER = (14_018, 412)
LATE_ANSWER = (6_420, 318)
LATE_ANSWERS = 5


@dataclass(frozen=True, slots=True)
class ReplicaAgent:
    """One agent's part in the plot; `met` counts the meetings with the wall from 0."""

    index: int
    met: int | None

    @property
    def name(self) -> str:
        """The agent's invented label."""
        return f"audit:module-{self.index + 1:02d}"

    @property
    def agent_id(self) -> str:
        """The agent's id."""
        return named_agent_id(self.name)

    @property
    def blamed(self) -> bool:
        """Whether the run blamed a missing structured output for this agent's end."""
        return self.met is not None and self.met >= STOPPED - BLAMED


def write_replica(folder: Path) -> Path:
    """Write the replica below the folder and return the session's main transcript."""
    project = folder / ".claude" / "projects" / "-home-user-project"
    session = project / SESSION_ID
    run = session / "subagents" / "workflows" / RUN_ID
    run.mkdir(parents=True, exist_ok=True)
    (session / "workflows").mkdir(exist_ok=True)
    parts = _plot()
    finals = _final_answers(parts)
    for part in parts:
        transcript = _stopped(part) if part.met is not None else _finished(part, finals[part.index])
        _write_lines(run / f"agent-{part.agent_id}.jsonl", transcript.lines)
        meta = {"agentType": "workflow-subagent", "spawnDepth": 1}
        _write_lines(run / f"agent-{part.agent_id}.meta.json", [meta])
    _write_lines(run / "journal.jsonl", _journal(parts))
    _write_lines(session / "workflows" / f"{RUN_ID}.json", [_run_state(parts)])
    main = project / f"{SESSION_ID}.jsonl"
    _write_lines(main, _main(run).lines)
    return main


def _write_lines(path: Path, lines: Iterable[Line]) -> None:
    text = "".join(
        json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines
    )
    path.write_text(text, encoding="utf-8", newline="\n")
    # As old as the incident, so that asking for a time finds it where it belongs.
    os.utime(path, (TOLD_AT.timestamp(), TOLD_AT.timestamp()))


def _plot() -> list[ReplicaAgent]:
    """Sixty agents finish, sixteen are at work when the wall comes, twenty-one start after it."""
    finishing = AGENTS - STOPPED
    return [ReplicaAgent(i, None if i < finishing else i - finishing) for i in range(AGENTS)]


def meeting_times() -> list[datetime]:
    """When the wall was met, 37 times."""
    moments = [FIRST_WALL]
    for step in range(STOPPED - 1):
        moments.append(moments[-1] + timedelta(seconds=PAUSES[step % len(PAUSES)]))
    return moments


def _final_answers(parts: list[ReplicaAgent]) -> dict[int, tuple[int, int]]:
    """What the finished agents' last answers cost, so that the whole comes out to the token."""
    spent = sum(FIRST_ANSWER) * (AGENTS - STOPPED + IN_FLIGHT) + sum(LATE_ANSWER) * LATE_ANSWERS
    finished = [part.index for part in parts if part.met is None]
    share, rest = divmod(TOKENS - spent, len(finished))
    costs = {index: share + (position < rest) for position, index in enumerate(finished)}
    return {index: (cost - 1_180, 1_180) for index, cost in costs.items()}


def _opening(part: ReplicaAgent, at: datetime) -> Transcript:
    transcript = Transcript(part.name, SESSION_ID, part.agent_id)
    transcript.says(at, f"Audit module {part.index + 1} of the invented project for defects.")
    return transcript


def _works(transcript: Transcript, at: datetime, tokens: tuple[int, int], step: int) -> None:
    tool_use_id = f"toolu_{transcript.agent_id}{step:02d}"
    look = tool_block(tool_use_id, "Bash", {"command": "ls", "description": "Look around"})
    transcript.answers(at, [text_block("Looking at the files first."), look], tokens, "tool_use")
    transcript.returns(at + timedelta(seconds=0.4), tool_use_id, "module.py  tests.py")


def _finished(part: ReplicaAgent, final: tuple[int, int]) -> Transcript:
    start = BEGAN + timedelta(seconds=part.index * 23.5)
    transcript = _opening(part, start)
    _works(transcript, start + timedelta(seconds=9.2), FIRST_ANSWER, 0)
    end = start + timedelta(seconds=180 + part.index * 7 % 120)
    tool_use_id = f"toolu_{part.agent_id}99"
    output = tool_block(tool_use_id, "StructuredOutput", _verdict(part))
    transcript.answers(end, [output], final, "tool_use")
    transcript.returns(
        end + timedelta(seconds=0.1), tool_use_id, "Structured output provided successfully"
    )
    return transcript


def _stopped(part: ReplicaAgent) -> Transcript:
    met = part.met or 0
    wall = meeting_times()[met]
    at_work = met < IN_FLIGHT
    start = FIRST_WALL - timedelta(seconds=260 - met * 11) if at_work else _slot_freed(wall)
    transcript = _opening(part, start)
    if at_work:
        _works(transcript, start + timedelta(seconds=8.7), FIRST_ANSWER, 0)
    if IN_FLIGHT - LATE_ANSWERS <= met < IN_FLIGHT:
        # Requests that the API had accepted before the wall are still answered, and paid for.
        _works(transcript, wall - timedelta(seconds=1.6), LATE_ANSWER, 1)
    transcript.dies(wall, WALL, status=429, error="rate_limit")
    return transcript


def _slot_freed(wall: datetime) -> datetime:
    return wall - timedelta(seconds=0.88)


def _verdict(part: ReplicaAgent) -> Line:
    return {"verdict": "fine", "score": 5 + part.index % 5}


def _journal(parts: list[ReplicaAgent]) -> list[Line]:
    def entry(kind: str, part: ReplicaAgent) -> Line:
        key = f"v2:{named_uuid(part.name).replace('-', '')}"
        return {"type": kind, "key": key, "agentId": part.agent_id}

    results = [{**entry("result", p), "result": _verdict(p)} for p in parts if p.met is None]
    return [*(entry("started", part) for part in parts), *results]


def _failures(parts: list[ReplicaAgent]) -> list[str]:
    return [f"parallel[{part.index}] failed: {BLAME}" for part in parts if part.blamed]


def _progress(part: ReplicaAgent, position: int) -> Line:
    shown: Line = {
        "type": "workflow_agent",
        "index": position,
        "label": part.name,
        "agentId": part.agent_id,
        "model": MODEL,
        "state": "done",
        "attempt": 1,
    }
    if part.met is None:
        shown["resultPreview"] = json.dumps(_verdict(part), separators=(",", ":"))
    return shown


def _run_state(parts: list[ReplicaAgent]) -> Line:
    results = [_verdict(part) if part.met is None else None for part in parts]
    return {
        "runId": RUN_ID,
        "timestamp": stamp(TOLD_AT),
        "taskId": "wreplica1",
        "result": {"r": results},
        "agentCount": len(parts),
        "logs": _failures(parts),
        "durationMs": int((TOLD_AT - BEGAN) / timedelta(milliseconds=1)),
        "summary": "Audit 97 modules",
        "workflowName": "audit",
        "status": "completed",
        "startTime": int(BEGAN.timestamp() * 1000),
        "workflowProgress": [_progress(part, i) for i, part in enumerate(parts, start=1)],
    }


def _main(run: Path) -> Transcript:
    main = Transcript("main", SESSION_ID)
    main.says(BEGAN - timedelta(seconds=14), "Audit all 97 modules of the invented project.")
    launch = tool_block(
        "toolu_launch", "Workflow", {"script": "await parallel(modules.map(audit))"}
    )
    started = BEGAN - timedelta(seconds=2)
    main.answers(started, [text_block("Starting the workflow."), launch], (28_892, 176), "tool_use")
    main.returns(
        BEGAN,
        "toolu_launch",
        "Workflow launched in background. Task ID: wreplica1",
        {
            "status": "async_launched",
            "taskId": "wreplica1",
            "taskType": "local_workflow",
            "workflowName": "audit",
            "runId": RUN_ID,
            "transcriptDir": str(run),
        },
    )
    main.says(TOLD_AT, _notification(), origin={"kind": "task-notification"})
    closing = text_block("Most agents forgot their structured output; I will try them again.")
    main.answers(TOLD_AT + timedelta(seconds=6), [closing], (31_204, 96), "end_turn")
    return main


def _notification() -> str:
    return (
        "<task-notification>\n<task-id>wreplica1</task-id>\n"
        "<tool-use-id>toolu_launch</tool-use-id>\n<status>completed</status>\n"
        '<summary>Dynamic workflow "Audit 97 modules" completed</summary>\n'
        f"<failures>{chr(10).join(_failures(_plot()))}</failures>\n"
        f"<usage><agent_count>{AGENTS}</agent_count></usage>\n</task-notification>"
    )
