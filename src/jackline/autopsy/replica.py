"""Write a synthetic replica of the incident that this project began with, for demos and tests.

Rules: (1) deterministic: two replicas are equal byte for byte, ids come from names; (2) figures as
in the real incident: 98 transcripts, 37 times HTTP 429 in 34.5 s, 15 lines that blame the
structured output, 2,077,133 tokens over 97 agents; (3) every name and every text of an agent is
invented; (4) lines have the form that Claude Code 2.1.197 writes: each block of an answer is its
own line and repeats the answer's id and usage.
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


def _digest(name: str) -> bytes:
    return hashlib.sha256(f"jackline replica {name}".encode()).digest()


def _uuid(name: str) -> str:
    return str(UUID(bytes=_digest(name)[:16], version=4))


def _stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


SESSION_ID = _uuid("session")
_RUN_ID = "wf_5e5510n1-429"
_MODEL = "claude-sonnet-5"
_AGENTS = 97
_STOPPED = 37
_IN_FLIGHT = 16
_BLAMED = 15
_TOKENS = 2_077_133
_WALL = "You've hit your session limit · resets 10:10pm (Europe/Kiev)"
_BLAME = "agent({schema}): subagent completed without calling StructuredOutput"

BEGAN = datetime(2026, 6, 18, 17, 12, 4, 180_000, tzinfo=UTC)
_FIRST_WALL = datetime(2026, 6, 18, 17, 41, 2, 310_000, tzinfo=UTC)
# Thirty-six pauses: six times these, 34.5 s together.
_PAUSES = (0.96, 0.93, 0.98, 0.96, 0.95, 0.97)
_REPORTED_AT = _FIRST_WALL + timedelta(seconds=36)
READ_AT = _REPORTED_AT + timedelta(minutes=5)

# The (input, output) tokens of an answer.
_FIRST_ANSWER = (14_018, 412)
_LATE_ANSWER = (6_420, 318)
_LATE_ANSWERS = 5


@dataclass(slots=True)
class _Transcript:
    """The lines of one conversation; each names the line before it."""

    name: str
    agent_id: str | None = None
    lines: list[Line] = field(default_factory=list)

    def add_user_text(self, at: datetime, text: str, **extra: object) -> None:
        self._add(at, {"type": "user", "message": {"role": "user", "content": text}, **extra})

    def add_answer(
        self, at: datetime, blocks: list[Line], tokens: tuple[int, int], stop: str
    ) -> None:
        message: Line = {
            "id": f"msg_{self._mark()}",
            "type": "message",
            "role": "assistant",
            "model": _MODEL,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": self._usage(*tokens),
        }
        request_id = f"req_{self._mark()}"
        for block in blocks:
            line: Line = {"message": {**message, "content": [block]}, "requestId": request_id}
            self._add(at, {**line, "type": "assistant"})

    def add_tool_result(
        self, at: datetime, tool_use_id: str, text: str, result: Line | None = None
    ) -> None:
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

    def add_api_error(self, at: datetime, text: str, *, status: int, error: str) -> None:
        """The line that Claude Code writes when it gives up on the API."""
        message: Line = {
            "id": _uuid(f"{self.name} death"),
            "container": None,
            "model": "<synthetic>",
            "role": "assistant",
            "stop_reason": "stop_sequence",
            "stop_sequence": "",
            "type": "message",
            "usage": self._usage(0, 0),
            "content": [{"type": "text", "text": text}],
            "context_management": None,
        }
        line: Line = {"type": "assistant", "message": message, "requestId": f"req_{self._mark()}"}
        self._add(at, {**line, "error": error, "isApiErrorMessage": True, "apiErrorStatus": status})

    def _usage(self, read: int, written: int) -> Line:
        return {
            "input_tokens": min(read, 3),
            "cache_creation_input_tokens": max(read - 3, 0),
            "cache_read_input_tokens": 0,
            "output_tokens": written,
            "service_tier": "standard",
        }

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
            "uuid": _uuid(f"{self.name} {len(self.lines)}"),
            "timestamp": _stamp(at),
            "userType": "external",
            "entrypoint": "cli",
            "cwd": "/home/user/project",
            "sessionId": SESSION_ID,
            "version": "2.1.197",
            "gitBranch": "main",
        }
        self.lines.append({**head, **line, **tail})


@dataclass(frozen=True, slots=True)
class _Agent:
    """One invented agent; `wall` is its number among the 37 that met the wall, from 0."""

    index: int
    wall: int | None

    @property
    def name(self) -> str:
        return f"audit:module-{self.index + 1:02d}"

    @property
    def agent_id(self) -> str:
        """An id as Claude Code makes them: `a` and sixteen hexadecimal digits."""
        return "a" + _digest(self.name).hex()[:16]

    @property
    def verdict(self) -> Line:
        return {"verdict": "fine", "score": 5 + self.index % 5}

    def transcript(self, wall_times: list[datetime], final_tokens: int) -> _Transcript:
        if self.wall is None:
            return self._finished(final_tokens)
        wall = wall_times[self.wall]
        if self.wall >= _IN_FLIGHT:
            # Started after the wall, as soon as another agent had stopped.
            transcript = self._opened(wall - timedelta(seconds=0.88))
        else:
            start = _FIRST_WALL - timedelta(seconds=260 - self.wall * 11)
            transcript = self._opened(start)
            self._work(transcript, start + timedelta(seconds=8.7), _FIRST_ANSWER, 0)
            if self.wall >= _IN_FLIGHT - _LATE_ANSWERS:
                # Requests accepted before the wall are still answered, and paid for.
                self._work(transcript, wall - timedelta(seconds=1.6), _LATE_ANSWER, 1)
        transcript.add_api_error(wall, _WALL, status=429, error="rate_limit")
        return transcript

    def _finished(self, final_tokens: int) -> _Transcript:
        start = BEGAN + timedelta(seconds=self.index * 23.5)
        transcript = self._opened(start)
        self._work(transcript, start + timedelta(seconds=9.2), _FIRST_ANSWER, 0)
        end = start + timedelta(seconds=180 + self.index * 7 % 120)
        tool_use_id = f"toolu_{self.agent_id}99"
        output = _tool_block(tool_use_id, "StructuredOutput", self.verdict)
        transcript.add_answer(end, [output], (final_tokens - 1_180, 1_180), "tool_use")
        done = "Structured output provided successfully"
        transcript.add_tool_result(end + timedelta(seconds=0.1), tool_use_id, done)
        return transcript

    def _opened(self, at: datetime) -> _Transcript:
        transcript = _Transcript(self.name, self.agent_id)
        prompt = f"Audit module {self.index + 1} of the invented project for defects."
        transcript.add_user_text(at, prompt)
        return transcript

    def _work(
        self, transcript: _Transcript, at: datetime, tokens: tuple[int, int], step: int
    ) -> None:
        tool_use_id = f"toolu_{self.agent_id}{step:02d}"
        text: Line = {"type": "text", "text": "Looking at the files first."}
        look = _tool_block(tool_use_id, "Bash", {"command": "ls", "description": "Look around"})
        transcript.add_answer(at, [text, look], tokens, "tool_use")
        later = at + timedelta(seconds=0.4)
        transcript.add_tool_result(later, tool_use_id, "module.py  tests.py")


def _tool_block(tool_use_id: str, name: str, arguments: Line) -> Line:
    return {"type": "tool_use", "id": tool_use_id, "name": name, "input": arguments}


def write_replica(folder: Path) -> Path:
    """Write the replica below the folder and return the session's main transcript."""
    project = folder / ".claude" / "projects" / "-home-user-project"
    session = project / SESSION_ID
    run = session / "subagents" / "workflows" / _RUN_ID
    run.mkdir(parents=True, exist_ok=True)
    (session / "workflows").mkdir(exist_ok=True)
    # Sixty agents finish, sixteen are at work when the wall comes, twenty-one start after it.
    finishing = _AGENTS - _STOPPED
    agents = [_Agent(i, None if i < finishing else i - finishing) for i in range(_AGENTS)]
    wall_times = [_FIRST_WALL]
    for step in range(_STOPPED - 1):
        wall_times.append(wall_times[-1] + timedelta(seconds=_PAUSES[step % len(_PAUSES)]))
    # The last answers of the finished agents make the sum exact to the token.
    spent = sum(_FIRST_ANSWER) * (finishing + _IN_FLIGHT) + sum(_LATE_ANSWER) * _LATE_ANSWERS
    share, rest = divmod(_TOKENS - spent, finishing)
    for agent in agents:
        transcript = agent.transcript(wall_times, share + (agent.index < rest))
        _write_lines(run / f"agent-{agent.agent_id}.jsonl", transcript.lines)
        meta = {"agentType": "workflow-subagent", "spawnDepth": 1}
        _write_lines(run / f"agent-{agent.agent_id}.meta.json", [meta])
    started: list[Line] = []
    results: list[Line] = []
    for agent in agents:
        entry: Line = {
            "key": f"v2:{_uuid(agent.name).replace('-', '')}",
            "agentId": agent.agent_id,
        }
        started.append({"type": "started", **entry})
        if agent.wall is None:
            results.append({"type": "result", **entry, "result": agent.verdict})
    _write_lines(run / "journal.jsonl", [*started, *results])
    failures = [
        f"parallel[{agent.index}] failed: {_BLAME}"
        for agent in agents
        if agent.wall is not None and agent.wall >= _STOPPED - _BLAMED
    ]
    _write_lines(session / "workflows" / f"{_RUN_ID}.json", [_run_state(agents, failures)])
    main = project / f"{SESSION_ID}.jsonl"
    _write_lines(main, _main_transcript(run, failures).lines)
    return main


