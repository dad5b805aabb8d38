"""Workers that need packages at the same moment do not fail for each other's locks."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

# Like apt-get, it fails at once while another one works; its packages hold a program of their name.
APT = """#!/bin/sh
mkdir "$PLAYGROUND/lock" 2>/dev/null || exit 100
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


@pytest.mark.skipif(sys.platform == "win32", reason="there is no apt-get on Windows")
def test_two_processes_install_one_after_the_other(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        assert not os.environ.get("CI"), "in CI tests run as root"
        pytest.skip("packages are installed by root alone")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "apt-get").write_text(APT)
    (tmp_path / "bin" / "apt-get").chmod(0o755)
    environ = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PLAYGROUND": str(tmp_path),
        "TMPDIR": tempfile.mkdtemp(dir=tmp_path),
    }
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", INSTALL, name],
            cwd=Path(__file__).parents[1],
            env=environ,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("first-program", "second-program", "second-program")
    ]
    paths = [worker.communicate(timeout=300)[0].strip() for worker in workers]
    assert [Path(path).name for path in paths] == [
        "first-program",
        "second-program",
        "second-program",
    ]
