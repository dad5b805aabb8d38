"""Hash the source files of a flow as they are run, save that with the run, and refuse others.

Rules: (1) a file is read once: the bytes that are hashed are those that are compiled and run, and
cached bytecode is neither read nor written; (2) once `only` was called, a file without its digest
on that list is refused before anything of it runs, and so is what is no source: extension modules,
bytecode alone, archives; (3) Python's own library, site-packages and Jackline are the environment
and are not checked; (4) what is imported before the first flow is loaded is not known here; (5)
only regular files of a bounded size are read; (6) the service holds everybody's keys: while it
lives, no flow's file is loaded and no module is imported for a function there; what needs one is
left to a process of its own: `jackline … --woken`, or the command that a person types; (7) the
digests that are saved with a run are of the bytes that were run by the process that a person has
started, and are replaced when a person resumes the run; (8) they are saved in a signed log of the
run before the run is shown as parked, and a process that was woken adds nothing to them; (9)
without them, or if this installation did not sign them, a run does not wake by itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

import jackline
from jackline.clock import Clock
from jackline.errors import UnreadableError, UsageError
from jackline.flows.records import CallKind, EntryRecord, RunRecord, RunState, call_key, task_id_of
from jackline.flows.store.run_store import Claim, RunStore
from jackline.foreign_files import read_foreign


class UserCodeError(UsageError):
    """Code of a user's flow was to run in a process that must not run any."""


_services: list[object] = []
"""Those that keep it out now: several may live in one process."""


@contextmanager
def no_user_code() -> Iterator[None]:
    """Within this, no code of a flow is loaded anywhere in this process, in no thread."""
    service = object()
    _services.append(service)
    try:
        yield
    finally:
        _services.remove(service)


def check_user_code(what: str, *, next_step: str = "jackline resources --retry") -> None:
    """UserCodeError if code of users is kept out of this process."""
    if _services:
        raise UserCodeError(
            f"The service runs no code of flows: {what} is left to you.",
            hint=f"In a terminal: {next_step}",
        )


Digests = Mapping[str, str]
"""SHA-256 in hexadecimal, by the file's real path."""
_MOST_BYTES = 32 << 20
"""Larger than any source that people write, small enough to be read by every look at a run."""
_SEVERAL = ""
"""The digest of a file that one process has run with two contents: it is no file's."""


class ChangedSourceError(UnreadableError):
    """A file of a flow is not what it was when a person started the run; nothing of it has run."""


