"""Name the programs that Jackline starts, itself among them, so that no folder can replace them.

Rules: (1) Jackline starts itself with `-P`: without it, Python imports from the working folder
first, which is whatever repository the user has just cloned; (2) a program is looked for in the
absolute folders of the PATH only, never in the working folder, which Windows would search first;
(3) only the standard library is imported, because hooks load this module.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping


def own_command(*arguments: str) -> list[str]:
    """The command that runs this very Jackline, whatever lies in the working folder."""
    return [sys.executable, "-P", "-m", "jackline", *arguments]


def pin_python_path() -> None:
    """Have PYTHONPATH mean the same for processes that we start in other folders.

    An empty or relative part of it means the working folder: of a run that wakes up, that is a
    repository, from which nothing must be imported.
    """
    path = os.environ.get("PYTHONPATH")
    if path:
        parts = [os.path.abspath(each) for each in path.split(os.pathsep)]  # noqa: PTH100
        os.environ["PYTHONPATH"] = os.pathsep.join(parts)


def find_program(name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """The path of a program on the PATH of this environment (ours if None); None if there is none.

    A name with a folder in it is used as it is.
    """
    import shutil  # noqa: PLC0415 -- hooks do not need it

    if os.path.dirname(name):  # noqa: PTH120 -- pathlib costs more than all of this
        return shutil.which(name)
    path = absolute_path(os.environ if environ is None else environ)
    if os.name != "nt":
        return shutil.which(name, path=path) if path else None
    # `shutil.which` would search the working folder first.
    endings = os.environ.get("PATHEXT", ".COM;.EXE;.BAT;.CMD").split(os.pathsep)
    has_ending = any(ending and name.lower().endswith(ending.lower()) for ending in endings)
    names = [name] if has_ending else [name + ending for ending in endings]
    files = (os.path.join(folder, each) for folder in path.split(os.pathsep) for each in names)  # noqa: PTH118
    return next((file for file in files if os.path.isfile(file)), None)  # noqa: PTH113


def absolute_path(environ: Mapping[str, str]) -> str:
    """The PATH of this environment without what depends on the working folder."""
    path = environ.get("PATH", os.defpath)
    return os.pathsep.join(each for each in path.split(os.pathsep) if os.path.isabs(each))  # noqa: PTH117


def system_program(name: str) -> str:
    """A program that belongs to Windows itself, such as taskkill, by its full path."""
    return os.path.join(os.environ.get("SYSTEMROOT", r"C:\Windows"), "System32", f"{name}.exe")  # noqa: PTH118
