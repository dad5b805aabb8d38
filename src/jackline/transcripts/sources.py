"""Find the files to read: the newest session, a named one, files and folders, or all since a time.

Rules: (1) home folder and environment are arguments; (2) a session is its main transcript with
everything in the folder of the same name; (3) every real file is read once, whichever links lead to
it; (4) a named file that does not exist is a usage error, one that cannot be read is a problem of
the report; (5) what cannot be listed is not guessed; file names decide only where that saves
opening a file.
Not here: opening files (reader.py).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from itertools import islice
from math import inf
from pathlib import Path

from jackline.errors import NothingFoundError, UnreadableError
from jackline.foreign_files import read_beginning

_ROLLOUT_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
_AGENT = "agent-"
_LOOK = 4_096


@dataclass(frozen=True, slots=True)
class StoredSession:
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
class ClientFolders:
    """The folders in which Claude Code and Codex keep everything."""

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

    def sessions(self) -> list[StoredSession]:
        """All sessions on this machine, of both clients."""
        return [*self._claude_sessions(), *self._codex_sessions()]

    def _claude_sessions(self) -> Iterator[StoredSession]:
        for project in _folders(self.claude / "projects"):
            mains = {p.stem: p for p in project.glob("*.jsonl") if not p.name.startswith(_AGENT)}
            folders = {
                p.name: p
                for p in _folders(project)
                if (p / "subagents").is_dir() or (p / "workflows").is_dir()
            }
            for session_id in sorted(mains.keys() | folders.keys()):
                yield StoredSession(session_id, mains.get(session_id), folders.get(session_id))

    def _codex_sessions(self) -> Iterator[StoredSession]:
        for shelf in ("sessions", "archived_sessions"):
            for path in sorted((self.codex / shelf).rglob("rollout-*.jsonl")):
                named = _ROLLOUT_ID.search(path.stem)
                yield StoredSession(named[0] if named else path.stem, path, None)


def session_of(main: Path) -> StoredSession:
    """The session whose main transcript this file is, by the folder beside it."""
    folder = main.with_suffix("")
    return StoredSession(main.stem, main, folder if folder.is_dir() else None)


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


_LOGS = (".jsonl", ".ndjson", ".json", ".log", ".txt", ".out", ".output")
_NAMED_AT_MOST = 3
_DEEPEST = 100


@dataclass(frozen=True, slots=True)
class Source:
    """One file to read, or something in its place that cannot be read, with the reason why.

    `named` tells whether the file must be a transcript, so that it is a problem if it is none.
    """

    path: Path
    size: int = 0
    named: bool = True
    problem: str | None = None


def find(
    wanted: Sequence[str], *, stores: ClientFolders, since: datetime | None = None
) -> list[Source]:
    """The files that answer to what was asked; nothing asked means the newest session."""
    if wanted:
        paths = [source for word in wanted for source in _named(word, stores)]
        return _once(_newer(paths, since))
    if since is not None:
        sessions = [s for s in stores.sessions() if s.modified() >= since.timestamp()]
        return _once(_sources(path for s in sessions for path in s.files()))
    newest = max(stores.sessions(), key=StoredSession.modified, default=None)
    if newest is None:
        raise NothingFoundError(
            f"There is no session under {stores.claude} or {stores.codex}.",
            next="Name a transcript, a log or a folder: jackline why PATH",
        )
    return _once(_sources(newest.files()))


def find_path(path: Path, *, most: float = inf) -> list[Source]:
    """The transcript there with its session's files, or those among a folder's `most` entries."""
    found = _at(path, most)
    if found is None:
        raise UnreadableError(f"There is no file or folder {path}.", next="Check the path.")
    return _once(found)


def find_id(word: str, *, stores: ClientFolders) -> list[Source]:
    """The files of the session, run or agent with this id, never a file of that name."""
    return _once(_sources(_with_id(word, stores)))


def _named(word: str, stores: ClientFolders) -> Iterable[Source]:
    path = Path(word).expanduser()
    found = _at(path)
    if found is not None:
        return found
    if path.suffix or len(path.parts) > 1:
        raise UnreadableError(
            f"There is no file or folder {word}.",
            next="Check the path; `jackline why` alone takes the newest session of this machine.",
        )
    return _sources(_with_id(word, stores))


def _at(path: Path, most: float = inf) -> Iterable[Source] | None:
    """What is at this path; None when nothing is."""
    if path.is_dir():
        return _in_folder(path, most)
    if path.exists() or path.is_symlink():
        return _sources([path, *(p for p in session_of(path).files() if p != path)])
    return None


def _with_id(word: str, stores: ClientFolders) -> list[Path]:
    """The files of the one session, run or agent whose id starts with this word."""
    sessions = stores.sessions()
    found = {s.session_id: s.files() for s in sessions if s.session_id.startswith(word)}
    if not found:
        found = dict(_parts_with_id(word, sessions))
    if len(found) == 1:
        return next(iter(found.values()))
    if not found:
        raise UnreadableError(
            f"No session, run or agent on this machine has an id that starts with {word}.",
            next=f"Name its file or folder instead; looked in {stores.claude} and {stores.codex}.",
        )
    shown = ", ".join([*sorted(found)[:_NAMED_AT_MOST], *["…"][: len(found) > _NAMED_AT_MOST]])
    raise UnreadableError(
        f"{len(found)} ids start with {word}: {shown}.",
        next="Write more of the id.",
    )


def _parts_with_id(
    word: str, sessions: Iterable[StoredSession]
) -> Iterator[tuple[str, list[Path]]]:
    """Runs and agents by id; each comes with its session's main file, which knows what was told."""
    for session in sessions:
        files = session.files()
        main = [session.main] if session.main is not None else []
        runs: dict[str, list[Path]] = {}
        for path in files:
            agent = path.stem.removeprefix("agent-")
            if path.name.startswith("agent-") and agent.startswith(word):
                yield agent, [*main, path]
            for run in {path.parent.name, path.stem}:
                if run.startswith(word) and "workflows" in path.parts:
                    runs.setdefault(run, [*main]).append(path)
        yield from runs.items()


