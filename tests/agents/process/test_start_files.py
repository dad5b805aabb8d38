"""What a program is started with is gone when its process has died, and never before."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from jackline.agents.process.child import remove_left_files, start_files, start_files_root

_HOLDER = """
import sys
from jackline.agents.process.child import start_files
with start_files() as folder:
    (folder / "mcp.json").write_text("SECRET")
    print(folder, flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process() -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """Another process with a folder of its own, until its stdin is closed."""
    words = [sys.executable, "-c", _HOLDER]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield Path(process.stdout.readline().strip()), process


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state folder of this test alone."""
    for name in ("XDG_STATE_HOME", "HOME", "LOCALAPPDATA", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))


def test_what_a_killed_process_left_is_removed_at_the_next_start() -> None:
    with another_process() as (left, process):
        process.kill()
    assert (left / "mcp.json").exists()
    with start_files() as folder:
        assert not left.exists()
    assert not folder.exists()
    assert not list(start_files_root().iterdir()), "nor do locks stay"


def test_what_is_in_use_stays_whatever_its_age_says() -> None:
    with another_process() as (theirs, _), start_files() as ours:
        for folder in (theirs, ours):
            os.utime(folder, (0, 0))
        with start_files():
            remove_left_files()
            assert (theirs / "mcp.json").exists()
            assert ours.exists()
        assert (theirs / "mcp.json").exists()
    assert not theirs.exists()
    assert not list(start_files_root().iterdir())


def test_a_folder_of_an_earlier_version_is_removed() -> None:
    root = start_files_root()
    root.mkdir(mode=0o700, parents=True)
    (root / "abc").mkdir()
    (root / "abc" / "system.txt").write_text("SECRET")
    remove_left_files()
    assert not list(root.iterdir())


def test_folders_that_an_agent_has_closed_are_removed_too() -> None:
    with start_files() as folder:
        closed = folder / "tmp" / "closed" / "inside"
        closed.mkdir(parents=True)
        (closed / "file").touch()
        for each in (closed, closed.parent):
            each.chmod(0o500)
    assert not list(start_files_root().iterdir())


def test_many_starts_at_once_take_nothing_from_each_other() -> None:
    def start(number: int) -> bool:
        with start_files() as folder:
            (folder / "own").write_text(str(number))
            remove_left_files()
            return (folder / "own").read_text() == str(number)

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(start, range(400)))
    assert not list(start_files_root().iterdir())
