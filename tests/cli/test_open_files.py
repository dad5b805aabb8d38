"""A gateway may hold as many connections as the system allows."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SCRIPT = """
import resource
from jackline.cli.foreground import raise_file_limit
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
raise_file_limit()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
@pytest.mark.parametrize(("soft", "hard", "then"), [(64, 900, 900), (64, 64, 64), (500, 500, 500)])
def test_the_soft_limit_goes_up_to_the_hard_one(soft: int, hard: int, then: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT.format(soft=soft, hard=hard)],
        capture_output=True,
        check=True,
    )
    assert done.stdout.split() == [str(then).encode(), str(hard).encode()]
