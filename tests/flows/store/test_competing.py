"""Processes that want the same run: one has it, and one that lost it changes nothing."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.flows.store.made import World

ROOT = Path(__file__).parents[3]
PROCESSES = 3
CALLS = 60


@pytest.mark.parametrize("manner", ["steady", "jumping"])
def test_of_competing_processes_one_ends_each_call_whatever_their_clocks_say(
    shared: World, manner: str
) -> None:
    names = [f"process-{number}" for number in range(PROCESSES)]
    program = [sys.executable, "-m", "tests.flows.store.competing_process", shared.url]
    processes = [
        subprocess.Popen(
            [*program, name, str(CALLS), manner], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        for name in names
    ]
    said = {
        name: [tuple(line.split()) for line in process.communicate()[0].splitlines()]
        for name, process in zip(names, processes, strict=True)
    }
    assert [process.returncode for process in processes] == [0] * PROCESSES
    all_said = Counter(words for lines in said.values() for words in lines)
    every_call = {str(number) for number in range(CALLS)}
    # The store was made by all at once, the run by one.
    assert all_said["found", "it"] == PROCESSES - 1
    assert {words[1]: n for words, n in all_said.items() if words[0] == "ended"} == dict.fromkeys(
        every_call, 1
    )
    if manner == "steady":
        assert ("fenced",) not in all_said
        assert all(all_said["began", key] == 1 for key in every_call)
    calls = shared.run(lambda engine: engine.calls("run-1"))
    for call in calls:
        assert call.value is not None
        assert ("ended", call.key) in said[call.value.decode()]
