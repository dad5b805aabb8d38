"""Find the files that a configuration is read from, and read them.

Laws: (1) the nearest project file upwards from the working folder, then the user's own; a file that
was named is read alone; (2) a project file that belongs to someone else is left aside: a shared
folder above must not decide where one's credentials are sent; (3) only reading.
Not here: what stands in them (document.py).
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE_NAME = "jackline.toml"
PROJECT_FILE = "pyproject.toml"
IN_PROJECT_FILE = ("tool", "jackline")


class UnusableFileError(Exception):
    """A file cannot be read or is no TOML; `line` is where, if that is known."""

    def __init__(self, path: Path, what: str, line: int | None = None) -> None:
        super().__init__(what)
        self.path = path
        self.what = what
        self.line = line


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


def candidates(cwd: Path) -> list[Path]:
    """Every place where a project file may stand, the nearest first."""
    return [folder / name for folder in (cwd, *cwd.parents) for name in (FILE_NAME, PROJECT_FILE)]


def read_named(path: Path, *, of_project: bool = False) -> FileText | None:
    """What stands in this file; None for a pyproject.toml that says nothing of Jackline."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UnusableFileError(path, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UnusableFileError(path, "is not UTF-8 text") from error
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        if path.name == PROJECT_FILE and IN_PROJECT_FILE[1] not in text:
            return None  # someone else's broken file is no fault of ours
        line = re.search(r"at line (\d+)", str(error))
        what = re.sub(r" \(at line \d+, column \d+\)", "", str(error))
        at = int(line[1]) if line else None
        raise UnusableFileError(path, f"is not TOML: {what}", at) from error
    if path.name != PROJECT_FILE:
        return FileText(path, text, table, (), of_project)
    for name in IN_PROJECT_FILE:
        inner = table.get(name)
        if not isinstance(inner, dict):
            return None
        table = inner
    return FileText(path, text, table, IN_PROJECT_FILE, of_project)


def find_project_file(cwd: Path, warnings: list[str]) -> FileText | None:
    """The nearest file of a project that says something about Jackline."""
    for path in candidates(cwd):
        if not is_file(path):
            continue
        if _is_strangers(path):
            warnings.append(
                f"{path} belongs to another user and is left aside;"
                f" set JACKLINE_CONFIG={path} to use it"
            )
            continue
        found = read_named(path, of_project=True)
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


def _is_strangers(path: Path) -> bool:
    if os.name == "nt":  # owners are not numbers there, and folders above a profile not shared
        return False
    return is_strangers(path.stat().st_uid, os.getuid())
