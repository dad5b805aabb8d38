"""The machine that each test of the configuration gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.places import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)
