"""Read files that somebody else wrote: a repository's, a client's, a plugin's.

Rules: (1) only regular files are opened, through links if need be: a pipe would never answer, a
device never end; (2) a file that is read whole has a largest size; (3) JSON that cannot be read,
for whatever reason, counts as none; (4) only the standard library is imported, and what hooks do
not need only when it is used.
Not here: files that only this user can have written (private_files.py).
"""

from __future__ import annotations

import io
import os
import stat

SETTINGS_BYTES = 4 << 20
"""The largest settings file of a client that is read, where it is the user's own."""
PROJECT_BYTES = 256 << 10
"""The largest settings file of a project that is read: parsing 4 MB can take ten seconds."""
# Parsing takes the square of the number of names in a dotted key.
_MOST_DOTS = 100
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
_NO_TERMINAL = getattr(os, "O_NOCTTY", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_CLOSE_ON_EXEC = getattr(os, "O_CLOEXEC", 0)


def open_foreign(path: str | os.PathLike[str]) -> io.FileIO:
    """The file, unbuffered, to be read; OSError unless it is a regular one."""
    name = os.fspath(path)
    # Asked before: opening a device can already do something.
    _check(name, os.stat(name))  # noqa: PTH116
    descriptor = os.open(name, os.O_RDONLY | _NO_WAIT | _NO_TERMINAL | _BINARY | _CLOSE_ON_EXEC)
    try:
        _check(name, os.fstat(descriptor))  # it may have been exchanged meanwhile
        return io.FileIO(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_foreign(path: str | os.PathLike[str], most: int) -> bytes:
    """All of the file; OSError when it is missing, not regular, or larger than `most`."""
    data = read_beginning(path, most + 1)
    if len(data) > most:
        raise OSError(27, f"is larger than {most:,} bytes", os.fspath(path))
    return data


def read_beginning(path: str | os.PathLike[str], most: int) -> bytes:
    """The first `most` bytes of the file; OSError when it is missing or not regular."""
    with open_foreign(path) as file:
        parts = []
        left = most
        while left > 0 and (part := file.read(min(left, 1 << 20))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)


def object_in(path: str | os.PathLike[str], most: int = SETTINGS_BYTES) -> dict[str, object]:
    """The JSON object in the file; empty when there is none that can be read."""
    import json  # noqa: PLC0415 -- hooks do not need it

    try:
        found = json.loads(read_foreign(path, most))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def toml_in(path: str | os.PathLike[str], most: int = PROJECT_BYTES) -> dict[str, object]:
    """The TOML document in the file; OSError when it cannot be read, ValueError when it is none."""
    import tomllib  # noqa: PLC0415 -- hooks seldom need it

    text = read_foreign(path, most).decode()
    if has_deep_keys(text):
        raise ValueError("has keys of very many names")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("has tables inside tables without end") from error


def has_deep_keys(text: str) -> bool:
    """Whether a TOML document has keys of so many names that parsing them takes for ever."""
    return any(
        part.count(".") > _MOST_DOTS for line in text.splitlines() for part in line.split("=")
    )


def is_inside(path: str | os.PathLike[str], folder: str | os.PathLike[str]) -> bool:
    """Whether the path is in the folder when all links are followed; links may lead anywhere."""
    real, top = os.path.realpath(path), os.path.realpath(folder)
    return real == top or real.startswith(top.rstrip(os.sep) + os.sep)


def _check(name: str, found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(21, "Is a directory", name)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(22, "is not a regular file", name)
