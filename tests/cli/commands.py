"""Run the command line as a user would: a process of its own.

Not here: what the verbs say (the tests of each verb).
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tests import warm_processes


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command left behind."""

    code: int
    out: str
    err: str


def jackline(
    *arguments: str | Path, stdin: bytes = b"", env: dict[str, str] | None = None
) -> Answer:
    """Run `jackline ARGUMENTS`; the environment is ours plus `env`, the zone is UTC."""
    done = warm_processes.run(
        [sys.executable, "-m", "jackline", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        env={**os.environ, "TZ": "UTC", "PYTHONUTF8": "1", **(env or {})},
        check=False,
    )
    return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())