def _in_folder(folder: Path, most: float) -> Iterator[Source]:
    """Everything under a folder; a session's folder brings its main transcript along."""
    whole = Path(os.path.abspath(folder))  # noqa: PTH100 -- "." and ".." have no name of their own
    main = whole.parent / f"{whole.name}.jsonl"
    if main.is_file() and (folder / "subagents").is_dir():
        yield from _sources([main])
    empty = True
    for source in _walk(folder, frozenset({_real(folder)}), _Seen(most)):
        empty = False
        yield source
    if empty:
        yield Source(folder, problem="a folder without transcripts")


@dataclass(slots=True)
class _Seen:
    """How many more entries may be looked at, and which folders were."""

    left: float
    folders: set[str] = field(default_factory=set)


def _walk(folder: Path, above: frozenset[str], seen: _Seen) -> Iterator[Source]:
    seen.folders.add(_real(folder))
    if len(above) > _DEEPEST:
        yield Source(folder, problem="too deep below the folder that was named, not looked at")
        return
    try:
        with os.scandir(folder) as listed:
            most = None if seen.left == inf else int(seen.left) + 1
            entries = sorted(islice(listed, most), key=lambda entry: entry.name)
    except OSError as error:
        yield Source(folder, problem=_reason(error))
        return
    for entry in entries:
        seen.left -= 1
        if seen.left == -1:
            yield Source(folder, problem="too many entries in what was named: the rest is left out")
        if seen.left < 0:
            return
        path = folder / entry.name
        try:
            is_folder = entry.is_dir()
        except OSError as error:
            yield Source(path, problem=_reason(error))
            continue
        if not is_folder:
            if _may_be_transcript(path):
                yield from _sources([path], named=path.suffix.lower() == ".jsonl")
            continue
        real = _real(path)
        if real in above:
            yield Source(path, problem="a link back to a folder it lies in, not followed")
        elif real not in seen.folders:
            yield from _walk(path, above | {real}, seen)


def _may_be_transcript(path: Path) -> bool:
    name = path.name.lower()
    return name.endswith(_LOGS) and not name.endswith(".meta.json")


def _sources(paths: Iterable[Path], *, named: bool = True) -> Iterator[Source]:
    for path in paths:
        try:
            found = path.stat()
        except OSError as error:
            yield Source(path, problem=_reason(error))
            continue
        # A pipe without a writer would be waited for without end.
        odd = None if stat.S_ISREG(found.st_mode) else "not a regular file, so not read"
        yield Source(path, found.st_size, named, odd)


def _newer(sources: Iterable[Source], since: datetime | None) -> Iterator[Source]:
    for source in sources:
        if since is None or source.problem or _modified_at(source.path) >= since.timestamp():
            yield source


def _modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _once(sources: Iterable[Source]) -> list[Source]:
    found: dict[str, Source] = {}
    for source in sources:
        found.setdefault(_real(source.path), source)
    return list(found.values())


def _real(path: Path) -> str:
    """One name for all paths that lead to the same file."""
    if path.is_symlink():
        return _resolved(path)
    return os.path.join(_resolved(path.parent), os.path.normcase(path.name))  # noqa: PTH118


@lru_cache(maxsize=4_096)
def _resolved(path: Path) -> str:
    # `normcase` folds what Windows does not tell apart.
    return os.path.normcase(os.path.realpath(path))


def _reason(error: OSError) -> str:
    return f"cannot be read: {error.strerror or type(error).__name__}"
