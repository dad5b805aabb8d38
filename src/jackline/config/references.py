"""Look up secrets where their references point: `env:NAME`, `file:PATH`, `cmd:COMMAND`.

Rules: (1) a configuration never holds a secret itself, only where it is; (2) no message holds the
secret, the output of a command, or a value that looked like a reference and is none; (3) a
command does not depend on the working folder: its program is found by the absolute folders of the
PATH or has its whole path, and it runs in the home folder.
"""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path

from jackline.foreign_files import read_foreign
from jackline.programs import find_program

KINDS = ("env:", "file:", "cmd:")
INSTEAD = 'write where it is kept instead: "env:NAME", "file:PATH" or "cmd:COMMAND"'
_COMMAND_SECONDS = 10.0
_LARGEST_SECRET = 64 << 10


def is_reference(text: str) -> bool:
    """Whether this says where a secret is."""
    return text.startswith(KINDS)


def file_of(reference: object) -> Path | None:
    """The file that holds the secret, if it is one."""
    if isinstance(reference, str) and reference.startswith("file:"):
        return Path(reference.removeprefix("file:"))
    return None


def path_from(folder: Path, text: str) -> Path:
    """An absolute path: `~` is the home folder, anything relative is seen from `folder`."""
    path = Path(text)
    if text.startswith("~"):
        try:
            path = path.expanduser()
        except RuntimeError as error:
            raise ValueError("the home folder that ~ stands for is not known") from error
    # Not `resolve`: a link stays a link, so that turning it to another file is noticed.
    return Path(os.path.normpath(folder / path))


def resolve(reference: str, environ: Mapping[str, str]) -> str:
    """The secret; ValueError says why there is none."""
    kind, _, place = reference.partition(":")
    if kind == "env":
        secret = environ.get(place, "").strip()
        if not secret:
            raise ValueError(f"the environment variable {place} is not set")
    elif kind == "file":
        try:
            secret = read_foreign(place, _LARGEST_SECRET).decode().strip()
        except OSError as error:
            raise ValueError(f"{Path(place)} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ValueError(f"{Path(place)} is not UTF-8 text") from error
        if not secret:
            raise ValueError(f"{Path(place)} is empty")
    else:
        secret = _from_command(reference.removeprefix("cmd:"), environ)
    if not secret.isprintable():
        raise ValueError("what is kept there holds control characters")
    return secret


def exposure(path: Path) -> str | None:
    """A sentence when others on this machine can read the file, else None."""
    if os.name == "nt":  # access lists, not mode bits; the profile folder is private by default
        return None
    try:
        mode = path.stat().st_mode
    except OSError:
        return None  # whoever reads the file says so
    if not mode & (stat.S_IRWXG | stat.S_IRWXO):
        return None
    return f"others on this machine can read {path}; chmod 600 {shlex.quote(str(path))}"


def _from_command(command: str, environ: Mapping[str, str]) -> str:
    words = shlex.split(command, posix=os.name != "nt")
    if not words:
        raise ValueError("there is no command after cmd:")
    word = words[0].strip('"') if os.name == "nt" else words[0]
    program: str | None = word
    if not os.path.isabs(word):  # noqa: PTH117 -- a word, not yet a path
        if os.path.dirname(word):  # noqa: PTH120
            raise ValueError(
                f"the command {word} cannot be run: which file that is depends on the working"
                " folder; write the whole path"
            )
        program = find_program(word, environ)
    if program is None:
        raise ValueError(
            f"the command {word} cannot be run: it is in no folder of the PATH"
            " (relative folders do not count)"
        )
    home = os.path.expanduser("~")  # noqa: PTH111 -- HOME counts, also where no user is known
    try:
        done = subprocess.run(  # noqa: S603 -- the user's own command, never a repository's (project.py)
            command if os.name == "nt" else words,  # Windows takes a command line apart itself
            executable=program,
            # Not the working folder, which may be a repository: `python -m` imports from there.
            cwd=home if os.path.isdir(home) else os.path.abspath(os.sep),  # noqa: PTH100, PTH112
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_COMMAND_SECONDS,
            env=dict(environ),
            check=False,
        )
    except OSError as error:
        raise ValueError(f"the command {words[0]} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise ValueError(
            f"the command {words[0]} did not end within {_COMMAND_SECONDS:g} s"
        ) from error
    if done.returncode:
        raise ValueError(f"the command {words[0]} ended with exit code {done.returncode}")
    secret = done.stdout.decode("utf-8", "replace").strip()
    if not secret:
        raise ValueError(f"the command {words[0]} printed nothing")
    return secret
