"""One process of other people's programs for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.dialects.translation.oracles import Oracle


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    with Oracle() as running:
        yield running
