"""The soak sees what it looks for, a short one keeps all promises, and none of it stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway_bench.proc import tree
from soak_bench.gateway_process import Sample
from soak_bench.judging import MEGA, Completed, _flat, _steady, longest_life, paid_again
from soak_bench.provider import GATEWAY, Kill, Question

SOAK = Path(__file__).parents[2] / "bench" / "soak.py"
ONE, TWO = Question("agent-1.1", 1), Question("agent-1.1", 2)
OF_RUN = Question("run-0-1.3", 1)


def test_an_answer_paid_for_twice_is_seen() -> None:
    beyond, excused = paid_again([Completed(1.0, ONE), Completed(2.0, ONE)], [])
    assert (len(beyond), excused) == (1, 0)


def test_a_kill_between_both_excuses_the_turn_in_hand_only() -> None:
    kill = Kill(1.5, 1.6, GATEWAY)
    assert paid_again([Completed(1.0, ONE), Completed(2.0, ONE)], [kill]) == ([], 1)
    earlier = [Completed(0.5, ONE), Completed(1.0, TWO), Completed(2.0, ONE)]
    beyond, excused = paid_again(earlier, [kill])
    assert (len(beyond), excused) == (1, 0)


def test_the_kill_of_a_run_excuses_nobody_else() -> None:
    twice = [Completed(1.0, OF_RUN), Completed(2.0, OF_RUN)]
    assert paid_again(twice, [Kill(1.5, 1.6, "run-0-1")]) == ([], 1)
    assert paid_again(twice, [Kill(1.5, 1.6, "run-0-11")])[1] == 0
    assert paid_again(twice, [Kill(1.5, 1.6, "run-0-2")])[1] == 0


def test_growth_is_seen_and_unrest_is_not() -> None:
    growing = [100.0 + number for number in range(60)]
    restless = [100.0 + number % 7 for number in range(60)]
    assert _steady("memory", growing, 1.1, 8).kept is False
    assert _steady("memory", restless, 1.1, 8).kept is True
    assert _steady("memory", restless[:5], 1.1, 8).kept is None


def test_memory_is_judged_within_the_longest_life_behind_its_warm_up() -> None:
    short = [Sample(n, 7, n, 500 * MEGA, 9, 9, 0, 0, 0) for n in range(10)]
    grows = [Sample(n, 8, n, (50 + n) * MEGA, 9, 9, 0, 0, 0) for n in range(80)]
    assert {one.pid for one in longest_life(short + grows)} == {8}
    assert len(longest_life(grows)) == 60
    memory, files, threads = _flat(short + grows)
    assert (memory.kept, files.kept, threads.kept) == (False, True, True)


@pytest.mark.soak
def test_a_short_soak_keeps_every_promise(tmp_path: Path) -> None:
    told = _soaked(tmp_path, 51)
    assert told["kept"] is True, told["promises"]
    for what in ("conversations", "runs", "gateway_kills", "run_kills", "faults"):
        assert told[what], f"{what}: there were none"


def _soaked(folder: Path, seed: int) -> dict[str, Any]:
    report = folder / f"soak-{seed}.json"
    words = ["--minutes", "1", "--agents", "12", "--seed", str(seed), "--json", str(report)]
    done = subprocess.run(
        [sys.executable, str(SOAK), *words], check=False, capture_output=True, text=True
    )
    assert report.exists(), done.stdout + done.stderr
    told: dict[str, Any] = json.loads(report.read_text("utf-8"))
    return told


@pytest.mark.soak
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for another process")
def test_ctrl_c_ends_all_its_processes(tmp_path: Path) -> None:
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    words = [sys.executable, "-u", str(SOAK), "--minutes", "5", "--agents", "8"]
    process = subprocess.Popen(
        words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if "conversations" in line:
                break
        family = tree(process.pid)[1:]
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait() == 130, rest
    # Nothing is left: no process, also none that a run has started for itself, and no file.
    assert [pid for pid in family if _runs(pid)] == []
    assert [one for one in Path("/proc").glob("[0-9]*/cmdline") if _names(one, tmp_path)] == []
    assert list(tmp_path.iterdir()) == []


def _runs(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text("ascii").split()[2] not in "ZX"
    except OSError:
        return False


def _names(cmdline: Path, folder: Path) -> bool:
    try:
        return os.fsencode(folder) in cmdline.read_bytes()
    except OSError:
        return False
