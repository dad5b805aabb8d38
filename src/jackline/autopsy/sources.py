"""Find the files to read: the newest session, a named one, files and folders, or all since a time.

Laws: (1) every real file once, whichever links lead to it; (2) what was named and is not there is
an error of the asker, what is there and cannot be read becomes a trouble of the report; (3) files
are judged by their content later, by name here only as far as it saves opening them; (4) a folder
is looked through to a bounded depth and, for a model, to a number of entries.
Not here: where clients keep their sessions (stores.py), opening files (reading.py).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from itertools import islice
from math import inf
from pathlib import Path

from jackline.autopsy.stores import Session, Stores, session_of
from jackline.errors import NothingFoundError, UnreadableError

_LOGS = (".jsonl", ".ndjson", ".json", ".log", ".txt", ".out", ".output")
_NAMED_AT_MOST = 3
_DEEPEST = 100


@dataclass(frozen=True, slots=True)
class Source:
    """One file to read, or something in its place that cannot be read, with the reason why.

    `named` tells whether the file must be a transcript, so that it is a trouble if it is none.
    """

    path: Path
    size: int = 0
    named: bool = True
    problem: str | None = None


def find(wanted: Sequence[str], *, stores: Stores, since: datetime | None = None) -> list[Source]:
    """The files that answer to what was asked; nothing asked means the newest session."""
    if wanted:
        paths = [source for word in wanted for source in _named(word, stores)]
        return _once(_newer(paths, since))
    if since is not None:
        sessions = [s for s in stores.sessions() if s.modified() >= since.timestamp()]
        return _once(_sources(path for s in sessions for path in s.files()))
    newest = max(stores.sessions(), key=Session.modified, default=None)
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


def find_id(word: str, *, stores: Stores) -> list[Source]:
    """The files of the session, run or agent with this id, never a file of that name."""
    return _once(_sources(_with_id(word, stores)))


def _named(word: str, stores: Stores) -> Iterable[Source]:
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


def _with_id(word: str, stores: Stores) -> list[Path]:
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


def _parts_with_id(word: str, sessions: Iterable[Session]) -> Iterator[tuple[str, list[Path]]]:
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
        if since is None or source.problem or _modified(source.path) >= since.timestamp():
            yield source


def _modified(path: Path) -> float:
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