def _write_lines(path: Path, lines: Iterable[Line]) -> None:
    text = "".join(
        json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines
    )
    path.write_text(text, encoding="utf-8", newline="\n")
    # As old as the incident, so that `--since` finds it at its own time.
    os.utime(path, (_REPORTED_AT.timestamp(), _REPORTED_AT.timestamp()))


def _run_state(agents: list[_Agent], failures: list[str]) -> Line:
    progress = []
    for position, agent in enumerate(agents, start=1):
        shown: Line = {
            "type": "workflow_agent",
            "index": position,
            "label": agent.name,
            "agentId": agent.agent_id,
            "model": _MODEL,
            "state": "done",
            "attempt": 1,
        }
        if agent.wall is None:
            shown["resultPreview"] = json.dumps(agent.verdict, separators=(",", ":"))
        progress.append(shown)
    return {
        "runId": _RUN_ID,
        "timestamp": _stamp(_REPORTED_AT),
        "taskId": "wreplica1",
        "result": {"r": [agent.verdict if agent.wall is None else None for agent in agents]},
        "agentCount": len(agents),
        "logs": failures,
        "durationMs": int((_REPORTED_AT - BEGAN) / timedelta(milliseconds=1)),
        "summary": "Audit 97 modules",
        "workflowName": "audit",
        "status": "completed",
        "startTime": int(BEGAN.timestamp() * 1000),
        "workflowProgress": progress,
    }


