"""Run the crew of a part as sub-agents of one real Claude Code, in an empty home.

Laws: (1) nothing of the user's own home or settings reaches the client, and its credential is a
dummy; (2) the client's own transcripts tell what became of each agent, and a witness on the
wire which errors came; (3) a fleet that is stopped takes its client with it.
Not here: what the model says to start the crew (catalogue.py), finding the client.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jackline.drills.builtin_client import AgentPlan
from jackline.drills.drill import Part
from jackline.drills.finding_clients import ClaudeCode
from jackline.drills.pace import Pace
from jackline.drills.record import AgentRecord, End, SeenError
from jackline.drills.stopping import stop
from jackline.drills.witness import Witness

PROMPT = "TASK: have every part of this project reviewed, all at the same time."
NEXT_PROMPT = "Now the next parts, please."
# On Windows a program does not start without these.
_NEEDED_BY_SYSTEM = ("PATH", "SYSTEMROOT", "TEMP", "TMP", "COMSPEC", "PATHEXT")


class ClaudeFleet:
    """One session of `claude -p`; each time it is asked, its model starts a share of the crew."""

    def __init__(self, claude: ClaudeCode, part: Part, url: str, pace: Pace) -> None:
        self._claude = claude
        self._crew = part.crew
        self._waves = part.waves
        self._rest = part.rest
        self._pace = pace
        self._witness = Witness(url)
        self._records: Sequence[AgentRecord] = [
            AgentRecord(plan.label, plan.model) for plan in part.crew
        ]

    @property
    def records(self) -> Sequence[AgentRecord]:
        """How far each agent of the crew is; read when the client has ended."""
        return self._records

    @property
    def error_waits(self) -> Sequence[float]:
        """For each error that came over the wire, also those it keeps to itself, its wait."""
        return [error.waited * self._pace.speed for error in self._witness.errors]

    async def run(self) -> None:
        """Run the client to its end and read what its agents wrote down."""
        async with self._witness:
            await self._run_client(self._witness.url)

    async def _run_client(self, url: str) -> None:
        with tempfile.TemporaryDirectory(
            prefix="jackline-drill-", ignore_cleanup_errors=True
        ) as folder:
            home, project = Path(folder) / "home", Path(folder) / "project"
            home.mkdir()
            project.mkdir()
            try:
                await self._ask(PROMPT, project, _environment(home, url))
                for _ in range(self._waves - 1):
                    await self._pace.sleep(self._rest)
                    await self._ask(NEXT_PROMPT, project, _environment(home, url), "--continue")
            finally:
                self._records = self._read(home)

    async def _ask(
        self, prompt: str, project: Path, environment: Mapping[str, str], *options: str
    ) -> None:
        process = await asyncio.create_subprocess_exec(
            *(str(self._claude.program), "-p", prompt, *options),
            *("--allowedTools", "Bash,Agent"),
            cwd=project,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            await process.wait()
        finally:
            await stop(process)

    def _read(self, home: Path) -> list[AgentRecord]:
        found = dict(_transcripts(home))
        return [self._record(plan, found.get(plan.label)) for plan in self._crew]

    def _record(self, plan: AgentPlan, lines: Sequence[dict[str, Any]] | None) -> AgentRecord:
        record = AgentRecord(plan.label, plan.model)
        for line in lines or ():
            if line.get("type") != "assistant":
                continue
            words = _text(line)
            if line.get("isApiErrorMessage"):
                record.errors.append(SeenError(int(line.get("apiErrorStatus") or 0), words, 0.0))
                record.finish(End.DIED, self._pace.monotonic(), words)
            elif words == plan.last_words:
                record.finish(End.FINISHED, self._pace.monotonic())
        return record


def _transcripts(home: Path) -> Iterator[tuple[str, Sequence[dict[str, Any]]]]:
    """The lines that each sub-agent wrote, by the label that its prompt begins with."""
    for file in home.glob(".claude/projects/*/*/subagents/agent-*.jsonl"):
        lines = list(_objects(file.read_bytes()))
        first = next((line for line in lines if line.get("type") == "user"), None)
        if first is not None:
            yield _text(first).partition(":")[0], lines


def _objects(written: bytes) -> Iterator[dict[str, Any]]:
    for line in written.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            return  # a client that was stopped leaves half a line, and nothing behind it


def _text(line: Mapping[str, Any]) -> str:
    content = line.get("message", {}).get("content", "")
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content if block.get("type") == "text")


def _environment(home: Path, url: str) -> Mapping[str, str]:
    return {
        **{name: os.environ[name] for name in _NEEDED_BY_SYSTEM if name in os.environ},
        "HOME": str(home),
        "USERPROFILE": str(home),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "ANTHROPIC_BASE_URL": url,
        "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-drill",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
    }
