"""Keep a folder that holds exactly the files of the plugin, because the client runs what is in it.

Rules: (1) a folder with anything more, anything less or anything else (links, pipes, files that
others could write) is replaced whole, never mended; (2) the new one is built under a random name
and moved into place; (3) what is removed is removed without following links.
The folder that it lies in must be private (private_files.make_private_folder).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from jackline.private_files import own_number, read_private, write_private

_TRIES = 5


def is_exact(folder: Path, files: Mapping[str, str]) -> bool:
    """Whether the folder holds these files, by their paths inside of it, and nothing else."""
    wanted = {path: text.encode() for path, text in files.items()}
    folders = {parent.as_posix() for path in files for parent in Path(path).parents}
    try:
        return _is_own_folder(folder) and {*_entries(folder, "", wanted, folders)} == {
            *wanted,
            *folders - {"."},
        }
    except (OSError, _SomethingElseError):
        return False


def build(folder: Path, files: Mapping[str, str]) -> None:
    """Make the folder hold exactly these files; OSError when it cannot."""
    for left in reversed(range(_TRIES)):
        if is_exact(folder, files):
            return
        fresh = _random_name(folder)
        try:
            _write(fresh, files)
            remove(folder)
            fresh.rename(folder)
        except OSError:
            # Another process may have been first, with the same files.
            if not left:
                raise
        finally:
            remove(fresh)


def remove(folder: Path) -> None:
    """Take the folder away, or whatever stands in its place; nothing behind a link is touched."""
    away = _random_name(folder)
    try:
        folder.rename(away)  # at once: nobody sees half of it
    except FileNotFoundError:
        return
    if away.is_symlink() or not away.is_dir():
        away.unlink()
    else:
        shutil.rmtree(away)


class _SomethingElseError(Exception):
    """There is an entry that is not one of the plugin's."""


def _entries(
    folder: Path, inside: str, wanted: Mapping[str, bytes], folders: set[str]
) -> Iterator[str]:
    """The paths of what is there, as long as it is what it should be."""
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{inside}{entry.name}"
            path = folder / entry.name
            if name in wanted:
                if read_private(path, len(wanted[name])) != wanted[name]:
                    raise _SomethingElseError
            elif name in folders and _is_own_folder(path):
                yield from _entries(path, f"{name}/", wanted, folders)
            else:
                raise _SomethingElseError
            yield name


def _is_own_folder(path: Path) -> bool:
    if path.is_symlink() or not path.is_dir():
        return False
    found = path.lstat()
    return os.name == "nt" or (found.st_uid == own_number() and not found.st_mode & 0o077)


def _write(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir(mode=0o700)
    for path, text in files.items():
        place = folder
        for part in Path(path).parts[:-1]:
            place /= part
            place.mkdir(mode=0o700, exist_ok=True)
        write_private(folder / path, text.encode())


def _random_name(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.{os.urandom(8).hex()}")
