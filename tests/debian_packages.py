"""Programs that tests start, installed from Debian's packages where this machine lacks them.

Rules: (1) what cannot be installed fails loudly; (2) one process installs at a time: apt-get does
not wait while another one updates its lists, it fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl

LIMIT = 600


def installed_program(package: str, *names: str) -> str:
    """The path of the first of these programs; their package is installed if none is there."""
    found = _found(names)
    apt = shutil.which("apt-get")
    if found is None and apt is not None and os.geteuid() == 0:
        with _alone():
            found = _found(names)  # another worker may have installed it meanwhile
            if found is None:
                quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
                install = ["install", "-q", "-y", "--no-install-recommends", package]
                for words in (["update", "-q"], install):
                    subprocess.run([apt, *words], check=True, env=quiet, timeout=LIMIT)
                found = _found(names)
    if found is None:
        raise FileNotFoundError(f"{names[0]} is missing: install it (apt-get install {package})")
    return found


def _found(names: tuple[str, ...]) -> str | None:
    return next((path for name in names if (path := shutil.which(name)) is not None), None)


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the lock that all test processes of this machine share."""
    with Path(tempfile.gettempdir(), "jackline-tests-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
