"""The machine that each test of the configuration gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.places import Machine


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    # The installation's key lies in the user's own state folder, whatever a test says.
    for name in ("HOME", "XDG_STATE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    return Machine(tmp_path)
