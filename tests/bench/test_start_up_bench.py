"""The bench of the quick verbs measures all of them in one run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench" / "start_up.py"


def test_verbs_are_measured_beside_a_bare_python() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCH), "--quick", "--json"], capture_output=True, check=True
    )
    told = json.loads(done.stdout)
    names = [one["name"] for one in told]
    assert names[0] == "bare Python"
    verbs = {name.split(",")[0].split()[1] for name in names if name.startswith("jackline ")}
    assert {"statusline", "hook", "mcp", "--help", "status", "ls", "cost", "why", "config"} == verbs
    assert told[0]["times_bare"] == 1
    assert all(0 < one["least_ms"] <= one["median_ms"] for one in told)
