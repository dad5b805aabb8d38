"""`jackline plugin` on the real clients: short words, idempotent, and never an old copy left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import warm_processes
from tests.own_home import key_folder
from tests.real_clients.clients import claude_binary
from tests.real_clients.old_client import old_claude_binary

pytestmark = pytest.mark.real_client
BINARIES = {"2.1.325": claude_binary, "2.1.197": old_claude_binary}


class User:
    """Somebody with an empty home and Claude Code on the PATH."""

    def __init__(self, folder: Path, claude: Path) -> None:
        self.home = folder / "home"
        bin_ = folder / "bin"
        for each in (self.home, bin_):
            each.mkdir()
        (bin_ / "claude").symlink_to(claude)
        self._environment = {
            "PATH": f"{bin_}{os.pathsep}/usr/bin{os.pathsep}/bin",
            "HOME": str(self.home),
            **key_folder(),
            "LANG": "C.UTF-8",
            "JACKLINE_STATE": str(folder / "state"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
        }

    def jackline(self, *words: str, port: int = 8766) -> subprocess.CompletedProcess[str]:
        return warm_processes.run(
            [sys.executable, "-m", "jackline", "plugin", *words],
            env={**self._environment, "JACKLINE_PORT": str(port)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def loaded(self) -> str:
        """The hooks that the client itself has, or reads where they are."""
        told = (self.home / ".claude" / "plugins" / "installed_plugins.json").read_text()
        (entry,) = json.loads(told)["plugins"]["jackline@jackline"]
        return (Path(entry["installPath"]) / "hooks" / "hooks.json").read_text()


@pytest.mark.parametrize("binary", BINARIES.values(), ids=BINARIES)
def test_it_is_installed_in_a_few_lines_and_renewed_with_the_service(
    binary: Callable[[], Path], tmp_path: Path
) -> None:
    user = User(tmp_path, binary())
    dry = user.jackline("install", "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert '"hooks": {' in dry.stderr, "a dry run shows everything"
    assert dry.stderr.endswith("nothing was changed: --dry-run\n")
    assert not (tmp_path / "state").exists()
    first = user.jackline("install")
    assert first.returncode == 0, first.stderr
    assert '"hooks": {' not in first.stderr
    lines = first.stderr.splitlines()
    assert len(lines) <= 12
    assert any("hooks.json (reports of sub-agents" in line for line in lines)
    again = user.jackline("install")
    assert "write" not in again.stderr
    assert user.jackline("status").returncode == 0
    assert user.jackline("status", port=9999).returncode == 1
    assert user.jackline("install", port=9999).returncode == 0
    assert "127.0.0.1:9999" in user.loaded(), "the copy that the client works with"
    gone = user.jackline("uninstall")
    assert gone.returncode == 0, gone.stderr
    assert user.jackline("status").returncode == 1
