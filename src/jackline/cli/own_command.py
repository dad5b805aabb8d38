"""The words by which another program starts this very Jackline.

Laws: (1) the short name where the PATH leads to this one, else the interpreter's full path: a
client started from a menu has another PATH than a shell; (2) on Windows always a full path: its
shell looks for a short name in the working folder first.
Not here: starting it (programs.py).
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from jackline import programs


def own_command(*arguments: str) -> str:
    """A command line for a shell of this system."""
    words = [*own_words(), *arguments]
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def own_words() -> list[str]:
    """The words of that command, one by one."""
    found = programs.find_program("jackline")
    if found is None or Path(found).resolve().parent != Path(sys.executable).parent:
        return programs.own_command()
    return [found] if os.name == "nt" else ["jackline"]
