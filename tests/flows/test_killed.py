"""A real process, really killed, loses nothing that was finished and repeats nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.flows import killed_process
from tests.flows.killed_process import TURNS

SIZE = 12


def start(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", killed_process.__name__, str(folder / "flows.db"), str(SIZE)],
        env={**os.environ, "LEDGER": str(folder / "ledger")},
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
    )


def ledger(folder: Path) -> list[str]:
    file = folder / "ledger"
    return file.read_text().splitlines() if file.exists() else []


def test_a_run_killed_at_random_moments_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    calm, wild = tmp_path / "calm", tmp_path / "wild"
    calm.mkdir()
    wild.mkdir()
    undisturbed, _ = start(calm).communicate(timeout=120)
    assert undisturbed.startswith(b"0 0 <first 0>")
    kills = 0
    for progress in (9, 4, 15, 6, 11):
        process = start(wild)
        # Killed by how far it got, not by the clock: so a slow machine is no other test.
        wanted = len(ledger(wild)) + progress
        while process.poll() is None and len(ledger(wild)) < wanted:
            time.sleep(0.002)
        process.kill()
        process.communicate()
        kills += process.returncode != 0
    told, _ = start(wild).communicate(timeout=120)
    code, replayed, value = told.split(b" ", 2)
    assert (code, value) == (b"0", undisturbed.split(b" ", 2)[2])
    assert int(replayed) > 0
    assert kills >= 3
    lost = Counter(ledger(wild)) - Counter(ledger(calm))
    # A turn or step in hand when a process died is taken again; twelve at a time can be.
    assert sum(lost.values()) <= kills * SIZE
    assert set(Counter(ledger(wild))) == set(Counter(ledger(calm)))
    again = Counter(ledger(wild))["turn last"]
    assert TURNS <= again <= TURNS + kills
