"""The words by which another program starts this very Jackline.

Laws: (1) the short name where the PATH leads to this one, else the interpreter's full path: a
client started from a menu has another PATH than a shell.
Not here: starting it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path


def own_command(*arguments: str) -> str:
    """A command line for a shell of this system."""
    words = [*own_words(), *arguments]
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def own_words() -> list[str]:
    """The words of that command, one by one."""
    found = shutil.which("jackline")
    same = found is not None and Path(found).resolve().parent == Path(sys.executable).parent
    return ["jackline"] if same else [sys.executable, "-P", "-m", "jackline"]
