"""Prometheus' own tool, found or installed, so that no check is silently left out.

Rules: (1) where it cannot be had the test is skipped on a developer's machine and fails in CI.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest


def promtool(*arguments: str, stdin: bytes = b"", cwd: Path | None = None) -> str:
    """What it printed, after it succeeded."""
    tool = _found()
    if tool is None:
        words = "promtool is not here and cannot be installed: apt-get install prometheus"
        if os.environ.get("CI"):
            pytest.fail(words)
        pytest.skip(words)
    done = subprocess.run(
        [tool, *arguments], input=stdin, cwd=cwd, capture_output=True, check=False
    )
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    return said


@cache
def _found() -> str | None:
    tool = shutil.which("promtool")
    apt = shutil.which("apt-get")
    if tool is None and apt is not None and os.environ.get("CI"):
        subprocess.run([apt, "update", "--quiet"], check=False, capture_output=True)
        install = [apt, "install", "--yes", "--no-install-recommends", "prometheus"]
        subprocess.run(install, check=False, capture_output=True)
        tool = shutil.which("promtool")
    return tool
