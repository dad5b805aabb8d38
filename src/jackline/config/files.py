"""Find the files that a configuration is read from, and read them.

Rules: (1) the nearest project file upwards from the working folder, then the user's own; a file
that was named is read alone; (2) a project file is skipped if it or its folder belongs to another
user, or if it is a symbolic link; one that is no TOML is reported and ignored; (3) a file is read
once: the text that is checked and agreed to is the text that is used; (4) only reading.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jackline.foreign_files import has_deep_keys
from jackline.outside_names import printable
from jackline.private_files import own_number, quoted

FILE_NAME = "jackline.toml"
PROJECT_FILE = "pyproject.toml"
IN_PROJECT_FILE = ("tool", "jackline")


# Far more than anyone writes, and little enough to be read at every start.
_LARGEST = 256 << 10
_DEEPEST = 16


class UnusableFileError(Exception):
    """A file cannot be read or is no TOML; `line` is where, if that is known."""

    def __init__(self, path: Path, what: str, line: int | None = None) -> None:
        super().__init__(what)
        self.path = path
        self.what = what
        self.line = line

    @classmethod
    def not_toml(cls, path: Path, error: ValueError | RecursionError) -> UnusableFileError:
        """What the parser of TOML found."""
        if isinstance(error, RecursionError):
            return cls(path, _TOO_DEEP)
        if not isinstance(error, tomllib.TOMLDecodeError):
            return cls(path, "has a number that is too long")
        line = re.search(r"at line (\d+)", str(error))
        what = re.sub(r" \(at line \d+, column \d+\)", "", str(error))
        return cls(path, f"is not TOML: {what}", int(line[1]) if line else None)


@dataclass(frozen=True, slots=True)
class FileText:
    """A file that was read: its text, and the table in it that is ours."""

    path: Path
    text: str
    table: dict[str, Any]
    # The names of the tables around ours.
    under: tuple[str, ...]
    # Found by walking upwards, so perhaps written by a stranger whose repository was cloned.
    of_project: bool
    # What an agreement to this file covers: its bytes, or of a pyproject.toml its table of ours.
    content: bytes = b""

    @property
    def digest(self) -> str:
        """The hash of what an agreement to this file covers."""
        return hashlib.sha256(self.content).hexdigest()


def candidates(cwd: Path) -> list[Path]:
    """Every place where a project file may be, the nearest first."""
    return [folder / name for folder in (cwd, *cwd.parents) for name in (FILE_NAME, PROJECT_FILE)]


def read_named(path: Path, *, of_project: bool = False) -> FileText | None:
    """The content of this file; None for a pyproject.toml that says nothing of Jackline."""
    if of_project and path.is_symlink():
        raise UnusableFileError(path, f"{_link(path)}; a project's file must be a regular file")
    try:
        with open(path, "rb", opener=_open_no_link if of_project else None) as file:
            data = file.read(_LARGEST + 1)
        # Cut off, a letter may be cut in two; then it is too large anyway.
        text = data.decode(errors="strict" if len(data) <= _LARGEST else "ignore")
    except OSError as error:
        raise UnusableFileError(path, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UnusableFileError(path, "is not UTF-8 text") from error
    if path.name == PROJECT_FILE and IN_PROJECT_FILE[1] not in text:
        return None  # someone else's file, whatever is wrong with it
    if len(data) > _LARGEST:
        raise UnusableFileError(path, "is too large for a configuration")
    if has_deep_keys(text):
        raise UnusableFileError(path, _TOO_DEEP)
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnusableFileError.not_toml(path, error) from error
    under = IN_PROJECT_FILE if path.name == PROJECT_FILE else ()
    for name in under:
        inner = table.get(name)
        if not isinstance(inner, dict):
            return None
        table = inner
    _check_depth(path, table)
    if under:  # the rest of a pyproject.toml changes daily; the order of keys counts, so it stays
        data = json.dumps(table, default=lambda one: [type(one).__name__, str(one)]).encode()
    return FileText(path, text, table, under, of_project, data)


def find_project_file(cwd: Path, users: Path, warnings: list[str]) -> FileText | None:
    """The nearest file of a project that says something about Jackline; `users` is none."""
    for path in candidates(cwd):
        if not is_file(path) or _is_same(path, users):
            continue
        if _is_strangers(path):
            warnings.append(
                f"{printable(str(path))} belongs to another user, or its folder does, and is left"
                f" aside; to use it: JACKLINE_CONFIG={quoted(str(path))}"
            )
            continue
        if path.is_symlink():
            # The linked file was written, and perhaps agreed to, for another folder.
            try:
                says_something = path.name != PROJECT_FILE or read_named(path) is not None
            except UnusableFileError:
                says_something = True
            if says_something:
                warnings.append(
                    f"{printable(str(path))} {_link(path)} and is left aside; to use it:"
                    f" JACKLINE_CONFIG={quoted(str(path))}"
                )
            continue
        try:
            found = read_named(path, of_project=True)
        except UnusableFileError as error:
            line = "" if error.line is None else f" (line {error.line})"
            what = error.what.partition(":")[0]  # nothing of its text
            shown = printable(str(path))
            warnings.append(f"{shown} is a project's file; all of it is ignored: it {what}{line}")
            return None
        if found is not None:
            return found
    return None


def is_file(path: Path) -> bool:
    """Whether there is such a file; one in a folder that is closed to us counts as none."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_strangers(owner: int, me: int) -> bool:
    """Whether a file of this owner was put there by another user; root may put files anywhere."""
    return owner not in (0, me)


_TOO_DEEP = "has tables inside tables without end"


def _check_depth(path: Path, table: dict[str, Any]) -> None:
    """Refuse what recursion would stumble over."""
    level: list[Any] = [table]
    for _ in range(_DEEPEST):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise UnusableFileError(path, _TOO_DEEP)


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:
        return False


def _is_strangers(path: Path) -> bool:
    """Whether it, its folder or what it links to belongs to another user."""
    if os.name == "nt":  # owners are not numbers there, and folders above a profile not shared
        return False
    try:
        owners = {path.lstat().st_uid, path.stat().st_uid, path.parent.stat().st_uid}
    except OSError:
        return True  # it has just been changed
    return any(is_strangers(owner, own_number()) for owner in owners)


def _link(path: Path) -> str:
    """What a link is, and where it points."""
    try:
        return f"is a symbolic link to {printable(str(path.readlink()))}"
    except OSError:
        return "is a symbolic link"


def _open_no_link(name: str, flags: int) -> int:
    # The check before may be outrun; Windows has no such flag.
    return os.open(name, flags | getattr(os, "O_NOFOLLOW", 0))
