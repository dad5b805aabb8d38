"""A copy of a warm process is what a new process would be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import warm_processes
from tests.warm_processes import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="copies are made on Linux only")
REPORT = (sys.executable, "-m", "tests.process_report")


@pytest.fixture(autouse=True)
def warm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """See to it that these are copies; a run with FRESH_PROCESSES=1 tests them, too."""
    monkeypatch.delenv("FRESH_PROCESSES", raising=False)
    monkeypatch.setattr(warm_processes, "_FEW", 0)
    # The readline library sets them where `os.environ` does not see it.
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    before = os.listdir("/proc/self/fd")  # noqa: PTH208 -- names only
    yield
    after = set(os.listdir("/proc/self/fd")) - set(before)  # noqa: PTH208
    assert len(after) <= len(warm_processes._parents)


def both(*words: str, **more: Any) -> list[tuple[int, str, str]]:
    """What a new process and a copy leave behind."""
    more = {"cwd": ROOT, "capture_output": True, "text": True, **more}
    new = subprocess.run([*REPORT, *words], check=False, **more)
    copy = warm_processes.run([*REPORT, *words], **more)
    return [(each.returncode, each.stdout, each.stderr) for each in (new, copy)]


def is_copy(process: subprocess.Popen[Any]) -> bool:
    """Whether the words in its /proc have room behind them, as only a copy's have."""
    return Path(f"/proc/{process.pid}/cmdline").read_bytes().endswith(b"\0" * 100)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"stdin": subprocess.DEVNULL, "start_new_session": True},
        {"process_group": 0, "input": "some"},
        {"env": {**os.environ, "TZ": "Asia/Tokyo", "TMPDIR": "/", "X": "é=ü\n", "PYTHONUTF8": "1"}},
        {"env": {name: os.environ[name] for name in os.environ if name.startswith("PYTHON")}},
    ],
)
def test_it_is_like_a_new_process(more: dict[str, Any]) -> None:
    new, copy = both("report", "more words", "é", **more)
    assert new[0] == copy[0] == 0
    reports = [json.loads(out.replace("at exit", "")) for out in (new[1], copy[1])]
    assert reports[1] == reports[0]


@pytest.mark.parametrize(
    "words",
    [
        *(["exit", "0"], ["exit", "3"], ["sentence"], ["interrupt"], ["raise"], ["abort"]),
        *(["thread"], ["input"], ["spawn"]),
    ],
)
def test_it_ends_like_a_new_process(words: list[str]) -> None:
    new, copy = both(*words, input="some input é", preexec_fn=None)
    last = new[2].splitlines()[-1:], copy[2].splitlines()[-1:]
    assert (copy[:2], last[1]) == (new[:2], last[0])


def test_an_error_is_told_as_by_a_new_process() -> None:
    new, copy = both("error")
    assert new[2].splitlines()[-5:] == copy[2].splitlines()[-5:]
    assert new[:2] == copy[:2] == (1, "at exit\n")


def test_what_its_caller_changed_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource  # noqa: PLC0415 -- Windows has none

    before, mask = resource.getrlimit(resource.RLIMIT_NOFILE), os.umask(0o27)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[0] - 1, before[1]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORD", "new")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # of the caller, so of the copy
    try:
        new, copy = both("report", cwd=None)
    finally:
        os.umask(mask)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert json.loads(new[1].splitlines()[0]) == json.loads(copy[1].splitlines()[0])
    assert '["Umask:\\t0027"]' in copy[1]
    assert '"WORD": "new"' in copy[1]


def test_it_is_a_copy_and_can_be_ended() -> None:
    for name, ends in (("terminate", -15), ("kill", -9)):
        with warm_processes.Popen([*REPORT, "wait"], cwd=ROOT, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"waiting\n"
            assert is_copy(process)
            assert process.poll() is None
            getattr(process, name)()
            assert process.wait() == ends


def test_copies_do_not_share_their_chances() -> None:
    out = [warm_processes.run([*REPORT, "random"], cwd=ROOT, capture_output=True) for _ in "123"]
    numbers = [word for each in out for word in each.stdout.split()[:2]]
    assert len(set(numbers)) == 6


def test_a_script_is_like_a_new_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "some_long_name_of_a_script"
    body = (ROOT / "tests" / "process_report.py").read_text()
    script.write_text(f"#!{sys.executable}\n{body}")
    script.chmod(0o700)
    monkeypatch.setattr(warm_processes, "COMMAND", script)
    words = [str(script), "report", "more"]
    new = subprocess.run(words, capture_output=True, check=True, cwd=ROOT)
    copy = warm_processes.run(words, capture_output=True, check=True, cwd=ROOT)
    assert json.loads(copy.stdout.split(b"\n")[0]) == json.loads(new.stdout.split(b"\n")[0])
    with warm_processes.Popen([script, "wait"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waiting\n"
        assert is_copy(process)
        process.kill()


def test_many_threads_start_copies_at_once() -> None:
    codes: list[int] = []

    def start(number: int) -> None:
        words = [*REPORT, "exit", str(number)]
        codes.append(warm_processes.run(words, cwd=ROOT, capture_output=True).returncode)

    threads = [threading.Thread(target=start, args=[number]) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(codes) == list(range(8))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"preexec_fn": os.getpid}, REPORT),
        ({"env": {**os.environ, "PYTHONPATH": "src"}}, REPORT),
        ({"env": {**os.environ, "FILL": "x" * 70_000}}, REPORT),
        ({}, (sys.executable, "-P", "-m", "tests.process_report")),
        ({}, (sys.executable, "-c", "print('waiting', flush=True); input()", "-m")),
    ],
)
def test_what_a_copy_cannot_be_like_is_new(more: dict[str, Any], words: tuple[str, ...]) -> None:
    if "-P" in words:
        more = {"env": {**os.environ, "PYTHONPATH": str(ROOT)}}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with warm_processes.Popen([*words, "wait"], cwd=ROOT, **pipes, **more) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waiting\n"
        assert not is_copy(process)
        process.kill()


def test_a_terminal_gets_a_new_process() -> None:
    import pty  # noqa: PLC0415 -- Windows has none

    ours, theirs = pty.openpty()
    words = [*REPORT, "wait"]
    with warm_processes.Popen(words, cwd=ROOT, stdout=theirs, stdin=theirs) as process:
        os.close(theirs)
        assert b"waiting" in os.read(ours, 100)
        assert not is_copy(process)
        process.kill()
    os.close(ours)


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        warm_processes.run([*REPORT, "report"], cwd=tmp_path / "none")


def test_the_tests_of_the_start_start_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in warm_processes.FRESH:
        path, _, test = each.partition("::")
        assert (ROOT / path).exists()
        assert not test or f"def {test}" in (ROOT / path).read_text()
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/quick/test_doors.py::test_some (call)")
    words = [*REPORT, "wait"]
    with warm_processes.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waiting\n"
        assert not is_copy(process)
        process.kill()
