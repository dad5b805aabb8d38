"""Change a client's settings file: show the difference, save a backup, replace it in one step.

Rules: (1) a reader sees the old file or the new one, never a part; (2) a link is followed, and its
target's mode stays; (3) a file that did not exist is created, and removed again when it is empty.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jackline.errors import UnreadableError, UsageError
from jackline.foreign_files import SETTINGS_BYTES, read_foreign

BACKUP = ".before-jackline"


def read_settings(path: Path) -> str | None:
    """The file's text; None if there is no file."""
    try:
        return io.TextIOWrapper(io.BytesIO(read_foreign(path, SETTINGS_BYTES)), "utf-8").read()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or type(error).__name__}",
            hint="correct or move the file, then run it again",
        ) from error


def backup_of(path: Path) -> Path:
    """The copy of this settings file as it was before Jackline first changed it."""
    target = path.resolve()
    return target.with_name(target.name + BACKUP)


def as_it_was(path: Path, after: str | None, same: Callable[[str | None, str], bool]) -> str | None:
    """The text `after` our values are gone; the backup's, where both hold the same settings.

    So the file is what its user wrote, byte for byte: with every space and line end.
    """
    try:
        earlier = read_settings(backup_of(path))
    except UnreadableError:
        return after  # somebody else's by now
    return earlier if earlier is not None and same(after, earlier) else after


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """The text of one file before and after; None: no file."""

    path: Path
    before: str | None
    after: str | None

    @property
    def changes_anything(self) -> bool:
        """Whether the texts differ."""
        return self.before != self.after

    def diff(self) -> str:
        """The change as a unified diff."""
        lines = difflib.unified_diff(
            (self.before or "").splitlines(),
            (self.after or "").splitlines(),
            str(self.path) if self.before is not None else "(no file)",
            str(self.path) if self.after is not None else "(no file)",
            lineterm="",
        )
        return "\n".join(lines)

    def apply(self, *, backup: bool = True) -> Path | None:
        """Write the file; returns the backup, if there was something to back up."""
        if not self.changes_anything:
            return None
        target = self.path.resolve()
        saved = None
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            mode = 0o600 if self.before is None else target.stat().st_mode & 0o777
            if self.before is not None and backup:
                saved = backup_of(self.path)
                # The oldest backup stays: it is what the user had before us.
                if not saved.exists():
                    self._replace(saved, self.before, mode)
            if self.after is None:
                target.unlink(missing_ok=True)
            else:
                self._replace(target, self.after, mode)
        except OSError as error:
            raise UsageError(
                f"{self.path} cannot be changed: {error.strerror or type(error).__name__}",
                hint="check who may write there, then run it again",
            ) from error
        return saved

    @staticmethod
    def _replace(path: Path, text: str, mode: int) -> None:
        # A random name, and only if it is new: nobody can have prepared a link under it.
        fresh = path.with_name(f"{path.name}.{os.urandom(8).hex()}.new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        try:
            with os.fdopen(os.open(fresh, flags, mode), "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        finally:
            with contextlib.suppress(OSError):  # it was moved, or could not be created
                fresh.unlink()