class ExecutedSources:
    """What this process has run of the flows' own files, and may run."""

    def __init__(self) -> None:
        self._run: dict[str, str] = {}
        self._flows: dict[str, tuple[str, str]] = {}
        """The file and digest of each flow's file, by the name of its module."""
        self._only: Digests | None = None
        self._folder = ""
        self.refused: Callable[[str], None] = lambda _why: None
        """Called with the reason, in whatever thread, before a refusal is raised."""

    @property
    def is_unattended(self) -> bool:
        """Whether only what is known may run."""
        return self._only is not None

    def only(self, known: Digests, source: str) -> None:
        """From now on, run nothing but these; files are named as seen from the flow's folder."""
        self.watch()
        self._only = known
        self._folder = os.path.dirname(os.path.realpath(source))  # noqa: PTH120 -- as `_real`

    def watch(self) -> None:
        """See every import from now on."""
        if FINDER not in sys.meta_path:
            sys.meta_path.insert(0, FINDER)

    def of_flow(self, module: str) -> dict[str, str] | None:
        """What has run of the flow in this module, and beside it; None if we did not load it."""
        if module not in self._flows:
            return None
        path, digest = self._flows[module]
        return {**self._run, path: digest}

    def run_flow(self, module: str, path: str, data: bytes) -> None:
        """A flow's file is about to run as this module; ChangedSourceError if it may not."""
        self._flows[module] = (_real(path), self._checked(path, data))

    def run(self, path: str, data: bytes) -> None:
        """A file that a flow imports is about to run; ChangedSourceError if it may not."""
        digest = self._checked(path, data)
        known = self._run.setdefault(_real(path), digest)
        if known != digest:
            self._run[_real(path)] = _SEVERAL

    def refuse_unread(self, path: str, why: str) -> None:
        """What was not read is about to run; ChangedSourceError if only what is known may."""
        if self._only is not None:
            self._refuse(path, why)

    def _checked(self, path: str, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        if self._only is not None and not is_own(path):
            known = self._only.get(_real(path))
            if known is None:
                self._refuse(path, _NEW)
            if known != digest:
                self._refuse(path, _CHANGED)
        return digest

    def _refuse(self, path: str, why: str) -> None:
        name = _name_of(os.path.abspath(path), self._folder)  # noqa: PTH100 -- the link's own name
        self.refused(f"{name} {why}")
        raise ChangedSourceError(f"{name} {why}")


_CHANGED = "has changed since you started this run"
_NEW = "was no part of this run when you started it"
_NO_SOURCE = "is no Python source, and cannot be compared"


def _name_of(path: str, folder: str) -> str:
    """A file's name for people: as seen from the flow's folder if it is there."""
    try:
        return Path(path).relative_to(folder).as_posix()
    except ValueError:
        return path


def first_changed(known: Digests, source: str) -> str:
    """Why these files are not what they were, as they are on the disk now; empty if they are.

    For people, early. Whoever runs them compares the very bytes that run.
    """
    folder = os.path.dirname(os.path.realpath(source))  # noqa: PTH120 -- as `_real`
    flow = _real(source)
    if flow not in known:
        return f"{_name_of(flow, folder)} {_NEW}"
    for path, digest in sorted(known.items(), key=lambda each: each[0] != flow):
        try:
            now = hashlib.sha256(read_foreign(path, _MOST_BYTES)).hexdigest()
        except OSError:
            now = None  # nothing is there that could be a source
        if _real(path) != path or now != digest:
            return f"{_name_of(path, folder)} {_CHANGED}"
    return ""


def is_own(path: str) -> bool:
    """Whether a file is of Jackline itself, like the flow of agents that a model has started."""
    return _real(path).startswith(_real(_JACKLINE) + os.sep)


class CheckedLoader(SourceFileLoader):
    """Runs a source file as the bytes that were hashed."""

    def __init__(self, fullname: str, path: str, *, is_flow: bool = False) -> None:
        super().__init__(fullname, path)
        self._is_flow = is_flow

    def get_code(self, fullname: str) -> CodeType:
        """The code of the source, never of a cache."""
        path = self.get_filename(fullname)
        try:
            data = read_foreign(path, _MOST_BYTES)
        except OSError:
            SOURCES.refuse_unread(path, _CHANGED)
            raise
        if self._is_flow:
            SOURCES.run_flow(fullname, path, data)
        else:
            SOURCES.run(path, data)
        code: CodeType = self.source_to_code(data, path)
        return code


class _Finder(MetaPathFinder):
    """Has what the other finders find loaded by `CheckedLoader`, unless it is the environment's."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for finder in tuple(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = None if finder is self or find is None else find(fullname, path, target)
            if isinstance(spec, ModuleSpec):
                self._check(spec)
                return spec
        return None

    def _check(self, spec: ModuleSpec) -> None:
        # Without a place it is built in, frozen, a folder without code, or made by code that ran.
        if not spec.has_location or spec.origin is None:
            return
        # What is installed: by its own place and by what it links to.
        places = (os.path.normcase(os.path.abspath(spec.origin)), _real(spec.origin))  # noqa: PTH100
        roots = _environment()
        if all(any(at == root or at.startswith(root + os.sep) for root in roots) for at in places):
            return
        if type(spec.loader) is SourceFileLoader:
            spec.loader = CheckedLoader(spec.name, spec.origin)
            spec.cached = None
        else:
            SOURCES.refuse_unread(spec.origin, _NO_SOURCE)


def _real(path: str) -> str:
    """The file that a path means, alike for all its spellings."""
    return os.path.normcase(os.path.realpath(path))


_JACKLINE = os.path.dirname(os.path.abspath(jackline.__file__))  # noqa: PTH100, PTH120


@cache
def _environment() -> frozenset[str]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    roots = {sysconfig.get_path(name) for name in names} | {*site.getsitepackages(), _JACKLINE}
    if site.ENABLE_USER_SITE:
        roots.add(site.getusersitepackages())
    spelled = {os.path.normcase(os.path.abspath(root)) for root in roots}  # noqa: PTH100
    return frozenset(spelled | {_real(root) for root in roots})


SOURCES = ExecutedSources()
"""This process's own: imports are the process's, too."""
FINDER = _Finder()


_KIND = "flow:sources"


class SavedSources:
    """The digests that are saved with one run, which this process carries."""

    def __init__(self, store: RunStore, claim: Claim, clock: Clock, flow_module: str) -> None:
        self._store = store
        self._claim = claim
        self._clock = clock
        self._flow_module = flow_module
        self._name = ""
        self._lines = 0
        self._saved: Digests | None = None

    async def load(self) -> None:
        """Read what earlier processes have saved."""
        self._name, self._lines, self._saved = await _saved_digests(self._store, self._claim.run_id)

    async def save(self) -> None:
        """Save what has run so far, if a person has started this process and that is new."""
        now = None if SOURCES.is_unattended else SOURCES.of_flow(self._flow_module)
        if now is None or now == self._saved:
            return
        self._saved = now
        self._lines += 1
        data = json.dumps(now, sort_keys=True).encode()
        line = EntryRecord(self._name, self._lines, _KIND, data, self._clock.wall())
        await self._store.write_entry(self._claim, line)


async def run_only_known(store: RunStore, run: RunRecord) -> None:
    """From now on, this process runs nothing but what a person has started this run with."""
    _, _, known = await _saved_digests(store, run.run_id)
    SOURCES.only(known or {}, run.source)


async def why_not_woken(store: RunStore, run: RunRecord) -> str:
    """Why the run must not wake by itself as its files are now; empty if it may."""
    if not run.source or is_own(run.source):
        return ""
    _, _, known = await _saved_digests(store, run.run_id)
    if known is None:
        name = run.source.replace("\\", "/").rpartition("/")[2]
        return f"it is not known whether {name} is what it was when you started this run"
    return first_changed(known, run.source)


def to_look_at(why: str, run: RunRecord) -> str:
    """Why a run is not woken, with the next step."""
    return f"{why}; look at it and go on with: jackline resume {run.run_id}"


async def leave_to_person(store: RunStore, claim: Claim, run: RunRecord, why: str) -> RunRecord:
    """Let a parked run go such that only a person resumes it; its new record."""
    left = replace(run, state=RunState.PARKED, why=why, wake_at=None)
    if run.confirmed:
        # What a person has confirmed was another content; the store resets it when a run goes on.
        await store.change(claim, replace(left, state=RunState.RUNNING))
    await store.let_go(claim, left)
    return left


async def _saved_digests(store: RunStore, run_id: str) -> tuple[str, int, Digests | None]:
    """The log for a run's digests, how many lines it has, and what the last says if it is ours."""
    name = task_id_of(run_id, call_key(CallKind.STEP, "", "sources"), 0)
    lines = await store.entries(name)
    if not lines or not lines[-1].trusted or lines[-1].kind != _KIND:
        return name, len(lines), None
    found = json.loads(lines[-1].data)
    return name, len(lines), found if isinstance(found, Mapping) else None
