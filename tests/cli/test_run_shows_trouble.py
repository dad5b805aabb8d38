"""`jackline run` with a dead provider: it says what its agents wait for, and when that is over."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.flow_world import flow_world, wait_for


def test_a_run_whose_provider_is_dead_says_so_and_goes_on(tmp_path: Path) -> None:
    with flow_world(tmp_path) as w:
        fault = w.provider.refuse()
        with w.start("run", "flow.py", "--count", "3") as process:
            wait_for(process, "3 agents wait, upstream down")
            status = json.loads(w.jackline("status", "--json")[1])
            assert "3 upstream down" in status["verdict"]
            w.provider.heal(fault)
            out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert out == "3 of 3 ok: 0 1 2\n"
        # Nothing is said a second time.
        assert "agents wait, upstream down" not in err
