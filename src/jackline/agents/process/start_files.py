"""The folders of an agent: of the files that its program is started with, and of its project.

Rules: (1) the folder of a start is the user's alone and lies beside the state folder, outside of
projects and of the system's temporary folder, which sandboxes of agents leave open; (2) what is in
it is gone when the program has ended; what a killed process has left is removed after a month.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from jackline.private_files import default_config_folder, default_state_folder, make_private_folder
from jackline.transcripts.sources import ClientFolders

_LEFT_FOR_S = 30 * 24 * 3600


def start_files_root() -> Path:
    """The folder that holds those of all agents."""
    return Path(f"{default_state_folder()}-agents")


@contextmanager
def start_files() -> Iterator[Path]:
    """A new folder for one start; OSError where there can be none."""
    root = start_files_root()
    make_private_folder(root)
    for left in root.iterdir():
        with suppress(OSError):
            if left.lstat().st_mtime < time.time() - _LEFT_FOR_S:
                shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(prefix="", dir=root, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def folders_of_project(cwd: Path) -> tuple[Path, ...]:
    """From the folder up to the top of its repository; none where that cannot be found out."""
    try:
        folder = cwd.resolve()
        above = (folder, *folder.parents)
        # Codex looks up the folder first, and only then its repository and that of a worktree.
        top = next((each for each in above if os.path.lexists(each / ".git")), folder)
    except (OSError, RuntimeError, ValueError):
        return ()
    return above[: above.index(top) + 1]


def holds_own_files(cwd: Path, environment: Mapping[str, str]) -> bool:
    """Whether files that agents' programs or Jackline obey for the user lie in this folder."""
    clients = ClientFolders.of_process(environment)
    home = environment.get("USERPROFILE" if os.name == "nt" else "HOME")
    own = (
        *(Path(home or Path.home()), Path.home(), clients.claude, clients.codex),
        *(Path(default_config_folder()), Path(default_state_folder()), start_files_root()),
        Path(gettempdir()),
    )
    try:
        folder = cwd.resolve()
        return any(each.resolve().is_relative_to(folder) for each in own)
    except (OSError, RuntimeError, ValueError):
        return True
