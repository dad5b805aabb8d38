"""Fetch vendors' own Python SDKs, and run small programs with them in processes of their own.

Rules: (1) they come from the package index by name and version and are kept in .cache, apart from
the tests' own packages; (2) what cannot be had fails loudly.
Not here: what is asserted (test_openai_sdk.py, test_cloud_sdks.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2] / ".cache" / "real_clients"
OPENAI = ("openai-sdk", ("openai==3.49.0",))
CLOUDS = ("clouds-sdk", ("anthropic[bedrock,vertex]==2.8.0",))
PATIENCE = 120


def folder(packages: tuple[str, tuple[str, ...]]) -> Path:
    """Where the packages and what they need are, downloaded on first use."""
    name, wanted = packages
    place = ROOT / name
    if not place.exists():
        ROOT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=ROOT) as temporary:
            fresh = Path(temporary) / "packages"
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--target"]
            subprocess.run([*command, str(fresh), *wanted], check=True)
            # Moved as a whole, so that two test processes cannot see each other's half.
            with suppress(OSError):
                fresh.rename(place)
    return place


def run_with(packages: tuple[str, tuple[str, ...]], program: str, *arguments: str) -> Any:
    """What the program prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(folder(packages))},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)
