"""Run a crew as sub-agents of the real Claude Code, in an empty home.

Rules: (1) the client is found on this machine, never downloaded; a client that was named and
cannot run is an error with a next step, a missing one is not; (2) nothing of the user's home or
settings reaches the client, and its credential is a dummy; (3) the client's own transcripts are
the record of each agent; (4) a proxy before the server passes bytes, ends and resets on unchanged
and counts errors: a status of 400 or more, an error event, or an answer that does not end; (5) a
fleet that is stopped stops its client.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from jackline.clock import SystemClock
from jackline.drills.builtin_client import AgentEnd, AgentPlan, AgentRecord, SeenError
from jackline.drills.conversation import READ_AT_ONCE
from jackline.drills.drill import CrewPart
from jackline.drills.drill_clock import DrillClock
from jackline.drills.processes import stop
from jackline.errors import UnreadableError
from jackline.http1.responses import ResponseParser
from jackline.programs import find_program
from jackline.simulator.connection import reset

LOOPBACK = "127.0.0.1"
PROMPT = "TASK: have every part of this project reviewed, all at the same time."
NEXT_PROMPT = "Now the next parts, please."


@dataclass(frozen=True, slots=True)
class InstalledClaude:
    """A real client: its program and its version."""

    program: Path
    version: str

    @classmethod
    def at(cls, program: Path) -> Self | None:
        """The client of this program; None if it is no Claude Code that runs here."""
        try:
            printed = subprocess.run(  # noqa: S603 -- named by the user or found on the PATH
                [str(program), "--version"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=60,
                check=True,
            ).stdout.decode("utf-8", "replace")
        except (OSError, subprocess.SubprocessError):
            return None
        return cls(program, printed.split(maxsplit=1)[0]) if "Claude Code" in printed else None

    @classmethod
    def on_path(cls) -> Self | None:
        """The client that a shell would start, or None."""
        found = find_program("claude")
        return None if found is None else cls.at(Path(found))

    @classmethod
    def named(cls, program: Path) -> Self:
        """The client that the user named; UnreadableError if it does not run here."""
        found = cls.at(program.absolute())
        if found is None:
            raise UnreadableError(
                f"{program.absolute()} is not a Claude Code that can be run here",
                hint="give its program with --claude PATH, or use --client builtin",
            )
        return found

    @staticmethod
    def environment(home: Path) -> dict[str, str]:
        """Nothing of the user's but what the system needs; Windows needs more than the PATH."""
        needed = ("PATH", "SYSTEMROOT", "TEMP", "TMP", "COMSPEC", "PATHEXT")
        return {
            **{name: os.environ[name] for name in needed if name in os.environ},
            "HOME": str(home),
            "USERPROFILE": str(home),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-drill",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
        }

    async def run(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> None:
        """Run the client to its end; it is stopped when this is cancelled."""
        process = await asyncio.create_subprocess_exec(
            str(self.program),
            *arguments,
            cwd=folder,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            await process.wait()
        finally:
            await stop(process)


class ProxiedError(NamedTuple):
    """The name of an error, and the real seconds since its request began."""

    name: str
    waited: float


class CountingProxy:
    """A relay on a port of its own; `errors` holds what came back, in order."""

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target)
        self._tasks: set[asyncio.Task[None]] = set()
        self.errors: list[ProxiedError] = []

    @property
    def url(self) -> str:
        """The base URL for a client."""
        return f"http://{LOOPBACK}:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            await self._relay(reader, writer)
        except asyncio.CancelledError:
            return  # the drill is over
        finally:
            writer.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        exchange = _ProxiedExchange(self.errors)
        try:
            from_server, to_server = await asyncio.open_connection(
                self._target.hostname, self._target.port
            )
        except OSError:
            self.errors.append(ProxiedError("refused", 0.0))
            reset(writer)
            return

        async def pass_requests() -> None:
            with suppress(ConnectionError):
                while data := await reader.read(READ_AT_ONCE):
                    exchange.request(data)
                    to_server.write(data)
                    await to_server.drain()
            # The client has left; its server shall see that at once.
            exchange.client_left = True
            to_server.transport.abort()

        requests = asyncio.create_task(pass_requests())
        try:
            while data := await from_server.read(READ_AT_ONCE):
                exchange.answer(data)
                writer.write(data)
                await writer.drain()
            exchange.ended("ended early")
        except ConnectionError:
            exchange.ended("reset")
            reset(writer)
        finally:
            requests.cancel()
            await asyncio.gather(requests, return_exceptions=True)
            to_server.close()


class _ProxiedExchange:
    """The requests and answers of one connection."""

    def __init__(self, errors: list[ProxiedError]) -> None:
        self._errors = errors
        self._clock = SystemClock()
        self._began_at = 0.0
        self._parser: ResponseParser | None = None
        self._failed = False
        self._tail = b""
        self.client_left = False

    def request(self, data: bytes) -> None:
        """Bytes of the client; with no answer under way they begin a new exchange."""
        if self._parser is None and data.startswith(b"POST "):
            self._parser, self._failed, self._tail = ResponseParser(), False, b""
            self._began_at = self._clock.monotonic()

    def answer(self, data: bytes) -> None:
        parser = self._parser
        if parser is None:
            return
        parser.feed(data)
        if parser.status >= 400:
            self._fail(str(parser.status))
        body = parser.take_content()
        if b"event: error" in self._tail + body:
            self._fail("error event")
        self._tail = (self._tail + body)[-16:]
        if parser.is_complete:
            self._parser = None

    def ended(self, how: str) -> None:
        if self._parser is not None and not self.client_left:
            self._fail(how)

    def _fail(self, name: str) -> None:
        """Record an error, once for each exchange."""
        if not self._failed:
            self._failed = True
            self._errors.append(ProxiedError(name, self._clock.monotonic() - self._began_at))


class ClaudeFleet:
    """One session of `claude -p`; with each prompt its model starts a share of the crew."""

    def __init__(
        self, claude: InstalledClaude, part: CrewPart, url: str, clock: DrillClock
    ) -> None:
        self._claude = claude
        self._part = part
        self._clock = clock
        self._proxy = CountingProxy(url)
        self._records: Sequence[AgentRecord] = [
            AgentRecord(plan.label, plan.model) for plan in part.crew
        ]

    @property
    def records(self) -> Sequence[AgentRecord]:
        """How far each agent of the crew is; read when the client has ended."""
        return self._records

    @property
    def error_waits(self) -> Sequence[float]:
        """For each error that came over the wire, also those the client hides, its wait."""
        return [error.waited * self._clock.speed for error in self._proxy.errors]

    async def run(self) -> None:
        """Run the client to its end and read its transcripts."""
        with tempfile.TemporaryDirectory(
            prefix="jackline-drill-", ignore_cleanup_errors=True
        ) as folder:
            home, project = Path(folder) / "home", Path(folder) / "project"
            home.mkdir()
            project.mkdir()
            tools = ("--allowedTools", "Bash,Agent")
            try:
                async with self._proxy:
                    environment = self._claude.environment(home)
                    environment["ANTHROPIC_BASE_URL"] = self._proxy.url
                    await self._claude.run(("-p", PROMPT, *tools), project, environment)
                    for _ in range(self._part.waves - 1):
                        await self._clock.sleep(self._part.rest)
                        again = ("-p", NEXT_PROMPT, "--continue", *tools)
                        await self._claude.run(again, project, environment)
            finally:
                self._records = self._read(home)

    def _read(self, home: Path) -> list[AgentRecord]:
        """The records by the lines that each sub-agent wrote; its prompt begins with its label."""
        found: dict[str, Sequence[dict[str, Any]]] = {}
        for file in home.glob(".claude/projects/*/*/subagents/agent-*.jsonl"):
            lines = []
            for line in file.read_bytes().splitlines():
                try:
                    lines.append(json.loads(line))
                except ValueError:
                    break  # a client that was stopped leaves half a line, and nothing behind it
            first = next((line for line in lines if line.get("type") == "user"), None)
            if first is not None:
                found[_text(first).partition(":")[0]] = lines
        return [self._record(plan, found.get(plan.label, ())) for plan in self._part.crew]

    def _record(self, plan: AgentPlan, lines: Sequence[dict[str, Any]]) -> AgentRecord:
        record = AgentRecord(plan.label, plan.model)
        for line in lines:
            if line.get("type") != "assistant":
                continue
            text = _text(line)
            if line.get("isApiErrorMessage"):
                record.errors.append(SeenError(int(line.get("apiErrorStatus") or 0), text, 0.0))
                record.finish(AgentEnd.DIED, self._clock.monotonic(), text)
            elif text == plan.final_text:
                record.finish(AgentEnd.FINISHED, self._clock.monotonic())
        return record


def _text(line: Mapping[str, Any]) -> str:
    content = line.get("message", {}).get("content", "")
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content if block.get("type") == "text")
