"""Fetch the real Codex, and run the crew of a drill with it.

Rules: (1) it comes from the npm registry by name and version and is kept in .cache; (2) nothing of
the developer's own home or environment reaches it, and its credential is a dummy; (3) each agent is
a session of its own, asked again by resuming it; (4) what cannot be had fails loudly.
Not here: what is asserted (test_codex.py), how the npm is found (npm_packages.py).
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jackline.drills.builtin_client import AgentEnd, AgentPlan, AgentRecord, SeenError
from jackline.drills.claude_client import CountingProxy
from jackline.drills.drill import CrewPart
from jackline.drills.drill_clock import DrillClock
from jackline.drills.processes import stop
from tests.real_clients.npm_packages import platform_name, unpacked

VERSION = "0.166.0"
# Four hundred megabytes are in the package, for voices and sandboxes: only the client is kept.
_CLIENT = "codex.exe" if os.name == "nt" else "codex"


def codex_binary() -> Path:
    """The real client, downloaded on first use."""
    package = f"@openai/codex@{VERSION}-{platform_name()}"
    folder = unpacked(package, f"codex-{VERSION}", keep=f"package/vendor/*/bin/{_CLIENT}")
    return next(folder.rglob(_CLIENT))


def sandbox_folder() -> Path:
    """A folder for the PATH, with the program by which the client makes its sandbox on Linux."""
    package = f"@openai/codex@{VERSION}-{platform_name()}"
    kept = "package/vendor/*/codex-resources/bwrap"
    return next(unpacked(package, f"codex-{VERSION}-sandbox", keep=kept).rglob("bwrap")).parent


@dataclass(frozen=True)
class Told:
    """What one run of the client said, event by event, and its exit code."""

    code: int
    events: Sequence[Mapping[str, Any]] = field(repr=False)

    @property
    def last_words(self) -> str:
        """The last message of the model."""
        items = [event["item"] for event in self.events if event["type"] == "item.completed"]
        said = [item["text"] for item in items if item["type"] == "agent_message"]
        return said[-1] if said else ""

    @property
    def ran(self) -> Mapping[str, str]:
        """What the commands that it ran have printed, by command."""
        items = [event["item"] for event in self.events if event["type"] == "item.completed"]
        return {
            item["command"]: item["aggregated_output"]
            for item in items
            if item["type"] == "command_execution"
        }

    @property
    def errors(self) -> Sequence[str]:
        """What it tells its user went wrong, also where it tried again."""
        failed = [each for each in self.events if each["type"] in ("error", "turn.failed")]
        return [str(each.get("message") or each.get("error")) for each in failed]


async def ask_codex(
    url: str, home: Path, prompt: str, *, resume: bool = False, model: str = "gpt-5.5"
) -> Told:
    """Run one prompt to its end, in a new session or in the last one of this home."""
    project = _furnish(home, url, model)
    order = ("exec", "resume", "--last") if resume else ("exec",)
    process = await asyncio.create_subprocess_exec(
        *(str(codex_binary()), *order, "--json", "--skip-git-repo-check"),
        *("--dangerously-bypass-approvals-and-sandbox", prompt),
        cwd=project,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "CODEX_HOME": str(home),
            "OPENAI_API_KEY": "sk-dummy",
        },
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        out, _ = await process.communicate()
    finally:
        await stop(process)
    return Told(process.returncode or 0, list(_events(out)))


def _furnish(home: Path, url: str, model: str) -> Path:
    """A home whose configuration knows this provider alone; the project's folder in it."""
    project = home / "project"
    project.mkdir(exist_ok=True, parents=True)
    config = f"""
model = {json.dumps(model)}
model_provider = "drill"
[analytics]
enabled = false
[model_providers.drill]
name = "drill"
base_url = {json.dumps(url + "/v1")}
wire_api = "responses"
env_key = "OPENAI_API_KEY"
"""
    (home / "config.toml").write_text(config, encoding="utf-8")
    return project


def _events(written: bytes) -> Iterator[Mapping[str, Any]]:
    for line in written.splitlines():
        if line.startswith(b"{"):
            yield json.loads(line)


class CodexFleet:
    """One Codex per agent, each asked as often as its plan says; a fleet as drills know it."""

    def __init__(self, part: CrewPart, url: str, pace: DrillClock) -> None:
        self._part = part
        self._pace = pace
        self._witness = CountingProxy(url)
        self._records = {plan.label: AgentRecord(plan.label, plan.model) for plan in part.crew}

    @property
    def records(self) -> Sequence[AgentRecord]:
        """How far each agent of the crew is."""
        return list(self._records.values())

    @property
    def error_waits(self) -> Sequence[float]:
        """For each error that came over the wire, its wait."""
        return [error.waited * self._pace.speed for error in self._witness.errors]

    async def run(self) -> None:
        """Let all work to their ends."""
        with tempfile.TemporaryDirectory(
            prefix="jackline-codex-", ignore_cleanup_errors=True
        ) as folder:
            async with self._witness, asyncio.TaskGroup() as group:
                for plan in self._part.crew:
                    group.create_task(self._work(plan, Path(folder) / plan.label))

    async def _work(self, plan: AgentPlan, home: Path) -> None:
        record = self._records[plan.label]
        record.began = self._pace.monotonic()
        for number in range(plan.rounds):
            told = await ask_codex(
                self._witness.url, home, plan.prompt, resume=number > 0, model=plan.model
            )
            record.errors += [SeenError(0, words, 0.0) for words in told.errors]
            if told.code or told.last_words != plan.final_text:
                words = " ".join(told.errors) or f"it said {told.last_words!r}"
                record.finish(
                    AgentEnd.DIED if told.code else AgentEnd.MISLED, self._pace.monotonic(), words
                )
                return
        record.finish(AgentEnd.FINISHED, self._pace.monotonic())
