"""Workers that need packages at the same moment do not fail for each other's locks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Like apt-get, it fails at once while another one works; its packages hold a program of their name.
APT = """#!/bin/sh
if ! mkdir "$PLAYGROUND/lock" 2>/dev/null; then
    echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1" >&2
    : > "$PLAYGROUND/refused"
    exit 100
fi
sleep 0.3
for package; do :; done
program="$PLAYGROUND/bin/$package"
if [ "$1" = install ]; then printf '#!/bin/sh\\n' > "$program"; chmod 755 "$program"; fi
rmdir "$PLAYGROUND/lock"
"""
INSTALL = """
import sys
from tests.debian_packages import installed_program
print(installed_program(sys.argv[1], sys.argv[1]))
"""


@pytest.fixture
def playground(tmp_path: Path) -> Path:
    """A folder with an apt-get of its own."""
    if os.geteuid() != 0:
        assert not os.environ.get("CI"), "in CI tests run as root"
        pytest.skip("packages are installed by root alone")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "apt-get").write_text(APT)
    (tmp_path / "bin" / "apt-get").chmod(0o755)
    return tmp_path


def _start_install(playground: Path, name: str) -> subprocess.Popen[str]:
    environ = {
        **os.environ,
        "PATH": f"{playground / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PLAYGROUND": str(playground),
        "TMPDIR": str(playground),
    }
    return subprocess.Popen(
        [sys.executable, "-c", INSTALL, name],
        cwd=Path(__file__).parents[1],
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="there is no apt-get on Windows")
def test_an_installation_waits_for_another_program_that_installs(playground: Path) -> None:
    (playground / "lock").mkdir()
    worker = _start_install(playground, "a-program")
    while not (playground / "refused").exists() and worker.poll() is None:
        time.sleep(0.05)
    (playground / "lock").rmdir()
    assert worker.communicate(timeout=300)[0].strip().endswith("a-program")
    assert worker.returncode == 0


@pytest.mark.skipif(sys.platform == "win32", reason="there is no apt-get on Windows")
def test_two_processes_install_one_after_the_other(playground: Path) -> None:
    names = ("first-program", "second-program", "second-program")
    workers = [_start_install(playground, name) for name in names]
    paths = [worker.communicate(timeout=300)[0].strip() for worker in workers]
    assert [Path(path).name for path in paths] == [
        "first-program",
        "second-program",
        "second-program",
    ]
