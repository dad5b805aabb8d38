"""Make the journal's folder and file private, and put a damaged file aside.

Laws: (1) the file is for its owner alone before the first byte is in it (SQLite gives its
companions `-wal` and `-shm` the same mode); (2) what others can have written is refused with
`NotPrivateError`, never opened; (3) a damaged file is renamed, never deleted; (4) a file with a
rollback journal that names a third file is not opened: SQLite would delete that one.
Not here: what is in the file (schema.py, store.py).
"""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from pathlib import Path

from jackline.errors import JournalError
from jackline.private_files import (
    check_private_file,
    check_private_folder,
    make_private_folder,
    open_private,
)

COMPANIONS = ("-wal", "-shm")
# SQLite would play back what an interrupted program seems to have left there.
_PLAYED_BACK = "-journal"
# The last bytes of a journal of a transaction over several files, which ours never are.
_NAMES_ANOTHER = bytes.fromhex("d9d505f920a163d7")


def make_private(path: Path) -> None:
    """Folder and file exist, and are their owner's alone; NotPrivateError if they cannot be."""
    make_private_folder(path.parent)
    check_rollback_journal(path)
    # Never opened when it is there: closing it again would take away every lock that SQLite holds
    # on it in this process, and another process would then delete the log under our hands.
    with suppress(FileExistsError):
        os.close(open_private(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    _check_files(path)


def check_private(path: Path) -> None:
    """NotPrivateError unless nobody else can have written the file; nothing is made."""
    check_private_folder(path.parent)
    _check_files(path)


def _check_files(path: Path) -> None:
    for file in (path, *companions(path), path.with_name(path.name + _PLAYED_BACK)):
        check_private_file(file)


def check_rollback_journal(path: Path) -> None:
    """Refuse a file whose rollback journal names another one; a missing journal is fine."""
    journal = path.with_name(path.name + _PLAYED_BACK)
    try:
        descriptor = open_private(journal, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - len(_NAMES_ANOTHER)))
            ends = file.read()
    except FileNotFoundError:
        return
    if ends == _NAMES_ANOTHER:
        raise JournalError(
            f"the rollback journal {journal} names another file, which opening it would delete",
            next="Look where it came from; another state folder is chosen with --state.",
        )


def identity(path: Path) -> tuple[int, int] | None:
    """What tells this file from another one of the same name; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def companions(path: Path) -> list[Path]:
    """The files that SQLite keeps beside this one."""
    return [path.with_name(path.name + end) for end in COMPANIONS]


def put_aside(path: Path) -> Path:
    """Rename the file and its companions to the first free `.damaged-<n>`; the new name."""
    names = (path.with_name(f"{path.name}.damaged-{number}") for number in itertools.count(1))
    aside = next(name for name in names if not name.exists())
    path.rename(aside)
    for old, new in zip(companions(path), companions(aside), strict=True):
        if old.exists():
            old.rename(new)
    return aside
