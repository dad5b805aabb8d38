"""`jackline connect codex` says beforehand what would refuse its calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RESPONSES = '[[upstream]]\npreset = "openai"\ncredential = "pass-through"\n'


def connect(folder: Path, upstreams: str, *words: str) -> subprocess.CompletedProcess[str]:
    config = folder / "jackline.toml"
    config.write_text(upstreams)
    return subprocess.run(
        [sys.executable, "-m", "jackline", "connect", "codex", "--dry-run", *words],
        env={
            **os.environ,
            "HOME": str(folder),
            "CODEX_HOME": str(folder / "codex"),
            "JACKLINE_CONFIG": str(config),
            "JACKLINE_STATE": str(folder / "state"),
        },
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.mark.parametrize(("upstreams", "warned"), [("", True), (RESPONSES, False)])
def test_codex_is_warned_of_a_gateway_that_cannot_answer_it(
    upstreams: str, warned: bool, tmp_path: Path
) -> None:
    told = connect(tmp_path, upstreams)
    assert ("jackline upstream add openai" in told.stderr) == warned
    as_json = json.loads(connect(tmp_path, upstreams, "--json").stdout)
    assert (as_json["warning"] is not None) == warned
