"""Run one session of the real Claude Code, bare or with Jackline's plugin and service.

Laws: (1) nothing of the user's own home, settings or state reaches client or service, and the
credential is a dummy; (2) the service is a process of its own, started as a user would start it;
(3) whatever was started is ended, also when the drill is interrupted.
Not here: what the model says (subagent_wall_mind.py), what comes of it (subagent_wall.py).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from jackline.assembly.state_dir import StateDir
from jackline.clients.plugin_files import plugin_files
from jackline.drills.finding_clients import ClaudeCode
from jackline.drills.killing import Programs
from jackline.drills.stopping import stop
from jackline.drills.subagent_wall_mind import OURS
from jackline.errors import InternalError
from jackline.programs import own_command

PROMPT = "TASK: have every part of this project reviewed, all at the same time."
PATIENCE_S = 240.0
_OWN = ("-m", "jackline")
# On Windows a program does not start without these.
_NEEDED_BY_SYSTEM = ("SYSTEMROOT", "TEMP", "TMP", "COMSPEC", "PATHEXT")
# A wall is told at once, and ends the agents that meet it: their parent is to go on with them.
_CONFIG = """\
[hold]
quota = "0.5s"
[run]
on_quota = "abort"
[agents]
tools = ["Bash"]
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a client works, and by what."""

    folder: Path
    claude: ClaudeCode
    upstream: str

    @property
    def project(self) -> Path:
        """The folder that the client works in."""
        return self.folder / "project"

    @property
    def environment(self) -> Mapping[str, str]:
        """For client and service alike."""
        path = f"{self._bin}{os.pathsep}{os.environ.get('PATH', '')}"
        return {
            **{name: os.environ[name] for name in _NEEDED_BY_SYSTEM if name in os.environ},
            "PATH": path,
            "HOME": str(self.folder / "home"),
            "USERPROFILE": str(self.folder / "home"),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-drill",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "JACKLINE_STATE": str(self.folder / "state"),
            "JACKLINE_CONFIG": str(self.folder / "jackline.toml"),
            "JACKLINE_PORT": "0",
            "JACKLINE_UPSTREAM": self.upstream,
        }

    @property
    def _bin(self) -> Path:
        """Where `claude` is the client: agents of the service find theirs by the PATH."""
        program = self.claude.program
        return program.parent if program.stem == "claude" else self.folder / "bin"

    def lay_out(self) -> None:
        """Make the folders and files."""
        for name in ("home", "project", "bin"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "jackline.toml").write_text(_CONFIG, encoding="utf-8")
        if self._bin == self.folder / "bin":
            (self._bin / "claude").symlink_to(self.claude.program)
        for name, text in plugin_files(own_command()).items():
            file = self.folder / "plugin" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")


async def bare_session(place: Place) -> None:
    """Run the client to its end, straight against the provider."""
    await asyncio.to_thread(place.lay_out)
    await _run(place, place.upstream)


async def session_with_jackline(place: Place) -> None:
    """Run the client to its end, with the plugin and through the service."""
    await asyncio.to_thread(place.lay_out)
    async with _service(place) as url:
        await _run(place, url, "--plugin-dir", str(place.folder / "plugin"))


@asynccontextmanager
async def _service(place: Place) -> AsyncIterator[str]:
    programs = Programs(place.folder, place.environment)
    await programs.output(*_OWN, "up", "-d")
    try:
        running = await asyncio.to_thread(StateDir(place.folder / "state").running)
        if running is None:
            raise InternalError(
                "the service of the drill did not start", next="jackline up shows why"
            )
        yield running.url
    finally:
        await programs.output(*_OWN, "down")


async def _run(place: Place, url: str, *options: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(str(place.claude.program), "-p", PROMPT, "--model", "claude-sonnet-4-6", *options),
        *("--allowedTools", f"Bash,Agent,{OURS[:-2]}"),
        cwd=place.project,
        env={**place.environment, "ANTHROPIC_BASE_URL": url},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            await process.wait()
    except TimeoutError:
        return  # what it has not done by then is left behind
    finally:
        await stop(process)
