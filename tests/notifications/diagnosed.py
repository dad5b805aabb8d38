"""What `jackline doctor` finds with this file of settings."""

from __future__ import annotations

import json
from pathlib import Path

from jackline.testing import SimulatedProvider
from tests.cli.commands import jackline


def diagnosed(file: Path, *words: str, **env: str) -> dict[str, dict[str, str]]:
    """Its findings by their names; its exit code fits them."""
    with SimulatedProvider() as provider:
        own = {"JACKLINE_STATE": str(file.parent / "state"), "JACKLINE_UPSTREAM": provider.url}
        done = jackline("doctor", "--json", "--config", file, *words, env={**own, **env})
    findings = {finding["check"]: finding for finding in json.loads(done.out)["findings"]}
    fails = any(finding["mark"] == "fail" for finding in findings.values())
    assert done.code == int(fails), done.out
    return findings
