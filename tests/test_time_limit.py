"""A test that hangs ends as a failure with its name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HANGS = """
import threading
from tests import time_limit
time_limit.SECONDS = 1

def test_hangs():
    threading.Event().wait(60)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no alarms")
def test_a_test_that_hangs_fails_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGS)
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.time_limit",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [*words, "-c", os.devnull, "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "test_hanging.py::test_hangs has not ended within 1 s" in done.stdout
