"""Ctrl-C is quiet whenever it comes: no traceback, exit code 130, nothing lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are sent as POSIX knows them")

# Sends the signal to itself when the n-th module of ours, or of those we load, is looked for:
# a Ctrl-C at every moment of the start, without waiting for luck.
_INTERRUPTED_AT = """
import os, signal, sys

class Interrupting:
    left = int(sys.argv.pop(1))

    def find_spec(self, name, path=None, target=None):
        Interrupting.left -= 1
        if Interrupting.left == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return None

from jackline.quick.entry import main
sys.meta_path.insert(0, Interrupting())
main()
"""


@pytest.mark.parametrize("module", [1, 2, 10, 30, 60, 100])
@pytest.mark.parametrize("verb", ["run", "ls", "statusline"])
def test_ctrl_c_while_the_program_loads_is_quiet(verb: str, module: int, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text("from jackline import flow\n")
    words = ["run", "flow.py"] if verb == "run" else [verb]
    environ = {**os.environ, "JACKLINE_STATE": str(tmp_path / "state"), "JACKLINE_PORT": "0"}
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED_AT, str(module), *words],
        env=environ,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert b"Traceback" not in done.stderr
    if done.returncode != 130:
        # It was through before so many modules were imported, and was not interrupted at all.
        assert b"interrupted" not in done.stderr
        assert (verb, module) not in {("run", 1), ("run", 100), ("ls", 1), ("ls", 100)}
