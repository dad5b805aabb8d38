"""Every test of the contract runs on every store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flows.store.made import LOST_WHEN_CLOSED, STORES, World


@pytest.fixture(params=STORES)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(request.param, tmp_path)


@pytest.fixture(params=[kind for kind in STORES if kind not in LOST_WHEN_CLOSED])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A store that several processes can use."""
    return World(request.param, tmp_path)


@pytest.fixture
def disk(tmp_path: Path) -> World:
    return World("file", tmp_path)
