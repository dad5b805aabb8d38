"""Know where clients keep their sessions on a machine, and which files make up a session.

Laws: (1) home and environment come in; (2) a session is its main transcript with everything in the
folder of the same name; (3) what cannot be listed is not guessed.
Not here: what the user asked for (sources.py), what the files say (reading.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from jackline.foreign_files import read_beginning

_ROLLOUT_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
_AGENT = "agent-"
_LOOK = 4_096


@dataclass(frozen=True, slots=True)
class Session:
    """One session of one client: its id, its main file if it is there, and its folder if it is."""

    session_id: str
    main: Path | None
    folder: Path | None

    def files(self) -> list[Path]:
        """Every file of the session, the main one first."""
        return [path for path in (self.main, *self._beside(), *self._inside()) if path is not None]

    def _inside(self) -> Iterator[Path]:
        if self.folder is not None:
            for path in sorted(self.folder.rglob("*.json*")):
                if not path.name.endswith(".meta.json"):
                    yield path

    def _beside(self) -> Iterator[Path]:
        """Sub-agents of clients that still kept them beside the main file."""
        if self.main is None or self.main.name.startswith("rollout-"):
            return
        wanted = self.session_id.encode()
        for path in sorted(self.main.parent.glob(f"{_AGENT}*.jsonl")):
            if wanted in _beginning(path):
                yield path

    def modified(self) -> float:
        """When anything in the session last changed, in seconds since 1970."""
        return max((_modified(path) for path in (self.main, *self._inside()) if path), default=0.0)


@dataclass(frozen=True, slots=True)
class Stores:
    """The folders in which Claude Code and Codex keep everything."""

    claude: Path
    codex: Path

    @classmethod
    def of(cls, home: Path, environment: Mapping[str, str]) -> Stores:
        """The folders of the user with this home, unless the environment moves them."""
        claude = environment.get("CLAUDE_CONFIG_DIR")
        codex = environment.get("CODEX_HOME")
        return cls(
            Path(claude) if claude else home / ".claude",
            Path(codex) if codex else home / ".codex",
        )

    def sessions(self) -> list[Session]:
        """All sessions on this machine, of both clients."""
        return [*self._claude_sessions(), *self._codex_sessions()]

    def _claude_sessions(self) -> Iterator[Session]:
        for project in _folders(self.claude / "projects"):
            mains = {p.stem: p for p in project.glob("*.jsonl") if not p.name.startswith(_AGENT)}
            folders = {
                p.name: p
                for p in _folders(project)
                if (p / "subagents").is_dir() or (p / "workflows").is_dir()
            }
            for session_id in sorted(mains.keys() | folders.keys()):
                yield Session(session_id, mains.get(session_id), folders.get(session_id))

    def _codex_sessions(self) -> Iterator[Session]:
        for shelf in ("sessions", "archived_sessions"):
            for path in sorted((self.codex / shelf).rglob("rollout-*.jsonl")):
                named = _ROLLOUT_ID.search(path.stem)
                yield Session(named[0] if named else path.stem, path, None)


def session_of(main: Path) -> Session:
    """The session whose main transcript this file is, by the folder beside it."""
    folder = main.with_suffix("")
    return Session(main.stem, main, folder if folder.is_dir() else None)


def _folders(parent: Path) -> list[Path]:
    try:
        return sorted(path for path in parent.iterdir() if path.is_dir())
    except OSError:
        return []


def _beginning(path: Path) -> bytes:
    try:
        return read_beginning(path, _LOOK)
    except OSError:
        return b""


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