def _main_transcript(run: Path, failures: list[str]) -> _Transcript:
    main = _Transcript("main")
    prompt = "Audit all 97 modules of the invented project."
    main.add_user_text(BEGAN - timedelta(seconds=14), prompt)
    script: Line = {"script": "await parallel(modules.map(audit))"}
    launch = _tool_block("toolu_launch", "Workflow", script)
    starting: Line = {"type": "text", "text": "Starting the workflow."}
    started = BEGAN - timedelta(seconds=2)
    main.add_answer(started, [starting, launch], (28_892, 176), "tool_use")
    main.add_tool_result(
        BEGAN,
        "toolu_launch",
        "Workflow launched in background. Task ID: wreplica1",
        {
            "status": "async_launched",
            "taskId": "wreplica1",
            "taskType": "local_workflow",
            "workflowName": "audit",
            "runId": _RUN_ID,
            "transcriptDir": str(run),
        },
    )
    notification = (
        "<task-notification>\n<task-id>wreplica1</task-id>\n"
        "<tool-use-id>toolu_launch</tool-use-id>\n<status>completed</status>\n"
        '<summary>Dynamic workflow "Audit 97 modules" completed</summary>\n'
        f"<failures>{chr(10).join(failures)}</failures>\n"
        f"<usage><agent_count>{_AGENTS}</agent_count></usage>\n</task-notification>"
    )
    main.add_user_text(_REPORTED_AT, notification, origin={"kind": "task-notification"})
    text = "Most agents forgot their structured output; I will try them again."
    closing: Line = {"type": "text", "text": text}
    main.add_answer(_REPORTED_AT + timedelta(seconds=6), [closing], (31_204, 96), "end_turn")
    return main
