"""Every test of the contract is told on both engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flows.engine.made import World


@pytest.fixture(params=["local", "memory"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(request.param, tmp_path)


@pytest.fixture
def disk(tmp_path: Path) -> World:
    return World("local", tmp_path)
