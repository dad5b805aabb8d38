"""Commands that list runs load neither a gateway nor a runner."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("jackline.assembly.service", "jackline.gateway.listener", "jackline.agents.codex.runner")


@pytest.mark.parametrize("module", ["jackline.cli.runs", "jackline.cli.removal"])
def test_listing_runs_loads_no_gateway(module: str) -> None:
    code = f"import sys, {module}; print([each for each in {HEAVY} if each in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
