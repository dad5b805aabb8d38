"""A killed process loses no flushed record, saves none twice, and damages nothing."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from jackline.journal import Journal
from tests.journal import made

ROOT = Path(__file__).parents[2]
KILLS = 5


def _write_and_be_killed(path: Path, start: int, manner: str, after: int) -> int:
    """Let a process write, and kill it while it does; the first number that was not promised."""
    command = [sys.executable, "-m", "tests.journal.endless_process", str(path), str(start), manner]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        promised = [process.stdout.readline() for _ in range(after)]
        process.kill()
        # What it had said before it died counts too.
        promised += [line for line in process.stdout.read().splitlines(True) if line[-1] == "\n"]
    assert promised[-1], "the process ended by itself"
    return int(promised[-1])


@pytest.mark.parametrize("manner", ["roomy", "cramped"])
def test_kill_at_any_moment_loses_and_doubles_no_flushed_record_and_damages_nothing(
    tmp_path: Path, manner: str
) -> None:
    path, start = tmp_path / "journal.db", 0
    lots = random.Random(manner)  # noqa: S311 -- moments to kill at
    for _ in range(KILLS):
        promised = _write_and_be_killed(path, start, manner, after=lots.randrange(1, 25))
        saved = made.saved_numbers(path)
        with closing(sqlite3.connect(path)) as file:
            assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert saved[-1] >= promised - 1
        # Without a gap and without a double: from the oldest one that retention left.
        first = 0 if manner == "roomy" else saved[0]
        assert saved == list(range(first, saved[-1] + 1))
        start = saved[-1] + 1
    with Journal(path, wall=lambda: made.NOON) as journal:
        journal.announce(made.call(start, at=made.NOON + start / 1000))
    assert made.saved_numbers(path)[-1] == start
    assert not list(tmp_path.glob("*.damaged-*"))
