"""Fetch Python clients from the package index, each into a folder of its own.

Rules: (1) they come by name and version and are kept in .cache, apart from the tests' own packages;
(2) what cannot be had fails loudly.
Not here: running them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[2] / ".cache" / "real_clients"


def installed(*requirements: str) -> Path:
    """A folder for PYTHONPATH with these packages and what they need, downloaded on first use."""
    folder = ROOT / "-".join(one.replace("==", "-") for one in requirements)
    if not folder.exists():
        ROOT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=ROOT) as temporary:
            fresh = Path(temporary) / "packages"
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(fresh)]
            subprocess.run([*command, *requirements], check=True)
            # Moved as a whole, so that two test processes cannot see each other's half.
            with suppress(OSError):
                fresh.rename(folder)
    return folder
