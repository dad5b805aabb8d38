"""Whoever follows the tutorial gets through: every command is run, in its order, as it stands."""

from __future__ import annotations

import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import FENCE, text_of
from tests.ports import free_port

PATIENCE = 240.0  # only a test that fails ever waits so long
MARK = "the block has ended: "
STEP = re.compile(rf"<!-- (says|until): (.+?) -->|{FENCE.pattern}", re.DOTALL | re.MULTILINE)


class Terminal:
    """A bash that lives as long as the reader's terminal would."""

    def __init__(self, folder: Path) -> None:
        home = folder / "home"
        home.mkdir()
        self.folder = folder
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "HOME": str(home),
                "TZ": "UTC",
                "PYTHONUTF8": "1",
            },
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def type(self, commands: str) -> str:
        """What the commands print, until the shell asks for more."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{commands}\necho '{MARK}'$?\n")
        self._process.stdin.flush()
        said = ""
        while MARK not in said:
            said += self._lines.get(timeout=PATIENCE)
        return said

    def end(self) -> None:
        self.type("jackline down; kill $(jobs -p); wait")
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        self._process.stdout.close()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    try:
        yield terminal
    finally:
        terminal.end()


def waited_for(terminal: Terminal, what: str) -> None:
    """Do as a reader does, who looks again until it has come about."""
    where, _, words = what.partition(" has ")
    look = "jackline status" if where == "status" else f"cat {where}"
    deadline = time.monotonic() + PATIENCE
    said = ""
    while words not in said:
        assert time.monotonic() < deadline, f"{what} did not come about:\n{said}"
        said = terminal.type(look)
        time.sleep(0.2)


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("bash") is None, reason="the tutorial is for a Unix shell")
def test_every_command_of_the_tutorial_works_and_says_what_the_page_says(
    terminal: Terminal,
) -> None:
    page = text_of("tutorial.md")
    for port in ("8999", "8799"):
        page = page.replace(port, str(free_port()))
    said = ""
    for word, what, language, body in STEP.findall(page):
        if word == "until":
            waited_for(terminal, what)
        elif word == "says":
            assert what in said, f"the page promises {what!r}, but:\n{said}"
        elif language == "python":
            (terminal.folder / "ten-minutes" / "ships.py").write_text(body, "utf-8")
        elif language == "sh":
            said = terminal.type(body)


def test_the_tutorial_promises_something_in_each_of_its_parts() -> None:
    parts = text_of("tutorial.md").split("\n## ")[1:]
    silent = [part.splitlines()[0] for part in parts if "```sh" in part and "<!-- " not in part]
    assert silent == []
