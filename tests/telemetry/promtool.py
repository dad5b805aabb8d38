"""Prometheus' own tool, found or installed, so that no check is silently left out.

Rules: (1) where it cannot be had the test is skipped on a developer's machine and fails in CI.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.debian_packages import installed_program


def promtool(*arguments: str, stdin: bytes = b"", cwd: Path | None = None) -> str:
    """What it printed, after it succeeded."""
    done = subprocess.run(
        [_found(), *arguments], input=stdin, cwd=cwd, capture_output=True, check=False
    )
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    return said


@cache
def _found() -> str:
    try:
        return installed_program("prometheus", "promtool")
    except FileNotFoundError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
