"""Worker processes give the same results as one process, and none of them is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jackline.events import Event, TranscriptsRead
from jackline.transcripts import reader
from jackline.transcripts.reader import read
from jackline.transcripts.sources import find
from tests.transcripts.transcript_data import DATA, NOWHERE

FORKS = sys.platform == "linux"


FIRST_PROCESS = os.getpid()
# Only a test that fails waits so long.
PATIENCE = 60.0


def on_no_progress(_count: int) -> None:
    """Ignore it."""


def with_remainder(number: int) -> tuple[int, int]:
    return number, number % 7


def negative_or_dead(number: int) -> int:
    if os.getpid() != FIRST_PROCESS:
        os._exit(7)
    return -number


def own_process(_number: int) -> int:
    return os.getpid()


def test_little_work_is_done_in_this_process_with_progress_after_each_step() -> None:
    progress: list[int] = []
    results = reader.map_in_workers(own_process, [1, 2, 3], [1, 1, 1], on_progress=progress.append)
    assert list(results) == [FIRST_PROCESS] * 3
    assert progress == [1, 2, 3]


@pytest.mark.skipif(not FORKS, reason="workers are used on Linux only")
def test_results_of_workers_come_in_the_order_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_can_fork", lambda: True)
    work = list(range(500))
    sizes = [1 << 20] * len(work)
    progress: list[int] = []
    results = reader.map_in_workers(with_remainder, work, sizes, on_progress=progress.append)
    assert list(results) == [(n, n % 7) for n in work]
    assert progress == sorted(progress)
    assert progress[-1] == len(work)


@pytest.mark.skipif(not FORKS, reason="workers are used on Linux only")
def test_the_work_of_a_dead_worker_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_can_fork", lambda: True)
    sizes = [8 << 20] * 40
    results = reader.map_in_workers(
        negative_or_dead, list(range(40)), sizes, on_progress=on_no_progress
    )
    assert list(results) == [-n for n in range(40)]


@pytest.mark.skipif(not FORKS, reason="workers are used on Linux only")
def test_stories_are_the_same_whichever_process_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = find([str(DATA)], stores=NOWHERE)
    alone = read(sources)
    monkeypatch.setattr(reader, "_can_fork", lambda: True)
    monkeypatch.setattr(reader, "_WORTH_WORKERS", 0)
    monkeypatch.setattr(reader, "_BATCH", 50_000)
    assert read(sources) == alone


def test_progress_ends_with_everything_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"type":"user","sessionId":"s"}\n')
    events: list[Event] = []
    sources = find([str(tmp_path)], stores=NOWHERE)
    read(sources, announce=events.append)
    size = sources[0].size
    assert events == [TranscriptsRead(1, 1, size, size)]


STUCK = """
import os, signal, sys, time
from pathlib import Path
from jackline.transcripts import reader

def stuck(folder):
    Path(folder, str(os.getpid())).touch()
    time.sleep(600)

reader._can_fork = lambda: True
list(reader.map_in_workers(stuck, [sys.argv[1]] * 9, [8 << 20] * 9, on_progress=print))
"""


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.skipif(not FORKS, reason="workers are used on Linux only")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_the_process_that_started_it(
    how: signal.Signals, tmp_path: Path
) -> None:
    """Neither after Ctrl-C, which reaches all of them, nor when the first process is killed."""
    command = [sys.executable, "-c", STUCK, str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True) as first:
        deadline = time.monotonic() + PATIENCE
        while len(workers := [int(p.name) for p in tmp_path.iterdir()]) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if how is signal.SIGINT:
            os.killpg(first.pid, how)
        else:
            first.kill()
        _, errors = first.communicate(timeout=PATIENCE)
    if how is signal.SIGINT:
        assert errors.count(b"Traceback") == 1, "only the first process answers Ctrl-C"
        assert errors.strip().endswith(b"KeyboardInterrupt")
    while any(is_running(pid) for pid in workers):
        assert time.monotonic() < deadline
        time.sleep(0.01)
