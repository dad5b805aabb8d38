"""Commands load no more than they need: their start is most of what they cost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("jackline.assembly.service", "jackline.gateway.listener", "jackline.agents.codex")


def _loaded(code: str, cwd: Path | None = None) -> set[str]:
    program = f"import sys\n{code}\nprint('loaded', *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
    )
    return set(done.stdout.rpartition("loaded ")[2].split())


@pytest.mark.parametrize("module", ["jackline.cli.runs", "jackline.cli.removal"])
def test_listing_runs_loads_no_gateway(module: str) -> None:
    assert not _loaded(f"import {module}") & set(HEAVY)


@pytest.mark.parametrize("verb", [["status"], ["config", "path"], ["why", "--text", "API Error"]])
def test_settings_are_declared_without_the_programs_that_agents_run(
    verb: list[str], tmp_path: Path
) -> None:
    code = f"from jackline.cli.main import run\nrun({verb})"
    loaded = _loaded(code, tmp_path)
    assert not {name for name in loaded if name.startswith("jackline.agents.process")}
    assert "jackline.agents.claude_code.runner" not in loaded


@pytest.mark.parametrize("verb", [["ls"], ["show", "none"], ["status"]])
def test_without_settings_no_validator_is_loaded(verb: list[str], tmp_path: Path) -> None:
    code = f"from jackline.cli.main import run\nrun({verb})"
    assert "pydantic" not in _loaded(code, tmp_path)
