"""Find the files to read: the newest session, a named one, files and folders, or all since a time.

Rules: (1) home folder and environment are arguments; (2) a session is its main transcript with
everything in the folder of the same name; (3) every real file is read once, whichever links lead to
it; (4) a named file that does not exist is a usage error, one that cannot be read is a problem of
the report; (5) what cannot be listed is not guessed; file names decide only where that saves
opening a file.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import islice
from math import inf
from pathlib import Path

from jackline.errors import NothingFoundError, UnreadableError
from jackline.foreign_files import read_beginning

_ROLLOUT_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
_AGENT = "agent-"
_START = 4_096
_LOGS = (".jsonl", ".ndjson", ".json", ".log", ".txt", ".out", ".output")
_MOST_NAMED = 3
_DEEPEST = 100


@dataclass(frozen=True, slots=True)
class StoredSession:
    """One session of one client: its id, its main file if there is one, and its folder if any."""

    session_id: str
    main: Path | None
    folder: Path | None

    @classmethod
    def of_main(cls, main: Path) -> StoredSession:
        """The session with this main transcript, and the folder beside it."""
        folder = main.with_suffix("")
        return cls(main.stem, main, folder if folder.is_dir() else None)

    def files(self) -> list[Path]:
        """Every file of the session, the main one first."""
        return [path for path in (self.main, *self._beside(), *self._inside()) if path is not None]

    def _inside(self) -> Iterator[Path]:
        if self.folder is not None:
            for path in sorted(self.folder.rglob("*.json*")):
                if not path.name.endswith(".meta.json"):
                    yield path

    def _beside(self) -> Iterator[Path]:
        """Sub-agents that older clients saved beside the main file."""
        if self.main is None or self.main.name.startswith("rollout-"):
            return
        for path in sorted(self.main.parent.glob(f"{_AGENT}*.jsonl")):
            try:
                if self.session_id.encode() in read_beginning(path, _START):
                    yield path
            except OSError:
                continue

    def parts(self, prefix: str) -> Iterator[tuple[str, list[Path]]]:
        """Its runs and agents whose ids begin so, each with the main file: it has the reports."""
        main = [self.main] if self.main is not None else []
        runs: dict[str, list[Path]] = {}
        for path in self.files():
            agent = path.stem.removeprefix(_AGENT)
            if path.name.startswith(_AGENT) and agent.startswith(prefix):
                yield agent, [*main, path]
            for run in {path.parent.name, path.stem}:
                if run.startswith(prefix) and "workflows" in path.parts:
                    runs.setdefault(run, [*main]).append(path)
        yield from runs.items()

    def modified(self) -> float:
        """When anything in the session last changed, in seconds since 1970."""
        return max((_modified(path) for path in (self.main, *self._inside()) if path), default=0.0)


@dataclass(frozen=True, slots=True)
class ClientFolders:
    """The folders in which Claude Code and Codex save everything."""

    claude: Path
    codex: Path

    @classmethod
    def of(cls, home: Path, environment: Mapping[str, str]) -> ClientFolders:
        """The folders of the user with this home, unless the environment moves them."""
        claude = environment.get("CLAUDE_CONFIG_DIR")
        codex = environment.get("CODEX_HOME")
        return cls(
            Path(claude) if claude else home / ".claude",
            Path(codex) if codex else home / ".codex",
        )

    @classmethod
    def of_process(cls, environment: Mapping[str, str]) -> ClientFolders:
        """The folders of a process with this environment."""
        home = environment.get("USERPROFILE" if os.name == "nt" else "HOME")
        return cls.of(Path(home or Path.home()), environment)

    def sessions(self) -> list[StoredSession]:
        """All sessions on this machine, of both clients."""
        found = []
        for project in _folders(self.claude / "projects"):
            mains = {p.stem: p for p in project.glob("*.jsonl") if not p.name.startswith(_AGENT)}
            folders = {
                p.name: p
                for p in _folders(project)
                if (p / "subagents").is_dir() or (p / "workflows").is_dir()
            }
            for session_id in sorted(mains.keys() | folders.keys()):
                main, folder = mains.get(session_id), folders.get(session_id)
                found.append(StoredSession(session_id, main, folder))
        for name in ("sessions", "archived_sessions"):
            for path in sorted((self.codex / name).rglob("rollout-*.jsonl")):
                named = _ROLLOUT_ID.search(path.stem)
                found.append(StoredSession(named[0] if named else path.stem, path, None))
        return found

    def claude_transcript(self, session_id: str) -> Path | None:
        """The main transcript of a session of Claude Code; None when there is none."""
        if not session_id or "/" in session_id or "\\" in session_id:
            return None
        # The folder's name is made of the project's, in a way that changed with versions.
        paths = (folder / f"{session_id}.jsonl" for folder in _folders(self.claude / "projects"))
        return next((path for path in paths if path.is_file()), None)

    def codex_rollout(self, thread_id: str) -> Path | None:
        """The newest rollout of a thread of Codex; None when there is none."""
        if not thread_id or not all(letter.isalnum() or letter == "-" for letter in thread_id):
            return None
        found = (self.codex / "sessions").glob(f"*/*/*/rollout-*-{thread_id}.jsonl")
        return max(found, default=None)


@dataclass(frozen=True, slots=True)
class Source:
    """One file to read, or the problem with a path that cannot be read.

    `named` says whether the file must be a transcript, so that it is a problem if it is none.
    """

    path: Path
    size: int = 0
    named: bool = True
    problem: str | None = None

    @classmethod
    def of(cls, path: Path, *, named: bool = True) -> Source:
        """The file at this path."""
        try:
            found = path.stat()
        except OSError as error:
            return cls.unreadable(path, error)
        # Opening a pipe without a writer would block for ever.
        odd = None if stat.S_ISREG(found.st_mode) else "not a regular file, so not read"
        return cls(path, found.st_size, named, odd)

    @classmethod
    def unreadable(cls, path: Path, error: OSError) -> Source:
        """A path that the system refuses."""
        reason = error.strerror or type(error).__name__
        return cls(path, problem=f"cannot be read: {reason}")


def find(
    wanted: Sequence[str], *, stores: ClientFolders, since: datetime | None = None
) -> list[Source]:
    """The files for these ids and paths; without any, those of the newest session."""
    if wanted:
        found: list[Source] = []
        for name in wanted:
            path = Path(name).expanduser()
            try:
                found += find_path(path)
            except UnreadableError:
                if path.suffix or len(path.parts) > 1:
                    raise UnreadableError(
                        f"There is no file or folder {name}.",
                        hint="Check the path; `jackline why` alone takes the newest session of this"
                        " machine.",
                    ) from None
                found += find_id(name, stores=stores)
        start = -inf if since is None else since.timestamp()
        return _once(s for s in found if s.problem or _modified(s.path) >= start)
    if since is not None:
        sessions = [s for s in stores.sessions() if s.modified() >= since.timestamp()]
        return _once(Source.of(path) for s in sessions for path in s.files())
    newest = max(stores.sessions(), key=StoredSession.modified, default=None)
    if newest is None:
        raise NothingFoundError(
            f"There is no session under {stores.claude} or {stores.codex}.",
            hint="Name a transcript, a log or a folder: jackline why PATH",
        )
    return _once(map(Source.of, newest.files()))


def find_path(path: Path, *, most: float = inf) -> list[Source]:
    """The transcript there with its session's files, or those among a folder's `most` entries."""
    # Path's own tests raise for a name that is too long.
    if os.path.isdir(path):  # noqa: PTH112
        return _once(_FolderWalk(most).sources(path))
    if os.path.lexists(path):
        others = (p for p in StoredSession.of_main(path).files() if p != path)
        return _once(map(Source.of, (path, *others)))
    raise UnreadableError(f"There is no file or folder {path}.", hint="Check the path.")


def find_id(prefix: str, *, stores: ClientFolders) -> list[Source]:
    """The files of the one session, run or agent whose id starts so, never a file of that name."""
    sessions = stores.sessions()
    found = {s.session_id: s.files() for s in sessions if s.session_id.startswith(prefix)}
    if not found:
        found = {name: paths for session in sessions for name, paths in session.parts(prefix)}
    if len(found) == 1:
        return _once(map(Source.of, next(iter(found.values()))))
    if not found:
        raise UnreadableError(
            f"No session, run or agent on this machine has an id that starts with {prefix}.",
            hint=f"Name its file or folder; looked in {stores.claude} and {stores.codex}."
            " The text of an error: `jackline why --text`.",
        )
    shown = ", ".join([*sorted(found)[:_MOST_NAMED], *["…"][: len(found) > _MOST_NAMED]])
    raise UnreadableError(
        f"{len(found)} ids start with {prefix}: {shown}.",
        hint="Write more of the id.",
    )


class _FolderWalk:
    """Finds the transcripts below one folder, among its first `most` entries."""

    def __init__(self, most: float) -> None:
        self._left = most
        self._visited: set[str] = set()

    def sources(self, folder: Path) -> Iterator[Source]:
        """Everything under a folder; a session's folder brings its main transcript along."""
        whole = Path(os.path.abspath(folder))  # noqa: PTH100 -- "." and ".." have no name of their own
        main = whole.parent / f"{whole.name}.jsonl"
        if main.is_file() and (folder / "subagents").is_dir():
            yield Source.of(main)
        found = list(self._walk(folder, frozenset({_real_path(folder)})))
        yield from found or [Source(folder, problem="a folder without transcripts")]

    def _walk(self, folder: Path, above: frozenset[str]) -> Iterator[Source]:
        self._visited.add(_real_path(folder))
        if len(above) > _DEEPEST:
            yield Source(folder, problem="too deep below the named folder, so not read")
            return
        try:
            with os.scandir(folder) as listed:
                most = None if self._left == inf else int(self._left) + 1
                entries = sorted(islice(listed, most), key=lambda entry: entry.name)
        except OSError as error:
            yield Source.unreadable(folder, error)
            return
        for entry in entries:
            self._left -= 1
            if self._left == -1:
                yield Source(folder, problem="too many entries: the rest is left out")
            if self._left < 0:
                return
            path = folder / entry.name
            try:
                is_folder = entry.is_dir()
            except OSError as error:
                yield Source.unreadable(path, error)
                continue
            if is_folder:
                real = _real_path(path)
                if real in above:
                    yield Source(path, problem="a link back to a folder above it, not followed")
                elif real not in self._visited:
                    yield from self._walk(path, above | {real})
            elif path.name.lower().endswith(_LOGS) and not path.name.lower().endswith(".meta.json"):
                yield Source.of(path, named=path.suffix.lower() == ".jsonl")


def _folders(parent: Path) -> list[Path]:
    try:
        return sorted(path for path in parent.iterdir() if path.is_dir())
    except OSError:
        return []


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _once(sources: Iterable[Source]) -> list[Source]:
    found: dict[str, Source] = {}
    for source in sources:
        found.setdefault(_real_path(source.path), source)
    return list(found.values())


def _real_path(path: Path) -> str:
    """One name for all paths that lead to the same file."""
    if path.is_symlink():
        return _resolved(path)
    return os.path.join(_resolved(path.parent), os.path.normcase(path.name))  # noqa: PTH118


@lru_cache(maxsize=4_096)
def _resolved(path: Path) -> str:
    # `normcase` makes names equal that are equal on Windows.
    return os.path.normcase(os.path.realpath(path))
