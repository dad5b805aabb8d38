"""Run a crew as sub-agents of the real Claude Code, in an empty home.

Rules: (1) the client is found on this machine, never downloaded; a client that was named and
cannot run is an error with a next step, a missing one is not; (2) nothing of the user's home or
settings reaches the client, and its credential is a dummy; (3) the client's own transcripts say
what became of each agent; (4) a proxy before the server passes bytes, ends and resets on
unchanged and counts errors: a status of 400 or more, an error event, or an answer that does not
end; (5) a fleet that is stopped stops its client.
Not here: what the model says to start the crew (drill.py), fetching a client for tests
(tests/real_clients/).
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from httptools import HttpResponseParser

from jackline.clock import SystemClock
from jackline.drills.builtin_client import AgentEnd, AgentPlan, AgentRecord, SeenError
from jackline.drills.drill import CrewPart
from jackline.drills.drill_clock import DrillClock
from jackline.drills.processes import stop
from jackline.errors import UnreadableError
from jackline.programs import find_program
from jackline.simulator.http_wire import reset

VERSION_PATIENCE_S = 60


@dataclass(frozen=True, slots=True)
class InstalledClaude:
    """A real client: its program and its version."""

    program: Path
    version: str


def claude_on_path() -> InstalledClaude | None:
    """The client that a shell would start, or None."""
    found = find_program("claude")
    if found is None:
        return None
    version = _version(Path(found))
    return None if version is None else InstalledClaude(Path(found), version)


def claude_at(program: Path) -> InstalledClaude:
    """The client that was named."""
    program = program.absolute()
    version = _version(program)
    if version is None:
        raise UnreadableError(
            f"{program} is not a Claude Code that can be run here",
            next="give its program with --claude PATH, or take --client builtin",
        )
    return InstalledClaude(program, version)


def _version(program: Path) -> str | None:
    try:
        told = subprocess.run(  # noqa: S603 -- the user's own program, named by the user or the PATH
            [str(program), "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=VERSION_PATIENCE_S,
            check=True,
        ).stdout.decode("utf-8", "replace")
    except (OSError, subprocess.SubprocessError):
        return None
    return told.split(maxsplit=1)[0] if "Claude Code" in told else None


READ_AT_ONCE = 65_536
LOOPBACK = "127.0.0.1"


class ProxiedError(NamedTuple):
    """An error in a word, and the real seconds since its request began."""

    word: str
    waited: float


class CountingProxy:
    """A relay on a port of its own; `errors` holds what came back, in order."""

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target)
        self._tasks: set[asyncio.Task[None]] = set()
        self.errors: list[ProxiedError] = []

    @property
    def url(self) -> str:
        """The base URL to give to a client."""
        return f"http://{LOOPBACK}:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
            return  # the drill is over: nobody to tell
        finally:
            writer.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        watch = _Watch(self.errors)
        try:
            answers, asking = await asyncio.open_connection(
                self._target.hostname, self._target.port
            )
        except OSError:
            self.errors.append(ProxiedError("refused", 0.0))
            reset(writer)
            return
        forth = asyncio.create_task(_forth(reader, asking, watch))
        try:
            while data := await answers.read(READ_AT_ONCE):
                watch.answer(data)
                writer.write(data)
                await writer.drain()
            watch.ended("ended early")
        except ConnectionError:
            watch.ended("reset")
            reset(writer)
        finally:
            forth.cancel()
            await asyncio.gather(forth, return_exceptions=True)
            asking.close()


async def _forth(reader: asyncio.StreamReader, asking: asyncio.StreamWriter, watch: _Watch) -> None:
    """Carry the client's bytes until it leaves; then its server shall see that at once."""
    with suppress(ConnectionError):
        while data := await reader.read(READ_AT_ONCE):
            watch.request(data)
            asking.write(data)
            await asking.drain()
    watch.client_left = True
    asking.transport.abort()


class _Watch:
    """What is seen of the exchanges of one connection."""

    def __init__(self, errors: list[ProxiedError]) -> None:
        self._errors = errors
        self._clock = SystemClock()
        self._asked_at = 0.0
        self._parser: HttpResponseParser | None = None
        self._failed = False
        self._tail = b""
        self.client_left = False

    def request(self, data: bytes) -> None:
        """Bytes of the client; with no answer under way they begin a new exchange."""
        if self._parser is None and data.startswith(b"POST "):
            self._parser, self._failed, self._tail = HttpResponseParser(self), False, b""
            self._asked_at = self._clock.monotonic()

    def answer(self, data: bytes) -> None:
        """Bytes of the server."""
        if self._parser is not None:
            self._parser.feed_data(data)

    def ended(self, how: str) -> None:
        """The server has closed the connection."""
        if self._parser is not None and not self.client_left:
            self._fail(how)

    def on_headers_complete(self) -> None:
        """The parser has read the status."""
        status = self._parser.get_status_code() if self._parser is not None else 0
        if status >= 400:
            self._fail(str(status))

    def on_body(self, body: bytes) -> None:
        """The parser has read a piece of the body."""
        if b"event: error" in self._tail + body:
            self._fail("error event")
        self._tail = body[-16:]

    def on_message_complete(self) -> None:
        """The parser has read a whole answer."""
        self._parser = None

    def _fail(self, word: str) -> None:
        """Write an error down, once for each exchange."""
        if not self._failed:
            self._failed = True
            self._errors.append(ProxiedError(word, self._clock.monotonic() - self._asked_at))


PROMPT = "TASK: have every part of this project reviewed, all at the same time."
NEXT_PROMPT = "Now the next parts, please."
# On Windows a program does not start without these.
_NEEDED_BY_SYSTEM = ("PATH", "SYSTEMROOT", "TEMP", "TMP", "COMSPEC", "PATHEXT")


class ClaudeFleet:
    """One session of `claude -p`; each time it is asked, its model starts a share of the crew."""

    def __init__(self, claude: InstalledClaude, part: CrewPart, url: str, pace: DrillClock) -> None:
        self._claude = claude
        self._crew = part.crew
        self._waves = part.waves
        self._rest = part.rest
        self._pace = pace
        self._witness = CountingProxy(url)
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
                record.finish(AgentEnd.DIED, self._pace.monotonic(), words)
            elif words == plan.last_words:
                record.finish(AgentEnd.FINISHED, self._pace.monotonic())
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
