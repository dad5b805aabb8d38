"""After `kill -9` at any moment all that was acknowledged is there, whole, in a sound file."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from jackline.flows.records import CallState
from jackline.flows.store.run_store import RunStore
from tests.flows.store import made
from tests.flows.store.made import World
from tests.flows.store.writing_process import LINES, payload

ROOT = Path(__file__).parents[3]
KILLS = 6


def _killed_while_writing(url: str, killed: int, after: int) -> list[list[str]]:
    """What a process had acknowledged when it was killed."""
    command = [sys.executable, "-m", "tests.flows.store.writing_process", url, str(killed)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(after)]
        process.kill()
        # What it had said before it died counts too.
        said += [line for line in process.stdout.read().splitlines(True) if line[-1] == "\n"]
    assert all(said), "the process ended by itself"
    return [line.split() for line in said]


async def _check(engine: RunStore, said: list[list[str]]) -> None:
    told: dict[str, set[str]] = {"begun": set(), "done": set(), "forgotten": set()}
    lines: dict[str, int] = {}
    for what, key, *number in said:
        if what == "line":
            lines[key] = int(number[0])
        else:
            told[what].add(key)
    calls = {call.key: call for call in await engine.calls("run-1")}
    finished = {key for key, call in calls.items() if call.state is CallState.DONE}
    # A key that ends in 7 is forgotten on purpose, and perhaps before its process could say so.
    lost = told["begun"] - calls.keys()
    assert {key for key in lost if not key.endswith("7")} == set()
    assert not told["forgotten"] & calls.keys()
    assert {key for key in told["done"] - finished if not key.endswith("7")} == set()
    for key, call in calls.items():
        entries = await engine.entries(call.task_id)
        assert [entry.data for entry in entries] == [
            payload(f"{call.task_id} {number}") for number in range(1, len(entries) + 1)
        ]
        assert len(entries) >= lines.get(key, 0)
        if key in finished:
            assert (call.value, call.outcome) == (payload(key), payload(f"outcome {key}"))
            assert len(entries) == LINES
        else:
            assert (call.value, call.outcome) == (None, None)
    for key in lost:
        assert await engine.entries(made.call(key).task_id) == []


def _long_values(path: Path) -> int:
    """How many a sound file holds, each named by some row."""
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        named = (
            "SELECT value_blob FROM calls UNION SELECT outcome_blob FROM calls "
            "UNION SELECT data_blob FROM entries UNION SELECT outcome_blob FROM runs"
        )
        names = {sha for (sha,) in file.execute(named)} - {None}
        assert names == {sha for (sha,) in file.execute("SELECT sha FROM blobs")}
        return len(names)


@pytest.mark.parametrize("seed", ["early", "late"])
def test_kill_at_any_moment_loses_nothing_acknowledged_and_leaves_nothing_half(
    disk: World, seed: str
) -> None:
    lots = random.Random(seed)  # noqa: S311 -- moments to kill at
    most = {"early": 60, "late": 600}[seed]
    said: list[list[str]] = []
    long_values = 0
    for killed in range(KILLS):
        said.extend(_killed_while_writing(disk.url, killed, after=lots.randrange(1, most)))
        disk.run(lambda engine: _check(engine, said))
        long_values = _long_values(disk.path)
    assert long_values, "the test means to keep long values too"
    run = disk.run(lambda engine: engine.run("run-1"))
    assert run is not None
    assert (run.epoch, run.owner) == (KILLS, f"process {KILLS - 1}")
