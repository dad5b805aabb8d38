"""Give the whole run of the tests one home of its own for state, configuration and key.

Rules: (1) the user's own folders are neither read nor written, by tests or by processes that they
start; (2) the process that pytest was started in makes the folder, and its workers and children
share it by their environment: a gateway and its clients must find the same installation key; (3) it
is removed at the end by the process that made it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

# Not JACKLINE_…: the program would take it for a setting.
_VARIABLE = "HOME_OF_JACKLINE_TESTS"


def own_home() -> Path:
    """The folder that holds this run's state and configuration folders."""
    return Path(os.environ[_VARIABLE])


def key_folder() -> dict[str, str]:
    """The variables that let a child with an environment of its own find this run's key."""
    if sys.platform == "win32":
        return {"LOCALAPPDATA": os.environ["LOCALAPPDATA"]}
    if sys.platform == "darwin":
        return {"HOME": os.environ["HOME"]}
    return {"XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]}


def settle() -> None:
    """Point this process and all its children to the run's home."""
    if _VARIABLE not in os.environ:
        made = tempfile.mkdtemp(prefix="jackline-tests-")
        os.environ[_VARIABLE] = made
        atexit.register(shutil.rmtree, made, ignore_errors=True)
    # Else each of the many processes that tests start would compile all of Jackline anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    home = own_home()
    os.environ["XDG_STATE_HOME"] = str(home / "state")
    os.environ["XDG_CONFIG_HOME"] = str(home / "config")
    if sys.platform == "win32":
        os.environ["LOCALAPPDATA"] = str(home / "local")
        os.environ["APPDATA"] = str(home / "roaming")
    if sys.platform == "darwin":
        os.environ["HOME"] = str(home)  # nothing else names the folders there
